"""Verification: recomputes what must hold between the rows of the database, and names each row that contradicts it.

Each module has checks of one part, which read a `DatabaseSnapshot` page by page and yield `DatabaseProblem` objects:
`schema` the tables themselves, `configuration` what people define, `log` deliveries with their payloads, `identities`
and `runs`. They change nothing.
"""
