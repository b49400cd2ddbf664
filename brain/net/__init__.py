"""HTTP clients for model servers and the web."""
