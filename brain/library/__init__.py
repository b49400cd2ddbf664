"""The Python library: Brain inside a program, without a server."""
