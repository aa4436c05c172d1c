"""/factories/{factory}/automations: the prompts that deliveries start, and which deliveries those are."""

from typing import Final

from fastapi import APIRouter, Response

from hookmill.domain.automation import Automation
from hookmill.domain.permission import MayView
from hookmill.management import Management
from hookmill.presentation.automation import AutomationInListView, AutomationView
from hookmill.presentation.view import ExactView
from hookmill.web.api.access import Managing, Operations, Viewing
from hookmill.web.api.bodies import AutomationChanges, NewAutomation
from hookmill.web.api.costly import costly
from hookmill.web.api.fields import LIMIT, AutomationInPath, Cursor, Limit
from hookmill.web.api.idempotency import OnlyOnce
from hookmill.web.api.paging import Page, cursor_at, page
from hookmill.web.api.representation import IfMatch, shown, tagged
from hookmill.web.api.route import Route
from hookmill.web.api.where import at

routes = APIRouter(prefix="/factories/{factory}/automations", route_class=Route, tags=["Automations"])

PAGE_BYTES: Final = 1_048_576
"""Where a page of automations ends, however many were asked for. Their filters may be long."""


class AutomationPage(Page[AutomationInListView], ExactView, frozen=True):
    """Automations, by name, without their prompts."""


@routes.get("", operation_id="list_automations", summary="List automations", response_model=AutomationPage)
@costly
def list_automations(may: Viewing, management: Operations, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """The factory's automations, by name, each with what keeps it from firing. Their prompts are left out.

    A page whose filters are long ends early: go by `next_cursor`.
    """
    found, further = page(
        management.automations.all(may), lambda automation: (automation.name,), limit=limit, cursor=cursor
    )
    items: list[AutomationInListView] = []
    size = 0
    for automation in found:
        if size > PAGE_BYTES:
            further = cursor_at(items[-1].name)
            break
        item = AutomationInListView.of(automation, management.automations.warnings(may, automation))
        size += len(item.as_json())
        items.append(item)
    return shown(AutomationPage(items=items, next_cursor=further))


@routes.post(
    "",
    operation_id="create_automation",
    summary="Create an automation",
    response_model=AutomationView,
    status_code=201,
)
def create_automation(may: Managing, management: Operations, given: NewAutomation, once: OnlyOnce) -> Response:
    """A new automation. It selects webhooks by their uids; deliveries that match start a run of it."""

    def make() -> Response:
        made = management.automations.create(
            may,
            given.name,
            prompt=given.prompt,
            triggers=given.triggers,
            runner=given.runner,
            enabled=given.enabled,
        )
        return created(made)

    def created(made: Automation) -> Response:
        location = at("factories", may.factory.name, "automations", made.id)
        return shown(_described(management, may, made), 201, location=location)

    def look_again(location: str) -> Response:
        return created(management.automations.get(may, location.rpartition("/")[2]))

    return once.answer(may, make, look_again)


@routes.get(
    "/{automation}", operation_id="show_automation", summary="Show an automation", response_model=AutomationView
)
def show_automation(automation: AutomationInPath, may: Viewing, management: Operations) -> Response:
    """One automation, and what keeps it from firing."""
    return tagged(_described(management, may, management.automations.get(may, automation)))


@routes.patch(
    "/{automation}", operation_id="change_automation", summary="Change an automation", response_model=AutomationView
)
def change_automation(
    automation: AutomationInPath, may: Managing, management: Operations, given: AutomationChanges, if_match: IfMatch
) -> Response:
    """Its next version. Runs under way go on with the one that they began with."""
    asked = given.given()
    with management.together(may):
        _must_still_be(automation, may, management, if_match)
        changed = management.automations.change(
            may,
            automation,
            new_name=asked.get("name"),
            prompt=asked.get("prompt"),
            triggers=asked.get("triggers"),
            runner=asked.get("runner"),
            enabled=asked.get("enabled"),
        )
        answer = _described(management, may, changed)
    return tagged(answer)


@routes.delete(
    "/{automation}",
    operation_id="delete_automation",
    summary="Delete an automation",
    response_class=Response,
    status_code=204,
)
def delete_automation(
    automation: AutomationInPath, may: Managing, management: Operations, if_match: IfMatch
) -> Response:
    """It starts nothing any more. Its runs stay, and those under way go on."""
    with management.together(may):
        _must_still_be(automation, may, management, if_match)
        management.automations.delete(may, automation)
    return Response(status_code=204)


def _described(management: Management, may: MayView, automation: Automation) -> AutomationView:
    return AutomationView.of(automation, management.automations.warnings(may, automation))


def _must_still_be(automation: str, may: Managing, management: Operations, if_match: IfMatch) -> None:
    if if_match.is_given:
        if_match.must_hold(_described(management, may, management.automations.get(may, automation)))
