"""Built in: what several specialists share."""
