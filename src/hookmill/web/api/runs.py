"""/factories/{factory}/runs: what deliveries started, and how it went."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from hookmill.domain.ids import RunKey
from hookmill.domain.run import RunState
from hookmill.presentation.run import RunView, RunWithOutputView
from hookmill.web.api.access import Managing, Operations, Viewing
from hookmill.web.api.fields import LIMIT, Cursor, Limit, RunInPath, Text
from hookmill.web.api.paging import Page, cut, key_at, key_cursor
from hookmill.web.api.representation import shown
from hookmill.web.api.route import Route

routes = APIRouter(prefix="/factories/{factory}/runs", route_class=Route, tags=["Runs"])


class RunPage(Page[RunView], frozen=True):
    """Runs, newest first."""


@routes.get("", operation_id="list_runs", summary="List runs", response_model=RunPage)
def list_runs(
    may: Viewing,
    management: Operations,
    webhook: Annotated[Text | None, Query(description="Only this webhook's: its uid or name.")] = None,
    automation: Annotated[Text | None, Query(description="Only this automation's: its id or name.")] = None,
    state: Annotated[RunState | None, Query(description="Only those in this state.")] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """The factory's runs, newest first."""
    before = key_at(cursor)
    found = management.runs.newest(
        may,
        webhook=webhook,
        automation=automation,
        state=state,
        before=RunKey(before) if before is not None else None,
        limit=limit + 1,
    )
    items, further = cut(found, lambda run: key_cursor(run.id), limit=limit)
    return shown(RunPage(items=[RunView.of(run) for run in items], next_cursor=further))


@routes.get("/{run}", operation_id="show_run", summary="Show a run", response_model=RunWithOutputView)
def show_run(run: RunInPath, may: Viewing, management: Operations) -> Response:
    """One run, with the last part of what its command printed."""
    return shown(RunWithOutputView.of(management.runs.get(may, run)))


@routes.post("/{run}/cancel", operation_id="cancel_run", summary="Cancel a run", response_model=RunView)
def cancel_run(run: RunInPath, may: Managing, management: Operations) -> Response:
    """A queued run is cancelled when this is answered, a running one as soon as its process has ended."""
    return shown(RunView.of(management.runs.cancel(may, run)))
