"""Show a turn in a terminal, as plain text or live, and ask the person for approval."""
