"""Shared by several specialists: child processes, HTML, text, passages and terms."""
