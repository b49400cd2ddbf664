"""Wing: what is kept of conversations, and where."""
