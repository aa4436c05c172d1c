"""The audit log: who changed what, when and from where. Of one factory, or of the whole team."""

from collections.abc import Sequence

from fastapi import APIRouter, Response

from hookmill.management import AuditEntry
from hookmill.presentation.audit import AuditEntryView
from hookmill.web.api.access import Administering, Managing, Operations
from hookmill.web.api.fields import LIMIT, Cursor, Limit
from hookmill.web.api.paging import Page, cut, key_at, key_cursor
from hookmill.web.api.representation import shown
from hookmill.web.api.route import Route

routes = APIRouter(route_class=Route, tags=["Audit log"])


class AuditPage(Page[AuditEntryView], frozen=True):
    """Acts of management, newest first."""


@routes.get(
    "/factories/{factory}/audit-log",
    operation_id="list_audit_log",
    summary="List what was changed in a factory",
    response_model=AuditPage,
)
def list_audit_log(may: Managing, management: Operations, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """Every act of management in this factory, newest first."""
    return _page(management.audit.of_factory(may, before=key_at(cursor), limit=limit + 1), limit)


@routes.get(
    "/audit-log",
    operation_id="list_team_audit_log",
    summary="List what was changed in the team",
    response_model=AuditPage,
)
def list_team_audit_log(
    may: Administering, management: Operations, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Every act of management in the team, whatever factory it concerns, newest first."""
    return _page(management.audit.of_team(may, before=key_at(cursor), limit=limit + 1), limit)


def _page(found: Sequence[AuditEntry], limit: int) -> Response:
    items, further = cut(found, lambda entry: key_cursor(entry.key), limit=limit)
    return shown(AuditPage(items=[AuditEntryView.of(entry) for entry in items], next_cursor=further))
