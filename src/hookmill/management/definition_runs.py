"""What planning and applying definition files came to last: kept for those who look, and for nothing else."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from hookmill.domain.definition_run import DefinitionAct, DefinitionOutcome, DefinitionRun
from hookmill.domain.permission import MayManage, MayView
from hookmill.management.installation import Installation
from hookmill.store import definition_runs

LINES_MAX: Final = 200
LINE_CHARACTERS_MAX: Final = 300


class DefinitionRuns:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def note(
        self, may: MayManage, act: DefinitionAct, outcome: DefinitionOutcome, summary: str, lines: Iterable[str]
    ) -> None:
        """Keep what it came to, in the place of the one before. Long lists are cut, and say so."""
        kept = [line[:LINE_CHARACTERS_MAX] for line in islice(lines, LINES_MAX + 1)]
        if len(kept) > LINES_MAX:
            kept[LINES_MAX:] = ["… and more"]
        run = DefinitionRun(
            act=act,
            outcome=outcome,
            at=self._at.now(),
            actor_name=may.actor.name,
            summary=summary[:LINE_CHARACTERS_MAX],
            lines=kept,
        )
        # Inside an apply it is kept or undone with it: a note that something was done must not outlive its undoing.
        with self._at.together(may), self._at.reading() as tx:
            definition_runs.keep(tx, may.factory.id, run)

    def last(self, may: MayView) -> Sequence[DefinitionRun]:
        """The last plan and the last apply, each as it was done last and as it was refused last; newest first."""
        with self._at.reading() as tx:
            return definition_runs.of_factory(tx, may.factory.id)
