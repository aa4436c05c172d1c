"""/factories/{factory}/queue: the waiting runs, the running runs, and the workers."""

from typing import Annotated

from fastapi import APIRouter, Response
from msgspec import Meta

from hookmill.domain.queue import RUNNING_MAX
from hookmill.presentation.queue import QueueCountsView, QueueView, RunningRunView, WaitingRunView, WorkerView
from hookmill.web.api.access import ManagementDependency, ViewerAccess
from hookmill.web.api.fields import PAGE_SIZE, Cursor, Limit
from hookmill.web.api.paging import ResultPage, cut_page, queue_cursor, queue_position_from
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(prefix="/factories/{factory}/queue", route_class=Route, tags=["Runs"])


class QueuePage(ResultPage[WaitingRunView], frozen=True):
    """The queue. The items are waiting runs, in the order in which they start."""

    counts: QueueCountsView
    warning: Annotated[str | None, Meta(description="What keeps all runs from starting, and what to do.")]
    running: Annotated[list[RunningRunView], Meta(description=f"Oldest first, at most {RUNNING_MAX}.")]
    workers: list[WorkerView]


@routes.get("", operation_id="show_queue", summary="Show the queue", response_model=QueuePage)
def show_queue(
    permission: ViewerAccess, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Returns which runs wait and why, which runs are running, and which workers are alive.

    Ready runs come first, by priority and age. They are followed by held runs, by age.
    """
    queue = management.runs.queue(permission, after=queue_position_from(cursor), limit=limit + 1)
    items, next_cursor = cut_page(queue.waiting, lambda waiting_run: queue_cursor(waiting_run.position), limit=limit)
    return json_response(
        QueueView.of(queue).extended(
            QueuePage, items=[WaitingRunView.with_reason(waiting_run) for waiting_run in items], next_cursor=next_cursor
        )
    )
