"""Stores the last results of planning and applying definition files, for display only."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from hookmill.domain.definition_run import DefinitionAct, DefinitionOutcome, DefinitionRun
from hookmill.domain.permission import MayManage, MayView
from hookmill.management.installation import Operations
from hookmill.store import definition_runs

LINES_MAX: Final = 200
LINE_CHARACTERS_MAX: Final = 300


class DefinitionRuns(Operations):
    def store(
        self, may: MayManage, act: DefinitionAct, outcome: DefinitionOutcome, summary: str, lines: Iterable[str]
    ) -> None:
        """Store the result, which replaces the previous one of the same act and outcome.

        A long list ends with a line that says that it is cut.
        """
        stored_lines = [line[:LINE_CHARACTERS_MAX] for line in islice(lines, LINES_MAX + 1)]
        if len(stored_lines) > LINES_MAX:
            stored_lines[LINES_MAX:] = ["… and more"]
        run = DefinitionRun(
            act=act,
            outcome=outcome,
            at=self._installation.now(),
            actor_name=may.actor.name,
            summary=summary[:LINE_CHARACTERS_MAX],
            lines=stored_lines,
        )
        # Inside an apply, the write joins the transaction of the apply, so that a rollback also removes the result.
        with self._installation.one_transaction(may) as tx:
            definition_runs.store(tx, may.factory.id, run)

    def last(self, may: MayView) -> Sequence[DefinitionRun]:
        """The last successful and the last refused result of plan, and of apply: at most four, newest first."""
        with self._installation.reading() as tx:
            return definition_runs.of_factory(tx, may.factory.id)
