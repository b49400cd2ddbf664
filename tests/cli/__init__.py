"""Tests of the commands, package for their shared helper."""
