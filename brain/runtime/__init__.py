"""Runs turns as tasks, with their event logs and their storage."""
