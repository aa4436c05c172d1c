"""A plan or an apply of definition files, and what it came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class DefinitionAct(StrEnum):
    PLAN = "plan"
    APPLY = "apply"


class DefinitionOutcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    """The files have problems, or would remove what nobody agreed to lose. Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRun:
    """A plan or an apply, when (µs since 1970) and by whom. `lines` are its steps, or what was wrong."""

    act: DefinitionAct
    outcome: DefinitionOutcome
    at: int
    actor_name: str
    summary: str
    lines: Sequence[str]
