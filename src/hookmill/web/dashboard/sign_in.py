"""Signing in and out, and the links that let somebody choose a password."""

import asyncio
import threading
from collections import defaultdict
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hookmill.domain.errors import Invalid
from hookmill.domain.limits import SESSION_HOURS
from hookmill.domain.permission import Caller
from hookmill.domain.secret import SecretValue
from hookmill.web.dashboard.access import cookie_name, everybody, somebody
from hookmill.web.dashboard.door import Page
from hookmill.web.dashboard.visit import Visit

FREE_GUESSES: Final = 5
"""Wrong guesses at one account in a window that cost nothing but their time."""
DELAY_SECONDS_MAX: Final = 2.0
GUESSES_PER_CLIENT: Final = 30
"""Wrong guesses from one address in a window, at whichever account. Those who know their password are let in still."""
WINDOW_SECONDS: Final = 300
_REMEMBERED_MAX: Final = 10_000


class Guesses:
    """Wrong guesses of the last minutes, by whatever they are counted by. One process's own count."""

    def __init__(self) -> None:
        self._at: defaultdict[str, list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def count(self, by: str, now_us: int) -> int:
        with self._lock:
            recent = [at for at in self._at.get(by, ()) if at > now_us - WINDOW_SECONDS * 1_000_000]
            if not recent:
                self._at.pop(by, None)
            return len(recent)

    def add(self, by: str, now_us: int) -> None:
        with self._lock:
            if len(self._at) >= _REMEMBERED_MAX:
                self._at.clear()
            kept = self._at[by] = [at for at in self._at[by] if at > now_us - WINDOW_SECONDS * 1_000_000]
            kept.append(now_us)


_guesses: Final = Guesses()


def form(visit: Visit) -> Response:
    if visit.signed_in is not None:
        return visit.go()
    return visit.page("sign-in.html", email="", next=visit.query.get("next", ""), wrong=False)


async def sign_in(visit: Visit) -> Response:
    email, password = visit.form["email"], visit.form["password"]
    now = visit.service.now_us()
    account, client = f"account {email.strip().lower()[:200]}", f"client {visit.client}"
    # Nobody is locked out: a guess at an account under attack takes longer, and that is all.
    wrong_before = _guesses.count(account, now)
    if wrong_before >= FREE_GUESSES:
        await asyncio.sleep(min(DELAY_SECONDS_MAX, 0.1 * 2 ** (wrong_before - FREE_GUESSES)))
    signing_in = visit.management.sessions.sign_in
    token = await run_in_threadpool(signing_in, email, password, client=visit.client)
    if token is not None:
        return _welcome(visit, token, visit.form["next"])
    too_many = _guesses.count(client, now) >= GUESSES_PER_CLIENT
    _guesses.add(account, now)
    _guesses.add(client, now)
    answer = await run_in_threadpool(
        visit.page, "sign-in.html", status=429 if too_many else 401, email=email, next=visit.form["next"], wrong=True
    )
    if too_many:
        answer.headers["Retry-After"] = str(WINDOW_SECONDS)
    return answer


def sign_out(visit: Visit, _caller: Caller) -> Response:
    visit.management.sessions.sign_out(visit.session or "")
    answer = visit.go("sign-in", said="signed-out")
    answer.delete_cookie(cookie_name(visit.service.is_https), secure=visit.service.is_https, httponly=True)
    return answer


def welcome(visit: Visit) -> Response:
    target = visit.management.sessions.link_target(visit.parameters["token"])
    return visit.page("welcome.html", target=target, email=target.email or "", name=target.name or "", problem="")


def accept(visit: Visit) -> Response:
    token = visit.parameters["token"]
    target = visit.management.sessions.link_target(token)
    email, name = visit.form["email"], visit.form["name"]
    try:
        if visit.form["password"] != visit.form["again"]:
            raise Invalid("The two passwords are not the same. Type them again.")
        session = visit.management.sessions.accept_link(
            token, password=visit.form["password"], email=email, name=name, client=visit.client
        )
    except Invalid as error:
        return visit.page(
            "welcome.html", status=422, target=target, email=target.email or email, name=target.name or name,
            problem=str(error),
        )  # fmt: skip
    return _welcome(visit, session, "")


def _welcome(visit: Visit, session: SecretValue, wanted: str) -> Response:
    # Only a path of ours: "//host" and "/\host" are other sites.
    ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isascii() and wanted.isprintable()
    answer = visit.go()
    if ours:
        answer.headers["Location"] = wanted
    set_session(visit, answer, session)
    return answer


def set_session(visit: Visit, answer: Response, session: SecretValue) -> None:
    """Let the browser hold the session, out of reach of scripts and of other sites."""
    answer.set_cookie(
        cookie_name(visit.service.is_https),
        session.reveal(),
        max_age=SESSION_HOURS * 3600,
        path="/",
        secure=visit.service.is_https,
        httponly=True,
        samesite="lax",
    )


PAGES: Final = (
    Page("GET", "/sign-in", form, everybody),
    Page("POST", "/sign-in", sign_in, everybody),
    Page("POST", "/sign-out", sign_out, somebody),
    Page("GET", "/welcome/{token}", welcome, everybody),
    Page("POST", "/welcome/{token}", accept, everybody),
)
