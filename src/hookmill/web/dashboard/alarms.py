"""The pages of alarms, of a factory and of the installation: open alarms first, then those that are resolved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from hookmill.domain import ids
from hookmill.domain.alarm import Alarm, AlarmScope
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.permission import MayAdminister, MayManage, MayView
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import require_admin, require_manager, require_viewer
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.urls import url

PAGE_SIZE: Final = 50
OPEN_SHOWN: Final = 200
"""How many open alarms the page shows."""
SNOOZE_HOURS: Final = {1: "1 hour", 8: "8 hours", 24: "1 day", 72: "3 days", 168: "1 week"}
"""The choices of the form, by hours."""

pages.FLASH_MESSAGES.update(
    {
        "alarm-snoozed": "Alarm snoozed. It sends no messages until the snooze ends.",
        "alarm-woken": "Snooze ended.",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRow:
    """An alarm, prepared for the template."""

    alarm: Alarm
    page_url: str
    subject_url: str | None
    """The page of the webhook or automation; None for a part of the installation."""


def list_page(context: PageContext, may: MayView | MayAdminister) -> Response:
    alarms, before_id = context.management.alarms, context.query.get("before", "")
    before = ids.alarm_key(before_id) if before_id else None
    resolved = alarms.newest(may, is_open=False, before=before, limit=PAGE_SIZE + 1)
    shown_resolved = resolved[:PAGE_SIZE]
    path = _path(may)
    return context.page(
        "alarms.html",
        may=may,
        open_rows=_rows(may, alarms.newest(may, is_open=True, limit=OPEN_SHOWN)) if before is None else [],
        resolved_rows=_rows(may, shown_resolved),
        newest_url=url(*path) if before is not None else None,
        destinations_url=_destinations_url(context, may),
        older_url=url(*path, before=ids.alarm_id(shown_resolved[-1].key)) if len(resolved) > PAGE_SIZE else None,
    )


def show(context: PageContext, may: MayView | MayAdminister) -> Response:
    return _alarm_page(context, may, context.management.alarms.get(may, _alarm_id(context)))


def _alarm_id(context: PageContext) -> str:
    parameters = context.parameters
    return parameters["alarm"] if "alarm" in parameters else parameters["installation_alarm"]


def _alarm_page(context: PageContext, may: MayView | MayAdminister, alarm: Alarm, *, problem: str = "") -> Response:
    [row] = _rows(may, [alarm])
    return context.page(
        "alarm.html",
        status=422 if problem else 200,
        row=row,
        list_url=url(*_path(may)),
        snooze_hours=SNOOZE_HOURS,
        may_snooze=isinstance(may, MayManage | MayAdminister) and alarm.resolved_at is None,
        problem=problem,
    )


def snooze(context: PageContext, may: MayManage | MayAdminister) -> Response:
    alarm_id, hours = _alarm_id(context), context.form["hours"]
    try:
        # The text may have any length.
        chosen_hours = next((choice for choice in SNOOZE_HOURS if str(choice) == hours), 0)
        context.management.alarms.snooze(may, alarm_id, hours=chosen_hours)
    except (Invalid, Conflict) as error:
        return _alarm_page(context, may, context.management.alarms.get(may, alarm_id), problem=str(error))
    return context.redirect(*_path(may), alarm_id, flash="alarm-snoozed")


def wake(context: PageContext, may: MayManage | MayAdminister) -> Response:
    alarm_id = _alarm_id(context)
    try:
        context.management.alarms.wake(may, alarm_id)
    except Conflict as error:
        return _alarm_page(context, may, context.management.alarms.get(may, alarm_id), problem=str(error))
    return context.redirect(*_path(may), alarm_id, flash="alarm-woken")


def _path(may: MayView | MayAdminister) -> tuple[str, ...]:
    """The path of the list."""
    return ("f", may.factory.name, "alarms") if isinstance(may, MayView) else ("team", "alarms")


def _destinations_url(context: PageContext, may: MayView | MayAdminister) -> str | None:
    """The page of alarm destinations; None if the member may not see it."""
    if not isinstance(may, MayView):
        return url("team", "alarm-destinations")
    signed_in = context.signed_in
    is_admin = signed_in is not None and signed_in.caller.is_admin
    return url("f", may.factory.name, "alarm-destinations") if is_admin else None


def _rows(may: MayView | MayAdminister, alarms: Sequence[Alarm]) -> list[AlarmRow]:
    return [
        AlarmRow(alarm=alarm, page_url=url(*_path(may), ids.alarm_id(alarm.key)), subject_url=_subject_url(may, alarm))
        for alarm in alarms
    ]


def _subject_url(may: MayView | MayAdminister, alarm: Alarm) -> str | None:
    if not isinstance(may, MayView):
        return None
    part = "webhooks" if alarm.rule.scope is AlarmScope.WEBHOOK else "automations"
    return url("f", may.factory.name, part, alarm.subject.id)


PAGES: Final[Sequence[Page]] = (
    Page("GET", "/f/{factory}/alarms", list_page, require_viewer),
    Page("GET", "/f/{factory}/alarms/{alarm}", show, require_viewer),
    Page("POST", "/f/{factory}/alarms/{alarm}/snooze", snooze, require_manager),
    Page("POST", "/f/{factory}/alarms/{alarm}/wake", wake, require_manager),
    Page("GET", "/team/alarms", list_page, require_admin),
    Page("GET", "/team/alarms/{installation_alarm}", show, require_admin),
    Page("POST", "/team/alarms/{installation_alarm}/snooze", snooze, require_admin),
    Page("POST", "/team/alarms/{installation_alarm}/wake", wake, require_admin),
)
