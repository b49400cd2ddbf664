"""One turn: model passes, calls, and when it ends."""
