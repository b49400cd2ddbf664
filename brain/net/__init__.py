"""The ways to the network: model servers and the web."""
