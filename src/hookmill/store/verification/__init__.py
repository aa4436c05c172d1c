"""Verification: recomputes what must hold between the rows of the database, and names each row that contradicts it.

The constraints of the schema cover what one row or one key can say. `relations` has what a statement can say, and
`recomputed` what only a computation can: filters, digests and master keys. Both read a `DatabaseSnapshot`, and change
nothing.
"""
