"""One's own account: the password."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.permission import Caller
from hookmill.web.dashboard.access import somebody
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.sign_in import set_session
from hookmill.web.dashboard.visit import Visit


def form(visit: Visit, _caller: Caller) -> Response:
    return visit.page("account.html", problem="")


async def change(visit: Visit, _caller: Caller) -> Response:
    return await visit.in_thread(_change, visit, limiter=visit.service.hashing)


def _change(visit: Visit) -> Response:
    assert visit.signed_in is not None, "the page is for somebody"
    try:
        if visit.form["new"] != visit.form["again"]:
            raise Invalid("The two new passwords are not the same. Type them again.")
        session = visit.management.sessions.change_password(
            visit.signed_in, old=visit.form["old"], new=visit.form["new"], client=visit.client
        )
    except (Invalid, Conflict) as error:
        return visit.page("account.html", status=422, problem=str(error))
    answer = visit.go("account", said="password")
    set_session(visit, answer, session)
    return answer


PAGES: Final = (
    Page("GET", "/account", form, somebody),
    Page("POST", "/account", change, somebody),
)
