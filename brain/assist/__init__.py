"""Assisted calls: which specialist a message needs, and with which parameters, for models that call none."""
