"""The member's own account: changing the password."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.permission import Caller
from hookmill.web.dashboard.access import any_member
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.sign_in import set_session


def form(context: PageContext, _caller: Caller) -> Response:
    return context.page("account.html", problem="")


async def change(context: PageContext, _caller: Caller) -> Response:
    return await context.in_thread(_change, context, limiter=context.service.hashing)


def _change(context: PageContext) -> Response:
    assert context.signed_in is not None, "the page requires a member"
    try:
        if context.form["new"] != context.form["again"]:
            raise Invalid("The new passwords differ. Enter them again.")
        session = context.management.sessions.change_password(
            context.signed_in, old=context.form["old"], new=context.form["new"], client=context.client
        )
    except (Invalid, Conflict) as error:
        return context.page("account.html", status=422, problem=str(error))
    answer = context.redirect("account", flash="password")
    set_session(context, answer, session)
    return answer


PAGES: Final = (
    Page("GET", "/account", form, any_member),
    Page("POST", "/account", change, any_member),
)
