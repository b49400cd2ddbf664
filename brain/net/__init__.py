"""The network: model servers and the web."""
