"""The pages for signing in and out, and for links with which a member chooses a password."""

import asyncio
from typing import Final

from starlette.responses import PlainTextResponse, Response

from hookmill.domain.client import client_network
from hookmill.domain.errors import Invalid
from hookmill.domain.limits import SESSION_HOURS
from hookmill.domain.permission import Caller
from hookmill.domain.secret import SecretValue
from hookmill.management import LinkTarget
from hookmill.web.dashboard import sign_in_limits as limits
from hookmill.web.dashboard.access import any_member, anyone, cookie_name
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext

BUSY: Final = "Too many sign-ins are waiting. Your password was not verified. Go back and try again in a few seconds.\n"
BUSY_SECONDS: Final = 2
BROWSER_REMEMBERED_DAYS: Final = 365


def form(context: PageContext) -> Response:
    if context.signed_in is not None:
        return context.redirect()
    return context.page("sign-in.html", email="", next=context.query.get("next", ""), wrong=False)


async def sign_in(context: PageContext) -> Response:
    email = context.form["email"]
    account, client = email.strip().lower()[:200], client_network(context.client)
    queue, turn = context.service.sign_ins, client
    browser = context.management.sessions.known_browser_name(
        context.request.cookies.get(_browser_cookie(context), ""), email
    )
    if browser is not None:
        # Attempts of unknown clients don't slow down known browsers, which have their own queue and their own counts.
        # All browsers of one account count as one client, so that no account can fill the queue.
        queue, turn = context.service.known_browser_sign_ins, f"member {account}"
        account, client = f"{account} of {browser}", f"browser {browser}"
    try:
        async with queue.wait(account, turn):
            token = await _verified(context, queue, turn, (f"account {account}", f"client {client}"))
    except limits.TooManyWaiting:
        # Plain text, because rendering pages during an attack would be expensive.
        return PlainTextResponse(BUSY, 429, {"Retry-After": str(BUSY_SECONDS)})
    if token is not None:
        return await context.in_thread(_welcome, context, token, context.form["next"], email)
    if context.service.guesses.count(f"client {client}", context.service.now_us()) > limits.GUESSES_PER_ADDRESS:
        return await _refused(context, 429, limits.WINDOW_SECONDS)
    return await _refused(context, 401)


async def _verified(
    context: PageContext, queue: limits.SignInQueue, turn: str, counted: tuple[str, str]
) -> SecretValue | None:
    """A new session's token if the password is right, else None. Wrong guesses delay later ones, but lock nobody out.

    Guesses are counted by account and by client.
    """
    guesses, now = context.service.guesses, context.service.now_us()
    wrong_before = guesses.count(counted[0], now)
    # Counted before the verification. Otherwise simultaneous guesses would all get the same delay.
    for by in counted:
        guesses.add(by, now)
    if wrong_before >= limits.FREE_GUESSES:
        await asyncio.sleep(min(limits.DELAY_SECONDS_MAX, 0.1 * 2 ** (wrong_before - limits.FREE_GUESSES)))
    async with queue.verifying(turn):
        token = await context.in_thread(
            context.management.sessions.sign_in,
            context.form["email"],
            context.form["password"],
            client=context.client,
            limiter=queue.thread,
        )
    if token is not None:
        for by in counted:
            guesses.remove(by, now)
    return token


async def _refused(context: PageContext, status: int, retry_after: int | None = None) -> Response:
    answer = await context.in_thread(
        context.page, "sign-in.html", status=status, email=context.form["email"], next=context.form["next"], wrong=True
    )
    if retry_after is not None:
        answer.headers["Retry-After"] = str(retry_after)
    return answer


def sign_out(context: PageContext, _caller: Caller) -> Response:
    context.management.sessions.sign_out(context.session or "")
    answer = context.redirect("sign-in", flash="signed-out")
    answer.delete_cookie(cookie_name(context.service.is_https), secure=context.service.is_https, httponly=True)
    return answer


def welcome(context: PageContext) -> Response:
    target = context.management.sessions.link_target(context.parameters["token"])
    return context.page("welcome.html", target=target, email=target.email or "", name=target.name or "", problem="")


async def accept(context: PageContext) -> Response:
    # Only holders of a valid link may use the password hashing.
    target = await context.in_thread(context.management.sessions.link_target, context.parameters["token"])
    return await context.in_thread(_accept, context, target, limiter=context.service.hashing)


def _accept(context: PageContext, target: LinkTarget) -> Response:
    email, name = context.form["email"], context.form["name"]
    try:
        if context.form["password"] != context.form["again"]:
            raise Invalid("The passwords differ. Enter them again.")
        session = context.management.sessions.accept_link(
            context.parameters["token"],
            password=context.form["password"],
            email=email,
            name=name,
            client=context.client,
        )
    except Invalid as error:
        return context.page(
            "welcome.html", status=422, target=target, email=target.email or email, name=target.name or name,
            problem=str(error),
        )  # fmt: skip
    return _welcome(context, session, "", target.email or email)


def _welcome(context: PageContext, session: SecretValue, target_path: str, email: str) -> Response:
    # Only a path of this site: "//host" and "/\host" are other sites.
    is_local = target_path.startswith("/") and not target_path.startswith(("//", "/\\"))
    is_usable = is_local and target_path.isascii() and target_path.isprintable()
    answer = context.redirect()
    if is_usable:
        answer.headers["Location"] = target_path
    _set_cookie(
        context,
        answer,
        _browser_cookie(context),
        context.management.sessions.browser_token(email),
        BROWSER_REMEMBERED_DAYS * 86_400,
    )
    set_session(context, answer, session)
    return answer


def _browser_cookie(context: PageContext) -> str:
    return f"{cookie_name(context.service.is_https)}-browser"


def set_session(context: PageContext, answer: Response, session: SecretValue) -> None:
    """Set the session cookie, which scripts and other sites can't read."""
    _set_cookie(context, answer, cookie_name(context.service.is_https), session, SESSION_HOURS * 3600)


def _set_cookie(context: PageContext, answer: Response, name: str, value: SecretValue, seconds: int) -> None:
    answer.set_cookie(
        name,
        value.reveal(),
        max_age=seconds,
        path="/",
        secure=context.service.is_https,
        httponly=True,
        samesite="lax",
    )


PAGES: Final = (
    Page("GET", "/sign-in", form, anyone),
    Page("POST", "/sign-in", sign_in, anyone),
    Page("POST", "/sign-out", sign_out, any_member),
    Page("GET", "/welcome/{token}", welcome, anyone),
    Page("POST", "/welcome/{token}", accept, anyone),
)
