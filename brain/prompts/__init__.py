"""Builds everything that the model reads."""
