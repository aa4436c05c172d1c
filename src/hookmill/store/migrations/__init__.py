"""Migrations of the database, forward only. SQLite and PostgreSQL share them."""
