"""What each command of `brain` does. What was typed is read in `cli/main.py`."""
