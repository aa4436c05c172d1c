"""/factories/{factory}/automations: the prompts that deliveries and schedules start, and their triggers."""

from typing import Final

from fastapi import APIRouter, Request, Response

from hookmill.domain.automation import Automation, AutomationSpec
from hookmill.domain.ids import run_id
from hookmill.domain.permission import MayView
from hookmill.domain.spec import read
from hookmill.management import Management
from hookmill.presentation.automation import AutomationInListView, AutomationView
from hookmill.presentation.run import RunView
from hookmill.presentation.view import ExactNumbersView
from hookmill.web.api.access import ManagementDependency, ManagerAccess, ViewerAccess, context_of
from hookmill.web.api.bodies import AutomationChanges, AutomationCreation, RunRequest
from hookmill.web.api.body import field_bytes
from hookmill.web.api.expensive import expensive
from hookmill.web.api.fields import PAGE_SIZE, AutomationInPath, Cursor, Limit
from hookmill.web.api.idempotency import Idempotency
from hookmill.web.api.paging import ResultPage, cursor_after, paginate
from hookmill.web.api.representation import IfMatch, json_response, response_with_etag
from hookmill.web.api.route import Route
from hookmill.web.api.urls import api_path

routes = APIRouter(prefix="/factories/{factory}/automations", route_class=Route, tags=["Automations"])

PAGE_BYTES: Final = 1_048_576
"""A page of automations ends after the item that exceeds this size, even if it has fewer items than `limit`."""


class AutomationPage(ResultPage[AutomationInListView], ExactNumbersView, frozen=True):
    """Automations, by name, without their prompts."""


@routes.get("", operation_id="list_automations", summary="List automations", response_model=AutomationPage)
@expensive
def list_automations(
    permission: ViewerAccess, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Lists the factory's automations by name, without their prompts.

    Each one has warnings: the reasons why it might not start runs. If filters are long, a page holds fewer items than
    `limit`: follow `next_cursor`.
    """
    automations, next_cursor = paginate(
        management.automations.all(permission), lambda automation: (automation.name,), limit=limit, cursor=cursor
    )
    next_times = management.automations.next_times(permission)
    items: list[AutomationInListView] = []
    size = 0
    for automation in automations:
        if size > PAGE_BYTES:
            next_cursor = cursor_after(items[-1].name)
            break
        warnings = management.automations.warnings(permission, automation)
        item = AutomationInListView.of(automation, warnings, next_times.get(automation.id, {}))
        size += len(item.encoded())
        items.append(item)
    return json_response(AutomationPage(items=items, next_cursor=next_cursor))


@routes.post(
    "",
    operation_id="create_automation",
    summary="Create an automation",
    response_model=AutomationView,
    status_code=201,
)
def create_automation(
    permission: ManagerAccess, management: ManagementDependency, body: AutomationCreation, idempotency: Idempotency
) -> Response:
    """Creates an automation. Triggers select webhooks by uid. Each matching delivery starts a run."""

    def create() -> Response:
        automation = management.automations.create(
            permission,
            read(AutomationSpec, body.root),
        )
        return creation_response(automation)

    def creation_response(automation: Automation) -> Response:
        location = api_path("factories", permission.factory.name, "automations", automation.id)
        return json_response(_view(management, permission, automation), 201, location=location)

    def reload(location: str) -> Response:
        return creation_response(management.automations.get(permission, location.rpartition("/")[2]))

    return idempotency.respond(permission, create, reload)


@routes.get(
    "/{automation}", operation_id="show_automation", summary="Show an automation", response_model=AutomationView
)
def show_automation(
    automation: AutomationInPath, permission: ViewerAccess, management: ManagementDependency
) -> Response:
    """Returns an automation, with warnings: the reasons why it might not start runs."""
    return response_with_etag(_view(management, permission, management.automations.get(permission, automation)))


@routes.patch(
    "/{automation}", operation_id="change_automation", summary="Change an automation", response_model=AutomationView
)
def change_automation(
    automation: AutomationInPath,
    permission: ManagerAccess,
    management: ManagementDependency,
    body: AutomationChanges,
    if_match: IfMatch,
) -> Response:
    """Changes an automation with a JSON merge patch. If anything but `enabled` changes, its version increases.
    Existing runs keep theirs."""
    with management.one_transaction(permission):
        _check_precondition(automation, permission, management, if_match)
        changed_automation = management.automations.change(
            permission,
            automation,
            body.root,
        )
        view = _view(management, permission, changed_automation)
    return response_with_etag(view)


@routes.delete(
    "/{automation}",
    operation_id="delete_automation",
    summary="Delete an automation",
    response_class=Response,
    status_code=204,
)
def delete_automation(
    automation: AutomationInPath, permission: ManagerAccess, management: ManagementDependency, if_match: IfMatch
) -> Response:
    """Deletes an automation. It starts no more runs. Its runs remain, and those in progress continue."""
    with management.one_transaction(permission):
        _check_precondition(automation, permission, management, if_match)
        management.automations.delete(permission, automation)
    return Response(status_code=204)


@routes.post(
    "/{automation}/runs",
    operation_id="run_automation",
    summary="Run an automation",
    response_model=RunView,
    status_code=201,
)
def run_automation(
    automation: AutomationInPath,
    permission: ManagerAccess,
    management: ManagementDependency,
    request: Request,
    idempotency: Idempotency,
    body: RunRequest | None = None,
) -> Response:
    """Starts a run by hand, without a delivery. Its payload has exactly the bytes of the value of
    `payload` in the body."""
    payload = field_bytes(context_of(request).body, "payload") if body is not None else None

    def start_run() -> Response:
        new_run = management.automations.start_run(permission, automation, payload)
        location = api_path("factories", permission.factory.name, "runs", run_id(new_run.id))
        return json_response(RunView.of(new_run), 201, location=location)

    return idempotency.respond(permission, start_run)


def _view(management: Management, permission: MayView, automation: Automation) -> AutomationView:
    return AutomationView.of(
        automation,
        management.automations.warnings(permission, automation),
        management.automations.next_times_of(permission, automation),
    )


def _check_precondition(
    automation: str, permission: ManagerAccess, management: ManagementDependency, if_match: IfMatch
) -> None:
    """Raise `Changed` if the client sent `If-Match`, and it doesn't contain the ETag of the automation's
    current view."""
    if if_match.is_set:
        if_match.check(_view(management, permission, management.automations.get(permission, automation)))
