"""The pictures of `docs/screens/`."""
