"""The database's history, forward only. One chain for SQLite and PostgreSQL."""
