"""The requirements of pages: each returns the permission of the caller, or raises an exception."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request

from hookmill.domain.errors import Forbidden
from hookmill.domain.permission import Caller, MayAdminister, MayManage, MayView
from hookmill.web.dashboard.page_context import PageContext, is_csrf_token_of

SECURE_COOKIE: Final = "__Host-hookmill"
PLAIN_COOKIE: Final = "hookmill"
"""For a service without TLS, such as on localhost: browsers reject secure cookies over HTTP."""


class NotSignedIn(Exception):
    """The page requires a signed-in member, and the request has no valid session."""


class ForeignForm(Forbidden):
    """The form was not sent from a page of this service."""


class StaleForm(Forbidden):
    """The form was sent from a page of this service, but was created for another session."""


def anyone(_context: PageContext) -> None:
    """No requirement. Such pages reveal nothing about the installation."""


def any_member(context: PageContext) -> Caller:
    """The signed-in member. Raises `NotSignedIn`."""
    if context.signed_in is None:
        raise NotSignedIn
    return context.signed_in.caller


def viewing(context: PageContext) -> MayView:
    """The role viewer in the factory of the URL. Managers get a `MayManage`."""
    caller = any_member(context)
    may = context.management.access.permission_to_view(caller, context.parameters["factory"])
    context.factory = may.factory
    try:
        return context.management.access.permission_to_manage(caller, context.parameters["factory"])
    except Forbidden:
        return may


def managing(context: PageContext) -> MayManage:
    """The role manager in the factory of the URL."""
    may = context.management.access.permission_to_manage(any_member(context), context.parameters["factory"])
    context.factory = may.factory
    return may


def administering(context: PageContext) -> MayAdminister:
    """The role admin in the team."""
    return context.management.access.permission_to_administer(any_member(context))


Requirement = Callable[[PageContext], Any]
REQUIREMENTS: Final[dict[Requirement, str | None]] = {
    anyone: None,
    any_member: "any",
    viewing: "viewer",
    managing: "manager",
    administering: "admin",
}
"""All requirements, with the lowest role that meets each."""


def cookie_name(is_https: bool) -> str:
    return SECURE_COOKIE if is_https else PLAIN_COOKIE


def refuse_foreign_form(context: PageContext) -> None:
    """Raises `ForeignForm` for a form of another site, and `StaleForm` for a form of another session.

    Browsers send the origin of a form in a header, which another site can't forge.
    """
    if not _is_same_origin(context.request):
        raise ForeignForm("This form was not sent from a page of this service. Nothing was changed.")
    if context.signed_in is None:
        return
    token = context.form["csrf"] or context.request.headers.get("x-csrf-token", "")
    if not is_csrf_token_of(context.session or "", token):
        raise StaleForm(
            "This form is older than your session. Nothing was changed. Reload the page and submit it again."
        )


def _is_same_origin(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = urlsplit(request.headers.get("origin", ""))
    return bool(origin.netloc) and origin.netloc == request.headers.get("host")
