"""A message about a run to a destination of results, as people see it."""

from collections.abc import Sequence
from dataclasses import dataclass

from hookmill.domain.results import ResultKind, ResultTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAttempt:
    """One attempt to send a message. `status` is that of the HTTP response, if there was one."""

    at: int
    status: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultMessage:
    """A message about a run, for people. Times are in µs since 1970."""

    number: int
    kind: ResultKind
    destination: str
    target: ResultTarget
    is_about_end: bool
    state: str
    """`open` (the run has not ended), `waiting`, `sent`, `failed` (given up, or not sent because of a restore),
    `refused` (it can't be sent), `omitted` (the run wrote nothing to send) or `superseded` (a newer status replaced
    it)."""
    attempts: Sequence[SendAttempt]
    due_at: int | None
    finished_at: int | None
    problem: str | None
    url: str | None
    """The page of what was delivered, if its response named one."""
    is_uncertain: bool
    """Whether an unsuccessful attempt may have arrived. If the state is `sent`, the message may have arrived twice."""
