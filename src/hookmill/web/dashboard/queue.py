"""The page of the queue: the runs that wait and why, those that run, and the workers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.queue import Queue, QueuePosition, WaitingRun
from hookmill.domain.run import RunState
from hookmill.presentation.queue import warning_text
from hookmill.web.dashboard.access import managing, viewing
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext, version_tag
from hookmill.web.dashboard.urls import url

PAGE: Final = 50
AGES_SECONDS: Final = 10
"""How often an open page gets new ages if nothing else has changed."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePart:
    """The part of the page that changes. `poll_url` is None on later pages."""

    queue: Queue
    waiting: Sequence[WaitingRun]
    warning: str | None
    poll_url: str | None
    first_url: str | None
    next_url: str | None

    @property
    def version_tag(self) -> str:
        running = [
            (each.run.id, each.run.state, each.run.attempt, each.run.cancel_requested_at, each.executor)
            for each in self.queue.running
        ]
        waiting = [
            (each.run.id, each.run.hold, each.run.due_at, each.waits_behind, each.reached_limit)
            for each in self.waiting
        ]
        age = self.queue.read_at // (AGES_SECONDS * 1_000_000)
        return version_tag(running, waiting, str(self.queue.counts), self.next_url, age)


def queue(context: PageContext, may: MayView) -> Response:
    part = _part(context, may, after=context.query.get("after", ""))
    return context.page("queue.html", may=may, part=part, cancelled=_cancelled(context))


def _cancelled(context: PageContext) -> int | None:
    """How many runs were cancelled before a redirect to this page; None if there was no redirect."""
    number = context.query.get("cancelled", "")
    return int(number) if _NUMBER.match(number) else None


def rows(context: PageContext, may: MayView) -> Response:
    """The first page's content, for polling. The response is empty if nothing has changed."""
    part = _part(context, may)
    return context.page_if_changed("parts/queue.html", part.version_tag, may=may, part=part)


def _part(context: PageContext, may: MayView, *, after: str = "") -> QueuePart:
    position = QueuePosition.parse(after) if after else None
    queue = context.management.runs.queue(may, after=position, limit=PAGE + 1)
    waiting = queue.waiting[:PAGE]
    here = ("f", may.factory.name, "runs", "queue")
    return QueuePart(
        queue=queue,
        waiting=waiting,
        warning=warning_text(queue),
        poll_url=url(*here, "rows") if position is None else None,
        first_url=url(*here) if position is not None else None,
        next_url=url(*here, after=waiting[-1].position.as_text()) if len(queue.waiting) > PAGE else None,
    )


# Cancelling


def confirm_cancel(context: PageContext, may: MayManage) -> Response:
    return context.page(
        "queue-cancel.html",
        may=may,
        waiting=context.management.runs.queue(may, limit=0).counts.waiting,
        automations=context.management.automations.all(may),
    )


def cancel(context: PageContext, may: MayManage) -> Response:
    """Cancel the waiting runs of one automation, or of all."""
    result = context.management.runs.cancel_many(
        may, automation=context.form.optional("automation"), state=RunState.QUEUED
    )
    return context.redirect("f", may.factory.name, "runs", "queue", cancelled=str(result.cancelled))


PAGES: Final = (
    Page("GET", "/f/{factory}/runs/queue/cancel", confirm_cancel, managing),
    Page("POST", "/f/{factory}/runs/queue/cancel", cancel, managing),
    Page("GET", "/f/{factory}/runs/queue", queue, viewing),
    Page("GET", "/f/{factory}/runs/queue/rows", rows, viewing, is_background=True),
)
