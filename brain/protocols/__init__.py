"""Protocols. Each module is one: requests in, events out."""
