"""Specialists: how they are declared, found, registered and executed."""
