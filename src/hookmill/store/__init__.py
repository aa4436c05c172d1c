"""What is kept, and how: one file per aggregate, SQLite or PostgreSQL below."""
