"""The `brain` command."""
