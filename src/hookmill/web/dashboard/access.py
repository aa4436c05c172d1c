"""The requirements of pages.

A requirement (`require_…`) returns the caller or the permission that the page's handler gets, or raises an exception.
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request

from hookmill.domain.errors import Forbidden
from hookmill.domain.permission import Caller, MayAdminister, MayManage, MayView
from hookmill.web.dashboard.page_context import PageContext, is_csrf_token_of

SECURE_COOKIE: Final = "__Host-hookmill"
PLAIN_COOKIE: Final = "hookmill"
"""The session cookie of a service without TLS, such as on localhost. Browsers reject secure cookies over HTTP."""


class NotSignedIn(Exception):
    """The page requires a signed-in member, but the request has no valid session."""


def require_nothing(_context: PageContext) -> None:
    """Require no sign-in. The pages reveal nothing about the installation."""


def require_member(context: PageContext) -> Caller:
    """Require a signed-in member. Raises `NotSignedIn`."""
    if context.signed_in is None:
        raise NotSignedIn
    return context.signed_in.caller


def require_viewer(context: PageContext) -> MayView:
    """Require the role viewer in the factory of the URL. The page of a manager gets a `MayManage`."""
    caller = require_member(context)
    may = context.management.access.permission_to_view(caller, context.parameters["factory"])
    context.factory = may.factory
    try:
        return context.management.access.permission_to_manage(caller, context.parameters["factory"])
    except Forbidden:
        return may


def require_manager(context: PageContext) -> MayManage:
    """Require the role manager in the factory of the URL."""
    may = context.management.access.permission_to_manage(require_member(context), context.parameters["factory"])
    context.factory = may.factory
    return may


def require_admin(context: PageContext) -> MayAdminister:
    """Require the role admin of the team."""
    return context.management.access.permission_to_administer(require_member(context))


def require_factory_admin(context: PageContext) -> MayManage:
    """Require the role admin of the team, for a page of the factory of the URL."""
    caller = require_member(context)
    context.management.access.permission_to_administer(caller)
    may = context.management.access.permission_to_manage(caller, context.parameters["factory"])
    context.factory = may.factory
    return may


Requirement = Callable[[PageContext], Any]
MINIMUM_ROLES: Final[dict[Requirement, str | None]] = {
    require_nothing: None,
    require_member: "any",
    require_viewer: "viewer",
    require_manager: "manager",
    require_admin: "admin",
    require_factory_admin: "admin",
}
"""All requirements, each with the lowest role that meets it. None: no sign-in is required; `any`: any member."""


def cookie_name(is_https: bool) -> str:
    return SECURE_COOKIE if is_https else PLAIN_COOKIE


def refuse_foreign_form(context: PageContext) -> None:
    """Raise `Forbidden` for a form of another site. Browsers send the origin in a header that no site can forge."""
    if not _is_same_origin(context.request):
        raise Forbidden(
            "This form was not sent from a page of this service, so nothing was changed. Open the page and submit it."
        )


def refuse_stale_form(context: PageContext) -> None:
    """Raise `Forbidden` for a form that was created for another session. Without a session, such as for signing in,
    nothing is checked."""
    if context.signed_in is None:
        return
    token = context.form["csrf"] or context.request.headers.get("x-csrf-token", "")
    if not is_csrf_token_of(context.session_token or "", token):
        raise Forbidden(
            "This form is older than your session. Nothing was changed. Reload the page and submit it again."
        )


def _is_same_origin(request: Request) -> bool:
    fetch_site = request.headers.get("sec-fetch-site")
    if fetch_site is not None:
        return fetch_site == "same-origin"
    origin = urlsplit(request.headers.get("origin", ""))
    return bool(origin.netloc) and origin.netloc == request.headers.get("host")
