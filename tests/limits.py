"""The one limit of every wait for an event, for a machine that is five times slower and fully loaded."""

WAIT_SECONDS = 120.0
"""No test needs it: a test that reaches it fails. Tests that prove a limit of the product set that one instead."""
