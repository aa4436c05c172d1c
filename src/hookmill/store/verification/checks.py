"""All checks, in their order."""

from collections.abc import Iterator
from typing import Final

from hookmill.store.verification import configuration, identities, log, runs, schema
from hookmill.store.verification.snapshot import DatabaseProblem, DatabaseSnapshot

_STRUCTURE: Final = (schema.check_schema, schema.check_sqlite_file)
_ROWS: Final = (
    configuration.check_webhooks,
    configuration.check_automations,
    configuration.check_secrets,
    log.check_deliveries,
    log.check_payloads,
    log.check_window_counts,
    identities.check_identities,
    runs.check_runs,
    runs.check_parts_of_runs,
    configuration.check_audit_log,
)


def all_problems(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Every problem of the snapshot. Rows are checked only if the tables and the file are in order."""
    is_readable = True
    for check in _STRUCTURE:
        for problem in check(snapshot):
            is_readable = is_readable and problem.kind not in (schema.SCHEMA, schema.FILE_DAMAGED)
            yield problem
    if is_readable:
        snapshot.load()
        for check in _ROWS:
            yield from check(snapshot)
