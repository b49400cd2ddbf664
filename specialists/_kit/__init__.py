"""Shared code of several specialists: child processes, HTML, text and passages."""
