"""/factories/{factory}/runs: the runs that deliveries, schedules and people started."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from hookmill.domain.ids import RunKey
from hookmill.domain.run import RunState
from hookmill.presentation.queue import CancelledRunsView
from hookmill.presentation.run import RunView, RunWithOutputView
from hookmill.presentation.run_files import RunFilesView, RunOutputView
from hookmill.web.api.access import ManagementDependency, ManagerAccess, ViewerAccess
from hookmill.web.api.bodies import RunCancellation
from hookmill.web.api.expensive import expensive
from hookmill.web.api.fields import PAGE_SIZE, Cursor, FileInPath, Limit, RunInPath, Text
from hookmill.web.api.paging import ResultPage, cut_page, key_cursor, key_from
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route
from hookmill.web.run_file import file_response

routes = APIRouter(prefix="/factories/{factory}/runs", route_class=Route, tags=["Runs"])


class RunPage(ResultPage[RunView], frozen=True):
    """Runs, newest first."""


@routes.get("", operation_id="list_runs", summary="List runs", response_model=RunPage)
def list_runs(
    permission: ViewerAccess,
    management: ManagementDependency,
    webhook: Annotated[Text | None, Query(description="Only runs for this webhook, by uid or name.")] = None,
    automation: Annotated[Text | None, Query(description="Only runs of this automation, by id or name.")] = None,
    state: Annotated[RunState | None, Query(description="Only runs in this state.")] = None,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> Response:
    """Lists the factory's runs, newest first."""
    before = key_from(cursor)
    runs = management.runs.newest(
        permission,
        webhook=webhook,
        automation=automation,
        state=state,
        before=RunKey(before) if before is not None else None,
        limit=limit + 1,
    )
    items, next_cursor = cut_page(runs, lambda run: key_cursor(run.id), limit=limit)
    return json_response(RunPage(items=[RunView.of(run) for run in items], next_cursor=next_cursor))


@routes.get("/{run}", operation_id="show_run", summary="Show a run", response_model=RunWithOutputView)
def show_run(run: RunInPath, permission: ViewerAccess, management: ManagementDependency) -> Response:
    """Returns a run, with its summary, the end of its output, its agent's report, and the values of its fields."""
    shown_run = management.runs.get(permission, run)
    return json_response(
        RunWithOutputView.of(
            shown_run,
            management.runs.failed_attempts(permission, run),
            management.run_files.fields_of(permission, shown_run),
            management.runs.agent_reports(permission, run),
            management.runs.outputs(permission, run),
            management.runs.results(permission, run),
        )
    )


@routes.get(
    "/{run}/output", operation_id="show_run_output", summary="Show a run's output", response_model=RunOutputView
)
def show_run_output(run: RunInPath, permission: ViewerAccess, management: ManagementDependency) -> Response:
    """Returns the output of the latest attempt's command, or its end, also while the command runs."""
    shown_run = management.runs.get(permission, run)
    return json_response(RunOutputView.of(shown_run.id, management.run_files.output_of(permission, shown_run)))


@routes.get("/{run}/files", operation_id="list_run_files", summary="List a run's files", response_model=RunFilesView)
def list_run_files(run: RunInPath, permission: ViewerAccess, management: ManagementDependency) -> Response:
    """Lists the files of the latest attempt's package."""
    listed_run = management.runs.get(permission, run)
    return json_response(RunFilesView.of(management.run_files.files_of(permission, listed_run)))


@routes.get(
    "/{run}/files/{file}",
    operation_id="download_run_file",
    summary="Download a run's file",
    response_class=Response,
    responses={
        200: {
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            "description": "The file as it is.",
        }
    },
)
def download_run_file(
    run: RunInPath, file: FileInPath, permission: ViewerAccess, management: ManagementDependency
) -> Response:
    """Returns a file of the latest attempt's package, byte for byte. Treat its content as untrusted."""
    return file_response(file, management.run_files.read(permission, management.runs.get(permission, run), file))


@routes.post("/cancel", operation_id="cancel_runs", summary="Cancel many runs", response_model=CancelledRunsView)
@expensive
def cancel_runs(body: RunCancellation, permission: ManagerAccess, management: ManagementDependency) -> Response:
    """Cancels the unfinished runs that meet every condition, or all unfinished runs.

    Queued runs end immediately, and running ones as soon as their commands have ended. Runs that are created during the
    request are not cancelled.
    """
    result = management.runs.cancel_many(
        permission, webhook=body.webhook, automation=body.automation, state=body.state, all_runs=body.all
    )
    return json_response(CancelledRunsView.of(result))


@routes.post("/{run}/cancel", operation_id="cancel_run", summary="Cancel a run", response_model=RunView)
def cancel_run(run: RunInPath, permission: ManagerAccess, management: ManagementDependency) -> Response:
    """Cancels a run: a queued one immediately, a running one as soon as its command has ended."""
    return json_response(RunView.of(management.runs.cancel(permission, run)))
