"""The page of the queue: the waiting runs with their reasons, the running runs, and the workers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.queue import Queue, QueuePosition, WaitingRun
from hookmill.domain.run import RunState
from hookmill.presentation.queue import warning_text
from hookmill.web.dashboard.access import require_manager, require_viewer
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext, version_tag
from hookmill.web.dashboard.urls import url

PAGE_SIZE: Final = 50
AGE_SECONDS: Final = 10
"""How often an open page gets what its version tag does not cover: the runs' ages, the workers and the warning."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePart:
    """The part of the page that changes. `poll_url` is None on all pages but the first."""

    queue: Queue
    waiting: Sequence[WaitingRun]
    warning: str | None
    poll_url: str | None
    first_url: str | None
    next_url: str | None

    @property
    def version_tag(self) -> str:
        running_values = [
            (running.run.id, running.run.state, running.run.attempt, running.run.cancel_requested_at, running.executor)
            for running in self.queue.running
        ]
        waiting_values = [
            (waiting.run.id, waiting.run.hold, waiting.run.due_at, waiting.waits_behind, waiting.reached_limit)
            for waiting in self.waiting
        ]
        # Changes every `AGE_SECONDS`.
        age = self.queue.read_at // (AGE_SECONDS * 1_000_000)
        return version_tag(running_values, waiting_values, str(self.queue.counts), self.next_url, age)


def queue(context: PageContext, may: MayView) -> Response:
    part = _queue_part(context, may, after=context.query.get("after", ""))
    return context.page("queue.html", may=may, part=part, cancelled_count=_cancelled_count(context))


def _cancelled_count(context: PageContext) -> int | None:
    """How many runs were cancelled before a redirect to this page; None if there was no redirect."""
    number = context.query.get("cancelled", "")
    return int(number) if _NUMBER.match(number) else None


def rows(context: PageContext, may: MayView) -> Response:
    """The first page's content, for polling. The response is empty if nothing has changed."""
    part = _queue_part(context, may)
    return context.page_if_changed("parts/queue.html", part.version_tag, may=may, part=part)


def _queue_part(context: PageContext, may: MayView, *, after: str = "") -> QueuePart:
    position = QueuePosition.parse(after) if after else None
    queue = context.management.runs.queue(may, after=position, limit=PAGE_SIZE + 1)
    waiting = queue.waiting[:PAGE_SIZE]
    here = ("f", may.factory.name, "runs", "queue")
    return QueuePart(
        queue=queue,
        waiting=waiting,
        warning=warning_text(queue),
        poll_url=url(*here, "rows") if position is None else None,
        first_url=url(*here) if position is not None else None,
        next_url=url(*here, after=waiting[-1].position.as_text()) if len(queue.waiting) > PAGE_SIZE else None,
    )


# Cancelling


def confirm_cancel(context: PageContext, may: MayManage) -> Response:
    return context.page(
        "queue-cancel.html",
        may=may,
        waiting_count=context.management.runs.queue(may, limit=0).counts.waiting,
        automations=context.management.automations.all(may),
    )


def cancel(context: PageContext, may: MayManage) -> Response:
    """Cancel the waiting runs of the selected automation, or of all automations. Runs that are running continue."""
    result = context.management.runs.cancel_many(
        may, automation=context.form.optional("automation"), state=RunState.QUEUED
    )
    return context.redirect("f", may.factory.name, "runs", "queue", cancelled=str(result.cancelled))


PAGES: Final = (
    Page("GET", "/f/{factory}/runs/queue/cancel", confirm_cancel, require_manager),
    Page("POST", "/f/{factory}/runs/queue/cancel", cancel, require_manager),
    Page("GET", "/f/{factory}/runs/queue", queue, require_viewer),
    Page("GET", "/f/{factory}/runs/queue/rows", rows, require_viewer, is_background=True),
)
