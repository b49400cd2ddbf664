"""The parts of `knowledge`: reading files, the index, and the search in it."""
