"""The engine for one machine: SQLite, in a file or in memory."""
