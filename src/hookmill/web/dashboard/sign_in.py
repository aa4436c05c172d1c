"""The pages for signing in with a password, for signing out, and for sign-in links.

`external_sign_in` has the pages for signing in with OpenID Connect.
"""

import asyncio
from typing import Final

from starlette.responses import PlainTextResponse, Response

from hookmill.domain.client import client_network
from hookmill.domain.errors import Forbidden, Invalid
from hookmill.domain.limits import SESSION_HOURS
from hookmill.domain.permission import Caller
from hookmill.domain.secret import SecretValue
from hookmill.management import KnownBrowser, LinkTarget
from hookmill.web.dashboard import sign_in_limits as limits
from hookmill.web.dashboard.access import cookie_name, require_member, require_nothing
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext

BUSY_TEXT: Final = (
    "Too many sign-ins are waiting, so yours was not processed. Go back and try again in a few seconds.\n"
)
BUSY_SECONDS: Final = 2
BROWSER_REMEMBERED_DAYS: Final = 365


def sign_in_form(context: PageContext) -> Response:
    if context.signed_in is not None:
        return context.redirect()
    return sign_in_page(context, next_path=context.query.get("next", ""))


def sign_in_page(
    context: PageContext, *, status: int = 200, problem: str = "", email: str = "", next_path: str = ""
) -> Response:
    """The page with the ways to sign in, and the reason why the last attempt failed."""
    return context.page("sign-in.html", status=status, problem=problem, email=email, next=next_path)


async def sign_in(context: PageContext) -> Response:
    config = context.management.config
    if not config.password_sign_in:
        assert config.external_sign_in is not None, "the settings require another way to sign in"
        raise Forbidden(
            f"Passwords are not accepted here. Sign in with {config.external_sign_in.provider_name}, or with a sign-in "
            "link from an admin."
        )
    email = context.form["email"]
    account, network = email.strip().lower()[:200], client_network(context.client)
    queue, queue_address = context.service.sign_in_queue, network
    account_key, client_key = f"account {account}", f"client {network}"
    browser = known_browser(context)
    if browser is not None and browser.account == email.strip().lower():
        # Known browsers have their own queue and their own counts, so attempts of unknown clients don't slow them down.
        # In this queue, all browsers of one account have the same address, so that no account can fill the queue.
        queue, queue_address = context.service.known_browser_queue, f"member {account}"
        account_key, client_key = f"account {account} of {browser.name}", f"client browser {browser.name}"
    try:
        async with queue.wait(account_key, queue_address):
            token = await _verify_password(context, queue, queue_address, (account_key, client_key))
    except limits.TooManyWaiting:
        # Plain text, because rendering pages during an attack would be expensive.
        return busy_response()
    if token is not None:
        return await context.in_thread(start_session, context, token, context.form["next"], email)
    if context.service.guess_counter.count(client_key, context.service.now_us()) > limits.GUESSES_PER_CLIENT:
        return await _failure_page(context, 429, limits.WINDOW_SECONDS)
    return await _failure_page(context, 401)


async def _verify_password(
    context: PageContext, queue: limits.SignInQueue, queue_address: str, guess_keys: tuple[str, str]
) -> SecretValue | None:
    """A new session's token if the password is right, else None. Wrong guesses delay later ones, but lock nobody out.

    `guess_keys`: the keys under which a guess is counted, of the account and of the client.
    """
    guess_counter, now = context.service.guess_counter, context.service.now_us()
    account_key, _ = guess_keys
    earlier_guesses = guess_counter.count(account_key, now)
    # The guess is counted before the verification. Otherwise simultaneous guesses would all get the same delay.
    for key in guess_keys:
        guess_counter.add(key, now)
    if earlier_guesses >= limits.FREE_GUESSES:
        await asyncio.sleep(min(limits.DELAY_SECONDS_MAX, 0.1 * 2 ** (earlier_guesses - limits.FREE_GUESSES)))
    async with queue.verifying(queue_address):
        token = await context.in_thread(
            context.management.sessions.sign_in,
            context.form["email"],
            context.form["password"],
            client=context.client,
            limiter=queue.thread,
        )
    if token is not None:
        for key in guess_keys:
            guess_counter.remove(key, now)
    return token


def busy_response() -> Response:
    return PlainTextResponse(BUSY_TEXT, 429, {"Retry-After": str(BUSY_SECONDS)})


async def _failure_page(context: PageContext, status: int, retry_after: int | None = None) -> Response:
    response = await context.in_thread(
        sign_in_page,
        context,
        status=status,
        problem="Wrong e-mail address or password.",
        email=context.form["email"],
        next_path=context.form["next"],
    )
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response


def sign_out(context: PageContext, _caller: Caller) -> Response:
    context.management.sessions.sign_out(context.session_token or "")
    response = context.redirect("sign-in", flash="signed-out")
    response.delete_cookie(cookie_name(context.service.is_https), secure=context.service.is_https, httponly=True)
    return response


def welcome(context: PageContext) -> Response:
    target = context.management.sessions.link_target(context.parameters["token"])
    return context.page("welcome.html", target=target, email=target.email or "", name=target.name or "", problem="")


async def accept_link(context: PageContext) -> Response:
    # Hashing a password is expensive, so an invalid link is rejected first.
    target = await context.in_thread(context.management.sessions.link_target, context.parameters["token"])
    return await context.in_thread(_accept_link, context, target, limiter=context.service.hashing_limiter)


def _accept_link(context: PageContext, target: LinkTarget) -> Response:
    email, name = context.form["email"], context.form["name"]
    try:
        if target.chooses_password and context.form["password"] != context.form["again"]:
            raise Invalid("The passwords differ. Enter them again.")
        session_token = context.management.sessions.accept_link(
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
    return start_session(context, session_token, "", target.email or email)


def start_session(context: PageContext, session_token: SecretValue, target_path: str, email: str) -> Response:
    """Set the cookies of a new session and of a known browser, and redirect to the target path.

    Redirects to the start page if the target path is not usable.
    """
    response = context.redirect()
    if is_usable_path(target_path):
        response.headers["Location"] = target_path
    set_cookie(
        context,
        response,
        _browser_cookie(context),
        context.management.sessions.browser_token(email),
        BROWSER_REMEMBERED_DAYS * 86_400,
    )
    set_session_cookie(context, response, session_token)
    return response


def is_usable_path(target_path: str) -> bool:
    """Whether a sign-in may redirect to this path. It must be a path of this site."""
    # "//host" and "/\\host" are other sites.
    is_local = target_path.startswith("/") and not target_path.startswith(("//", "/\\"))
    return is_local and target_path.isascii() and target_path.isprintable()


def known_browser(context: PageContext) -> KnownBrowser | None:
    """The browser of the request, if a member has signed in there before."""
    return context.management.sessions.known_browser(context.request.cookies.get(_browser_cookie(context), ""))


def _browser_cookie(context: PageContext) -> str:
    """The name of the cookie with the token of a known browser."""
    return f"{cookie_name(context.service.is_https)}-browser"


def set_session_cookie(context: PageContext, response: Response, session_token: SecretValue) -> None:
    """Set the cookie with the session's token."""
    set_cookie(context, response, cookie_name(context.service.is_https), session_token, SESSION_HOURS * 3600)


def set_cookie(context: PageContext, response: Response, name: str, value: SecretValue, seconds: int) -> None:
    """Set a cookie for this time, which scripts and other sites can't read."""
    response.set_cookie(
        name,
        value.reveal(),
        max_age=seconds,
        path="/",
        secure=context.service.is_https,
        httponly=True,
        samesite="lax",
    )


PAGES: Final = (
    Page("GET", "/sign-in", sign_in_form, require_nothing),
    Page("POST", "/sign-in", sign_in, require_nothing),
    Page("POST", "/sign-out", sign_out, require_member),
    Page("GET", "/welcome/{token}", welcome, require_nothing),
    Page("POST", "/welcome/{token}", accept_link, require_nothing),
)
