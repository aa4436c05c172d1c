"""Backups: one file with the rows of every table, which restores into SQLite or PostgreSQL.

`records` are the parts of a backup, and `container` is the file that has them, with its digest and its proof that
nobody has altered it. `taking` reads a database into records, `restoring` writes them into an empty one, and `adopting`
then makes the copy an installation of its own. `docs/backup.md` describes the file.
"""
