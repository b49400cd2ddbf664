"""What a model reads."""
