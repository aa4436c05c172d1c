"""The audit log, of one factory or of the whole team: who changed what, when, and through which channel."""

from collections.abc import Sequence

from fastapi import APIRouter, Response

from hookmill.management import AuditEntry
from hookmill.presentation.audit import AuditEntryView
from hookmill.web.api.access import AdminAccess, ManagementDependency, ManagerAccess
from hookmill.web.api.fields import PAGE_SIZE, Cursor, Limit
from hookmill.web.api.paging import ResultPage, cut_page, key_cursor, key_from
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(route_class=Route, tags=["Audit log"])


class AuditPage(ResultPage[AuditEntryView], frozen=True):
    """Entries of the audit log, newest first."""


@routes.get(
    "/factories/{factory}/audit-log",
    operation_id="list_audit_log",
    summary="List a factory's audit log",
    response_model=AuditPage,
)
def list_audit_log(
    permission: ManagerAccess, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Lists every change in this factory, newest first."""
    return _page(management.audit.of_factory(permission, before=key_from(cursor), limit=limit + 1), limit)


@routes.get(
    "/audit-log",
    operation_id="list_team_audit_log",
    summary="List the team's audit log",
    response_model=AuditPage,
)
def list_team_audit_log(
    permission: AdminAccess, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Lists every change in the team and in all its factories, newest first."""
    return _page(management.audit.of_team(permission, before=key_from(cursor), limit=limit + 1), limit)


def _page(entries: Sequence[AuditEntry], limit: int) -> Response:
    items, next_cursor = cut_page(entries, lambda entry: key_cursor(entry.key), limit=limit)
    return json_response(AuditPage(items=[AuditEntryView.of(entry) for entry in items], next_cursor=next_cursor))
