"""Shared by several specialists: child processes, HTML, text and passages."""
