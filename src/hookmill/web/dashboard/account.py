"""The member's own account: changing the password."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.permission import Caller
from hookmill.web.dashboard.access import require_member
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.sign_in import set_session_cookie


def password_form(context: PageContext, _caller: Caller) -> Response:
    return context.page("account.html", problem="")


async def change_password(context: PageContext, _caller: Caller) -> Response:
    return await context.in_thread(_change_password, context, limiter=context.service.hashing_limiter)


def _change_password(context: PageContext) -> Response:
    assert context.signed_in is not None, "the page requires a member"
    try:
        if context.form["new"] != context.form["again"]:
            raise Invalid("The new passwords differ. Enter them again.")
        session_token = context.management.sessions.change_password(
            context.signed_in, old=context.form["old"], new=context.form["new"], client=context.client
        )
    except (Invalid, Conflict) as error:
        return context.page("account.html", status=422, problem=str(error))
    response = context.redirect("account", flash="password")
    set_session_cookie(context, response, session_token)
    return response


PAGES: Final = (
    Page("GET", "/account", password_form, require_member),
    Page("POST", "/account", change_password, require_member),
)
