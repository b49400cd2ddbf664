"""The parts of `web`: searching, reading pages, and the child programs that read and search."""
