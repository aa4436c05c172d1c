"""The database, SQLite or PostgreSQL. Each aggregate has a module with the queries that read and update it."""
