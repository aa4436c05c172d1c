"""Signing in and out, and the links that let somebody choose a password."""

import asyncio
from typing import Final

from starlette.responses import PlainTextResponse, Response

from hookmill.domain.client import one_client
from hookmill.domain.errors import Invalid
from hookmill.domain.limits import SESSION_HOURS
from hookmill.domain.permission import Caller
from hookmill.domain.secret import SecretValue
from hookmill.management import LinkTarget
from hookmill.web.dashboard import sign_in_limits as limits
from hookmill.web.dashboard.access import cookie_name, everybody, somebody
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.visit import Visit

BUSY: Final = "Too many sign-ins are waiting. Your password was not checked. Go back and try again in a few seconds.\n"
BUSY_SECONDS: Final = 2
BROWSER_REMEMBERED_DAYS: Final = 365


def form(visit: Visit) -> Response:
    if visit.signed_in is not None:
        return visit.go()
    return visit.page("sign-in.html", email="", next=visit.query.get("next", ""), wrong=False)


async def sign_in(visit: Visit) -> Response:
    email = visit.form["email"]
    account, client = email.strip().lower()[:200], one_client(visit.client)
    line, turn = visit.service.sign_ins, client
    known = visit.management.sessions.known_browser(visit.request.cookies.get(_browser_cookie(visit), ""), email)
    if known is not None:
        # What unknown clients do to this account, or from this address, slows it down no more than their own.
        # All browsers of one account take turns as one client: no account may fill the line of the others.
        line, turn = visit.service.known_sign_ins, f"member {account}"
        account, client = f"{account} of {known}", f"browser {known}"
    try:
        async with line.wait(account, turn):
            token = await _verified(visit, line, turn, (f"account {account}", f"client {client}"))
    except limits.TooManyWaiting:
        # No page: while many guess, most are answered here.
        return PlainTextResponse(BUSY, 429, {"Retry-After": str(BUSY_SECONDS)})
    if token is not None:
        return await visit.in_thread(_welcome, visit, token, visit.form["next"], email)
    if visit.service.guesses.count(f"client {client}", visit.service.now_us()) > limits.GUESSES_PER_ADDRESS:
        return await _refused(visit, 429, limits.WINDOW_SECONDS)
    return await _refused(visit, 401)


async def _verified(visit: Visit, line: limits.SignInLine, turn: str, counted: tuple[str, str]) -> SecretValue | None:
    """A new session, if the password is right. A wrong one makes the next guess take longer, and locks nobody out.

    Guesses are counted by account and by client.
    """
    guesses, now = visit.service.guesses, visit.service.now_us()
    wrong_before = guesses.count(counted[0], now)
    # Counted before it is verified: guesses that come at the same time would else all find the same count.
    for by in counted:
        guesses.add(by, now)
    if wrong_before >= limits.FREE_GUESSES:
        await asyncio.sleep(min(limits.DELAY_SECONDS_MAX, 0.1 * 2 ** (wrong_before - limits.FREE_GUESSES)))
    async with line.verifying(turn):
        token = await visit.in_thread(
            visit.management.sessions.sign_in,
            visit.form["email"],
            visit.form["password"],
            client=visit.client,
            limiter=line.thread,
        )
    if token is not None:
        for by in counted:
            guesses.take_back(by, now)
    return token


async def _refused(visit: Visit, status: int, retry_after: int | None = None) -> Response:
    answer = await visit.in_thread(
        visit.page, "sign-in.html", status=status, email=visit.form["email"], next=visit.form["next"], wrong=True
    )
    if retry_after is not None:
        answer.headers["Retry-After"] = str(retry_after)
    return answer


def sign_out(visit: Visit, _caller: Caller) -> Response:
    visit.management.sessions.sign_out(visit.session or "")
    answer = visit.go("sign-in", said="signed-out")
    answer.delete_cookie(cookie_name(visit.service.is_https), secure=visit.service.is_https, httponly=True)
    return answer


def welcome(visit: Visit) -> Response:
    target = visit.management.sessions.link_target(visit.parameters["token"])
    return visit.page("welcome.html", target=target, email=target.email or "", name=target.name or "", problem="")


async def accept(visit: Visit) -> Response:
    # Only who bears a link that is good comes as far as to where passwords are hashed.
    target = await visit.in_thread(visit.management.sessions.link_target, visit.parameters["token"])
    return await visit.in_thread(_accept, visit, target, limiter=visit.service.hashing)


def _accept(visit: Visit, target: LinkTarget) -> Response:
    email, name = visit.form["email"], visit.form["name"]
    try:
        if visit.form["password"] != visit.form["again"]:
            raise Invalid("The two passwords are not the same. Type them again.")
        session = visit.management.sessions.accept_link(
            visit.parameters["token"], password=visit.form["password"], email=email, name=name, client=visit.client
        )
    except Invalid as error:
        return visit.page(
            "welcome.html", status=422, target=target, email=target.email or email, name=target.name or name,
            problem=str(error),
        )  # fmt: skip
    return _welcome(visit, session, "", target.email or email)


def _welcome(visit: Visit, session: SecretValue, wanted: str, email: str) -> Response:
    # Only a path of ours: "//host" and "/\host" are other sites.
    ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isascii() and wanted.isprintable()
    answer = visit.go()
    if ours:
        answer.headers["Location"] = wanted
    _set_cookie(
        visit,
        answer,
        _browser_cookie(visit),
        visit.management.sessions.remember_browser(email),
        BROWSER_REMEMBERED_DAYS * 86_400,
    )
    set_session(visit, answer, session)
    return answer


def _browser_cookie(visit: Visit) -> str:
    return f"{cookie_name(visit.service.is_https)}-browser"


def set_session(visit: Visit, answer: Response, session: SecretValue) -> None:
    """Let the browser hold the session, out of reach of scripts and of other sites."""
    _set_cookie(visit, answer, cookie_name(visit.service.is_https), session, SESSION_HOURS * 3600)


def _set_cookie(visit: Visit, answer: Response, name: str, value: SecretValue, seconds: int) -> None:
    answer.set_cookie(
        name,
        value.reveal(),
        max_age=seconds,
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
