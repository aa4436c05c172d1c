"""A message about a run to a destination of results, as people see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hookmill.domain.results import ResultKind, ResultTarget


class MessageState(StrEnum):
    """The state of a message about a run.

        open ── the run ends ──► waiting ◄── to be sent again ──► sent
          │                         ├──► failed       given up, or not sent because of a restore
          │                         ├──► refused      it can't be sent
          │                         ├──► omitted      the run wrote nothing to send
          └── a newer one exists ───┴──► superseded   a newer status, comment or review replaced it

    A message about the start of a run begins as `waiting`. One whose target is not allowed begins as `refused`. A
    worker that sends a message has claimed it, and its state is still `waiting`.
    """

    OPEN = "open"
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"
    REFUSED = "refused"
    OMITTED = "omitted"
    SUPERSEDED = "superseded"


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
    state: MessageState
    attempts: Sequence[SendAttempt]
    due_at: int | None
    finished_at: int | None
    problem: str | None
    url: str | None
    """The page of what was delivered, if its response named one."""
    is_uncertain: bool
    """Whether an unsuccessful attempt may have arrived. If the state is `sent`, the message may have arrived twice."""
