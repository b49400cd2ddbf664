"""Calls in the text of a model: how they are found, and how text from outside is kept from looking like one."""
