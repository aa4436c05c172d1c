"""All checks, in their order."""

from collections.abc import Iterator

from hookmill.store.verification import recomputed, relations, schema
from hookmill.store.verification.snapshot import DatabaseProblem, DatabaseSnapshot


def all_problems(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Every problem of the snapshot. Rows are checked only if the tables and the file are in order."""
    is_readable = True
    for check in (schema.check_schema, schema.check_sqlite_file):
        for problem in check(snapshot):
            is_readable = is_readable and problem.kind not in (schema.SCHEMA, schema.FILE_DAMAGED)
            yield problem
    if is_readable:
        snapshot.load()
        for check in (
            relations.check_relations,
            recomputed.check_automations,
            recomputed.check_sealed_values,
            recomputed.check_deliveries,
            recomputed.check_identity_filters,
        ):
            yield from check(snapshot)
