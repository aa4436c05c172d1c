"""/factories/{factory}/alarms, and /alarms for the installation: problems that the service detects by itself."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from hookmill.domain.alarm import Alarm
from hookmill.domain.permission import MayAdminister, MayManage, MayView
from hookmill.management import Management
from hookmill.presentation.alarm import AlarmView
from hookmill.web.api.access import ManagementDependency
from hookmill.web.api.alarm_owners import FACTORY, INSTALLATION, AlarmOwner
from hookmill.web.api.bodies import AlarmSnooze
from hookmill.web.api.fields import PAGE_SIZE, Cursor, Limit
from hookmill.web.api.paging import ResultPage, cut_page, key_cursor, key_from
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(route_class=Route, tags=["Alarms"])
IsOpen = Annotated[
    bool | None,
    Query(alias="open", description="Only open alarms, including snoozed ones; if false, only resolved ones."),
]


class AlarmPage(ResultPage[AlarmView], frozen=True):
    """Alarms, newest first."""


def _add_routes(owner: AlarmOwner) -> None:
    """Add the routes for the alarms of one owner."""
    list_path = f"{owner.path}/alarms"
    parameter = f"{owner.prefix}alarm"
    alarm_path = f"{list_path}/{{{parameter}}}"
    alarm_in_path = Path(
        alias=parameter,
        pattern=r"^alm_[0-9a-f]{32}$",
        description=f"The id of an alarm of {owner.name}.",
        examples=["alm_0192f0c1aabbccddeeff001122334455"],
    )

    @routes.get(
        list_path,
        operation_id=f"list_{owner.prefix}alarms",
        summary=f"List the alarms of {owner.name}",
        description=f"Lists the alarms about {owner.subjects}, newest first.",
        response_model=AlarmPage,
    )
    def list_alarms(
        permission: Annotated[MayView | MayAdminister, Depends(owner.view)],
        management: ManagementDependency,
        is_open: IsOpen = None,
        limit: Limit = PAGE_SIZE,
        cursor: Cursor = None,
    ) -> Response:
        before = key_from(cursor)
        page = management.alarms.newest(permission, is_open=is_open, before=before, limit=limit + 1)
        return _page(management, page, limit)

    @routes.get(
        alarm_path,
        operation_id=f"show_{owner.prefix}alarm",
        summary=f"Show an alarm of {owner.name}",
        description=f"Returns one alarm about {owner.subjects}.",
        response_model=AlarmView,
    )
    def show_alarm(
        alarm: Annotated[str, alarm_in_path],
        permission: Annotated[MayView | MayAdminister, Depends(owner.view)],
        management: ManagementDependency,
    ) -> Response:
        return _response(management, management.alarms.get(permission, alarm))

    @routes.post(
        f"{alarm_path}/snooze",
        operation_id=f"snooze_{owner.prefix}alarm",
        summary=f"Snooze an alarm of {owner.name}",
        description="Sends no messages about an open alarm for some hours, or until a time.\n\n"
        "The snooze also applies to the next alarms of this kind about the same subject.",
        response_model=AlarmView,
    )
    def snooze_alarm(
        alarm: Annotated[str, alarm_in_path],
        permission: Annotated[MayManage | MayAdminister, Depends(owner.manage)],
        management: ManagementDependency,
        body: AlarmSnooze,
    ) -> Response:
        return _response(management, management.alarms.snooze(permission, alarm, hours=body.hours, until=body.until))

    @routes.post(
        f"{alarm_path}/wake",
        operation_id=f"wake_{owner.prefix}alarm",
        summary=f"Wake an alarm of {owner.name}",
        description="Ends the snooze of an open alarm.",
        response_model=AlarmView,
    )
    def wake_alarm(
        alarm: Annotated[str, alarm_in_path],
        permission: Annotated[MayManage | MayAdminister, Depends(owner.manage)],
        management: ManagementDependency,
    ) -> Response:
        return _response(management, management.alarms.wake(permission, alarm))


def _page(management: Management, alarms: Sequence[Alarm], limit: int) -> Response:
    now = management.alarms.now()
    items, next_cursor = cut_page(alarms, lambda alarm: key_cursor(alarm.key), limit=limit)
    return json_response(AlarmPage(items=[AlarmView.of(alarm, now) for alarm in items], next_cursor=next_cursor))


def _response(management: Management, alarm: Alarm) -> Response:
    return json_response(AlarmView.of(alarm, management.alarms.now()))


for _owner in (FACTORY, INSTALLATION):
    _add_routes(_owner)
