"""Moves all data of an installation from SQLite to PostgreSQL.

`source` checks SQLite, `target` writes PostgreSQL, and `steps` copies and compares. `store.rows` reads and writes the
rows. A move can be interrupted at any time: each batch of rows is committed with its position, and the next start of
the same move continues there.
"""
