"""The parts of `wiki`: names of wikis, the Action API, ZIM files, and pages as text."""
