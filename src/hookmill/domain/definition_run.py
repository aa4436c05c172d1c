"""The kinds of definition files, and the result of planning or applying them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class DefinitionKind(StrEnum):
    WEBHOOK = "webhook"
    AUTOMATION = "automation"


class DefinitionAct(StrEnum):
    PLAN = "plan"
    APPLY = "apply"


class DefinitionOutcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    """The files have problems, or need consent to a deletion. Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRun:
    """One plan or apply. `at` is in µs since 1970. `lines` are those of the plan; if it was refused, the problems.

    A refusal for lack of consent has no lines; the `summary` has its reason.
    """

    act: DefinitionAct
    outcome: DefinitionOutcome
    at: int
    actor_name: str
    summary: str
    lines: Sequence[str]
