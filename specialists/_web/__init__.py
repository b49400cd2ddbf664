"""The parts of `web`: search, page reading, and the child processes of both."""
