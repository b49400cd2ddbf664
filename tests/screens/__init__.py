"""The screenshots in `docs/screens/`."""
