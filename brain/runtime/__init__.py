"""Runs: turns as tasks, their event logs, and where they are stored."""
