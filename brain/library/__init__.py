"""Brain inside a program, without a server."""
