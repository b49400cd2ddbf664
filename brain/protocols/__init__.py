"""Protocols. Each folder is one: requests in, events out; no I/O.

All functions that read requests raise `BadRequest`, which names the field and what is wrong with it.
"""
