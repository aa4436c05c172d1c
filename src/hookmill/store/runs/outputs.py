"""The texts that runs have written to their directories `outputs`. They are stored when the run ends."""

from hookmill.domain.ids import RunKey
from hookmill.domain.run_outputs import OutputText, RunOutputs
from hookmill.store.database import Transaction


def add(tx: Transaction, key: RunKey, outputs: RunOutputs) -> None:
    """Store the texts of a run that has just ended."""
    for name, output in outputs.items():
        tx.run(
            "INSERT INTO run_outputs (run_id, name, content, is_cut) VALUES (:run, :name, :content, :is_cut)",
            run=key,
            name=name,
            content=output.text,
            is_cut=output.is_cut,
        )


def of_run(tx: Transaction, key: RunKey) -> RunOutputs:
    """The texts of the run; none before it has ended."""
    rows = tx.all("SELECT name, content, is_cut FROM run_outputs WHERE run_id = :run ORDER BY name", run=key)
    return {row["name"]: OutputText(text=row["content"], is_cut=bool(row["is_cut"])) for row in rows}
