"""Who is looking, and may they? Every page asks for one of these, and gets the answer as a value."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request

from hookmill.domain.errors import Forbidden
from hookmill.domain.permission import Caller, MayAdminister, MayManage, MayView
from hookmill.web.dashboard.page_context import PageContext, is_csrf_of

SECURE_COOKIE: Final = "__Host-hookmill"
PLAIN_COOKIE: Final = "hookmill"
"""For a service that is reached without TLS, as on one's own machine: browsers keep no secure cookie from there."""


class Stranger(Exception):
    """Nobody is signed in, and the page is for those who are."""


class ForeignForm(Forbidden):
    """A form that did not come from a page of this service."""


class StaleForm(Forbidden):
    """A form from a page of this service that was not made for the session it is sent in."""


def everybody(_visit: PageContext) -> None:
    """There for all: it says nothing about this installation."""


def somebody(context: PageContext) -> Caller:
    """Whoever is signed in."""
    if context.signed_in is None:
        raise Stranger
    return context.signed_in.caller


def viewing(context: PageContext) -> MayView:
    """The role viewer in the factory that the address names. Who may change it gets that permission."""
    caller = somebody(context)
    viewing = context.management.access.may_view(caller, context.parameters["factory"])
    context.factory = viewing.factory
    try:
        return context.management.access.may_manage(caller, context.parameters["factory"])
    except Forbidden:
        return viewing


def managing(context: PageContext) -> MayManage:
    """The role manager in the factory that the address names."""
    may = context.management.access.may_manage(somebody(context), context.parameters["factory"])
    context.factory = may.factory
    return may


def administering(context: PageContext) -> MayAdminister:
    """The role admin, over the whole team."""
    return context.management.access.may_administer(somebody(context))


Requirement = Callable[[PageContext], Any]
REQUIREMENTS: Final[dict[Requirement, str | None]] = {
    everybody: None,
    somebody: "any",
    viewing: "viewer",
    managing: "manager",
    administering: "admin",
}
"""Every requirement, and the least role that meets it."""


def cookie_name(is_https: bool) -> str:
    return SECURE_COOKIE if is_https else PLAIN_COOKIE


def refuse_foreign_form(context: PageContext) -> None:
    """Raises `ForeignForm` unless a page of this service sent the form, and `StaleForm` unless it was made for whoever
    is signed in.

    Browsers say where a form comes from; a site that is not ours can't make them say otherwise.
    """
    if not _comes_from_here(context.request):
        raise ForeignForm("This form was not sent from a page of this service. Nothing was changed.")
    if context.signed_in is None:
        return
    token = context.form["csrf"] or context.request.headers.get("x-csrf-token", "")
    if not is_csrf_of(context.session or "", token):
        raise StaleForm(
            "This form is older than your session. Nothing was changed. Reload the page and submit it again."
        )


def _comes_from_here(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = urlsplit(request.headers.get("origin", ""))
    return bool(origin.netloc) and origin.netloc == request.headers.get("host")
