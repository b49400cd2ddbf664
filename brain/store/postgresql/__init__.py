"""The engine for several machines: PostgreSQL. It needs the extra `postgres`."""
