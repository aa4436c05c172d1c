"""/factories/{factory}/alarms, and /alarms for the installation: what the service reports by itself."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from hookmill.domain.alarm import Alarm
from hookmill.management import Management
from hookmill.presentation.alarm import AlarmView
from hookmill.web.api.access import AdminAccess, ManagementDependency, ManagerAccess, ViewerAccess
from hookmill.web.api.bodies import AlarmSnooze
from hookmill.web.api.fields import PAGE_SIZE, AlarmInPath, Cursor, InstallationAlarmInPath, Limit
from hookmill.web.api.paging import ResultPage, cut_page, key_cursor, key_from
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(route_class=Route, tags=["Alarms"])
_FACTORY = "/factories/{factory}/alarms"
IsOpen = Annotated[
    bool | None,
    Query(alias="open", description="Only open alarms, including snoozed ones; if false, only resolved ones."),
]


class AlarmPage(ResultPage[AlarmView], frozen=True):
    """Alarms, newest first."""


@routes.get(_FACTORY, operation_id="list_alarms", summary="List a factory's alarms", response_model=AlarmPage)
def list_alarms(
    permission: ViewerAccess,
    management: ManagementDependency,
    is_open: IsOpen = None,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> Response:
    """Lists the alarms about the factory's webhooks and automations, newest first."""
    before = key_from(cursor)
    page = management.alarms.newest(permission, is_open=is_open, before=before, limit=limit + 1)
    return _page(management, page, limit)


@routes.get(
    f"{_FACTORY}/{{alarm}}", operation_id="show_alarm", summary="Show a factory's alarm", response_model=AlarmView
)
def show_alarm(alarm: AlarmInPath, permission: ViewerAccess, management: ManagementDependency) -> Response:
    """Returns an alarm about a webhook or an automation."""
    return _response(management, management.alarms.get(permission, alarm))


@routes.post(
    f"{_FACTORY}/{{alarm}}/snooze",
    operation_id="snooze_alarm",
    summary="Snooze a factory's alarm",
    response_model=AlarmView,
)
def snooze_alarm(
    alarm: AlarmInPath, permission: ManagerAccess, management: ManagementDependency, body: AlarmSnooze
) -> Response:
    """Sends no notices of an open alarm for some hours, or until a time.

    The snooze also applies to the next alarms of this kind about the same subject.
    """
    return _response(management, management.alarms.snooze(permission, alarm, hours=body.hours, until=body.until))


@routes.post(
    f"{_FACTORY}/{{alarm}}/wake", operation_id="wake_alarm", summary="Wake a factory's alarm", response_model=AlarmView
)
def wake_alarm(alarm: AlarmInPath, permission: ManagerAccess, management: ManagementDependency) -> Response:
    """Ends the snooze of an open alarm."""
    return _response(management, management.alarms.wake(permission, alarm))


@routes.get(
    "/alarms",
    operation_id="list_installation_alarms",
    summary="List the installation's alarms",
    response_model=AlarmPage,
)
def list_installation_alarms(
    permission: AdminAccess,
    management: ManagementDependency,
    is_open: IsOpen = None,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> Response:
    """Lists the alarms about disks, clocks and the certificate, newest first."""
    before = key_from(cursor)
    page = management.alarms.newest(permission, is_open=is_open, before=before, limit=limit + 1)
    return _page(management, page, limit)


@routes.get(
    "/alarms/{installation_alarm}",
    operation_id="show_installation_alarm",
    summary="Show an alarm of the installation",
    response_model=AlarmView,
)
def show_installation_alarm(
    installation_alarm: InstallationAlarmInPath, permission: AdminAccess, management: ManagementDependency
) -> Response:
    """Returns an alarm about a disk, a clock or the certificate."""
    return _response(management, management.alarms.get(permission, installation_alarm))


@routes.post(
    "/alarms/{installation_alarm}/snooze",
    operation_id="snooze_installation_alarm",
    summary="Snooze an alarm of the installation",
    response_model=AlarmView,
)
def snooze_installation_alarm(
    installation_alarm: InstallationAlarmInPath,
    permission: AdminAccess,
    management: ManagementDependency,
    body: AlarmSnooze,
) -> Response:
    """Sends no notices of an open alarm for some hours, or until a time."""
    return _response(
        management, management.alarms.snooze(permission, installation_alarm, hours=body.hours, until=body.until)
    )


@routes.post(
    "/alarms/{installation_alarm}/wake",
    operation_id="wake_installation_alarm",
    summary="Wake an alarm of the installation",
    response_model=AlarmView,
)
def wake_installation_alarm(
    installation_alarm: InstallationAlarmInPath, permission: AdminAccess, management: ManagementDependency
) -> Response:
    """Ends the snooze of an open alarm."""
    return _response(management, management.alarms.wake(permission, installation_alarm))


def _page(management: Management, alarms: Sequence[Alarm], limit: int) -> Response:
    now = management.alarms.now()
    items, next_cursor = cut_page(alarms, lambda alarm: key_cursor(alarm.key), limit=limit)
    return json_response(AlarmPage(items=[AlarmView.of(alarm, now) for alarm in items], next_cursor=next_cursor))


def _response(management: Management, alarm: Alarm) -> Response:
    return json_response(AlarmView.of(alarm, management.alarms.now()))
