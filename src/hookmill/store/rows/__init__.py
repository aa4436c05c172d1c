"""Reads and writes whole rows of every table, for moves and backups.

`tables` describes the tables, generically from the schema. `sqlite` and `postgres` read and write their rows, in the
order of the keys. `digest` compares tables, whatever the database.
"""
