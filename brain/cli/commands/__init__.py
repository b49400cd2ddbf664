"""The commands of `brain`; `cli/arguments.py` parses their arguments."""
