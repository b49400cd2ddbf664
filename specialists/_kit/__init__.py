"""What several specialists share."""
