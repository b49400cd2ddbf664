"""Protocols, one folder each: they parse requests and encode events, without I/O.

All parsers raise `BadRequest`, which names the field and the problem.
"""
