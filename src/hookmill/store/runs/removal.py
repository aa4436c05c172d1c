"""Removes the files of runs that retention has removed.

Contents can be large. So the transaction that removes a run only notes it, and later transactions remove the files. A
worker then removes their objects from the object store.
"""

from collections.abc import Sequence
from typing import Final

from hookmill.store.database import Transaction
from hookmill.store.runs.files import note_objects_to_remove

BYTES_PER_STEP: Final = 4_194_304
"""About how many bytes of contents one transaction removes. One file may be larger."""
RUNS_PER_STATEMENT: Final = 500
"""Databases limit the parameters of a statement."""


def remove_runs_and_payloads(tx: Transaction, deliveries: Sequence[bytes]) -> None:
    """Remove the payloads and the runs of these deliveries, and note the runs that have files."""
    if not deliveries:
        return
    keys = list(deliveries)
    tx.run("DELETE FROM payloads WHERE delivery_id IN :keys", keys=keys)
    # Most deliveries start no run. Then no further statement is executed, because deliveries wait for this transaction.
    runs = tx.scalars("SELECT id FROM runs WHERE delivery_id IN :keys", keys=keys)
    for start in range(0, len(runs), RUNS_PER_STATEMENT):
        _remove_runs(tx, runs[start : start + RUNS_PER_STATEMENT])


def remove_runs(tx: Transaction, runs: Sequence[bytes]) -> None:
    """Remove these runs, and note those that have files. The payloads of their deliveries stay."""
    if runs:
        # A run without a delivery has its own id in place of the delivery's, also in `payloads`.
        tx.run("DELETE FROM payloads WHERE delivery_id IN :keys", keys=list(runs))
        _remove_runs(tx, list(runs))


def _remove_runs(tx: Transaction, runs: list[bytes]) -> None:
    tx.run(
        """
        INSERT INTO removed_runs (run_id)
        SELECT r.id
        FROM runs r
        WHERE r.id IN :runs AND EXISTS (SELECT 1 FROM run_files f WHERE f.run_id = r.id)
        """,
        runs=runs,
    )
    for table in ("failed_attempts", "attempt_reports", "run_outputs", "run_results", "platform_attempts"):
        tx.run(f"DELETE FROM {table} WHERE run_id IN :runs", runs=runs)
    tx.run("DELETE FROM runs WHERE id IN :runs", runs=runs)


def remove_files(tx: Transaction, at_most: int) -> bool:
    """Remove up to `at_most` files of removed runs. Returns False if there are none."""
    runs = tx.scalars("SELECT run_id FROM removed_runs LIMIT :at_most", at_most=at_most)
    if not runs:
        return False
    files = tx.all(
        """
        SELECT run_id, name, length(content) AS bytes, object_key
        FROM run_files
        WHERE run_id IN :runs
        LIMIT :at_most
        """,
        at_most=at_most,
        runs=runs,
    )
    removed_bytes = 0
    for file in files:
        removed_bytes += file["bytes"] or 0
        if file["object_key"] is not None:
            note_objects_to_remove(tx, [file["object_key"]])
        tx.run("DELETE FROM run_files WHERE run_id = :run AND name = :name", run=file["run_id"], name=file["name"])
        if removed_bytes >= BYTES_PER_STEP:
            break
    tx.run(
        """
        DELETE FROM removed_runs
        WHERE run_id IN :runs AND NOT EXISTS (SELECT 1 FROM run_files f WHERE f.run_id = removed_runs.run_id)
        """,
        runs=runs,
    )
    return True
