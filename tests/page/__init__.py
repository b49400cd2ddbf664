"""The chat page as people use it, in a real browser."""
