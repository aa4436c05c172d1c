"""Moves all data of an installation from SQLite to PostgreSQL.

`tables` describes the tables, generically from the schema. `source` reads SQLite, `target` writes PostgreSQL and reads
it back, and `steps` copies and compares. A move can be interrupted at any time: each batch of rows is committed with
its position, and the next start of the same move continues there.
"""
