"""Stores the last results of planning and applying definition files: one row for each factory, act and outcome."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from hookmill.domain.definition_run import DefinitionAct, DefinitionOutcome, DefinitionRun
from hookmill.domain.ids import FactoryId
from hookmill.store.database import Transaction, from_row


def store(tx: Transaction, factory: FactoryId, run: DefinitionRun) -> None:
    """Store the result, which replaces the previous one of the same act and outcome."""
    tx.run(
        """
        INSERT INTO definition_runs (factory_id, act, outcome, at, actor_name, summary, lines)
        VALUES (:factory, :act, :outcome, :at, :actor_name, :summary, :lines)
        ON CONFLICT (factory_id, act, outcome) DO UPDATE
        SET at = excluded.at, actor_name = excluded.actor_name, summary = excluded.summary, lines = excluded.lines
        """,
        factory=factory,
        **asdict(run) | {"lines": json.dumps(list(run.lines))},
    )


def of_factory(tx: Transaction, factory: FactoryId) -> Sequence[DefinitionRun]:
    """The factory's results, newest first."""
    rows = tx.all(
        """
        SELECT act, outcome, at, actor_name, summary, lines
        FROM definition_runs
        WHERE factory_id = :factory
        ORDER BY at DESC
        """,
        factory=factory,
    )
    return [
        from_row(
            DefinitionRun,
            row,
            act=DefinitionAct(row["act"]),
            outcome=DefinitionOutcome(row["outcome"]),
            lines=tuple(json.loads(row["lines"])),
        )
        for row in rows
    ]
