"""The pages for signing in with OpenID Connect, and for connecting a member to an identity at the provider.

A browser goes to the provider, and returns to the callback with a code. A sealed cookie binds this answer to the
browser, so that nobody can sign another person's browser in.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, RedirectResponse, Response

from hookmill.domain.client import client_network
from hookmill.domain.errors import (
    Conflict,
    Forbidden,
    HookmillError,
    Invalid,
    NotFound,
    ProviderUnavailable,
    SignInRefused,
)
from hookmill.domain.external_identity import ExternalIdentity, ExternalSignIn, SignInAttempt
from hookmill.domain.finding import listed
from hookmill.domain.secret import SecretValue
from hookmill.management import ExternalSession
from hookmill.management.external_sign_ins import ATTEMPT_SECONDS, PersonRefused
from hookmill.web.dashboard import sign_in_limits as limits
from hookmill.web.dashboard.access import cookie_name, require_nothing
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.sign_in import (
    busy_response,
    is_usable_path,
    known_browser,
    set_cookie,
    sign_in_page,
    start_session,
)

if TYPE_CHECKING:
    from hookmill.oidc.provider import Provider

NEXT_CHARACTERS_MAX: Final = 1_000
"""A longer target path is dropped, because browsers limit the size of a cookie."""
PROVIDER_RETRY_SECONDS: Final = 5
SHOWN_CHARACTERS_MAX: Final = 100
"""How much of a group's name is logged."""
TOO_MANY_FAILURES_TEXT: Final = (
    f"Too many of your sign-ins failed. Wait {limits.WINDOW_SECONDS // 60} minutes, and sign in again.\n"
)
_LOG_COMPONENT: Final = "sign-in"


async def start(context: PageContext) -> Response:
    """Send the browser to the provider.

    This is a GET request, because the content security policy forbids redirects of forms to other sites. It changes
    nothing: another site that sends a browser here can only sign the browser's own user in.
    """
    if context.signed_in is not None:
        return context.redirect()
    next_path = context.query.get("next", "")
    is_kept = is_usable_path(next_path) and len(next_path) <= NEXT_CHARACTERS_MAX
    provider, rules = _provider(context)
    attempt, cookie = context.management.external_sign_ins.start(next_path=next_path if is_kept else "")
    try:
        async with _queue(context).place(_address(context)):
            provider_url = await provider.authorization_url(attempt)
    except limits.TooManyWaiting:
        return busy_response()
    except ProviderUnavailable as error:
        return await _unavailable_page(context, rules, error, attempt)
    response = RedirectResponse(provider_url, 303)
    _set_attempt_cookie(context, response, cookie)
    return response


async def connect(context: PageContext) -> Response:
    """Show a page that sends the browser to the provider, to connect the member of a sign-in link.

    The form of another site is refused before, so nobody can connect the identity of another browser's user.
    """
    token = context.parameters["token"]
    provider, rules = _provider(context)
    target = await context.in_thread(context.management.sessions.link_target, token)
    if not target.can_connect:
        raise Conflict("This link can't connect an account. Open the link again.")
    attempt, cookie = context.management.external_sign_ins.start(link_token=token)
    try:
        async with _queue(context).place(_address(context)):
            provider_url = await provider.authorization_url(attempt)
    except limits.TooManyWaiting:
        return busy_response()
    except ProviderUnavailable as error:
        return await _unavailable_page(context, rules, error, attempt)
    response = await context.in_thread(context.page, "sign-in-continue.html", provider_url=provider_url, rules=rules)
    _set_attempt_cookie(context, response, cookie)
    return response


async def finish(context: PageContext) -> Response:
    """Sign the member in whom the provider's answer is about."""
    provider, rules = _provider(context)
    service = context.service
    if service.guess_counter.count(_failure_key(context), service.now_us()) >= limits.GUESSES_PER_CLIENT:
        # Before the attempt is used, and without a request to the provider.
        return PlainTextResponse(TOO_MANY_FAILURES_TEXT, 429, {"Retry-After": str(limits.WINDOW_SECONDS)})
    try:
        answer = _answer(context)
        attempt = context.management.external_sign_ins.use_attempt(
            context.request.cookies.get(_attempt_cookie(context), ""), answer.get("state", "")
        )
    except Invalid as error:
        # The sign-in may have been completed in another tab.
        return context.redirect() if context.signed_in is not None else await _problem_page(context, 400, error)
    try:
        session = await _session(context, provider, attempt, answer)
    except limits.TooManyWaiting:
        return busy_response()
    except ProviderUnavailable as error:
        return await _unavailable_page(context, rules, error, attempt)
    except SignInRefused as error:
        if error.is_suspicious:
            service.report_failure(_LOG_COMPONENT, error)
        return await _problem_page(context, 403, error, attempt)
    except (Forbidden, Conflict, NotFound) as error:
        if isinstance(error, PersonRefused):
            _report_unknown_factories(context, error.unknown_factories)
        return await _problem_page(context, 403, error, attempt)
    _report_unknown_factories(context, session.unknown_factories)
    response = await context.in_thread(start_session, context, session.token, attempt.next_path, session.email)
    _delete_attempt_cookie(context, response)
    return response


async def _session(
    context: PageContext, provider: "Provider", attempt: SignInAttempt, answer: Mapping[str, str]
) -> ExternalSession:
    """The new session. Counts a failure, so that invented codes cause few requests and few lines of the log."""
    try:
        async with _queue(context).place(_address(context)):
            identity = await provider.identify(attempt, answer)
    except (SignInRefused, ProviderUnavailable):
        context.service.guess_counter.add(_failure_key(context), context.service.now_us())
        raise
    try:
        return await context.in_thread(
            context.management.external_sign_ins.sign_in, identity, link_token=attempt.link_token, client=context.client
        )
    except PersonRefused as error:
        _report_refusal(context, identity, error.reason)
        raise
    except Conflict:
        # A link was used by a member, and the page says all that there is to know.
        if not attempt.link_token:
            _report_refusal(context, identity, "another member has the e-mail address")
        raise


def _report_refusal(context: PageContext, identity: ExternalIdentity, reason: str) -> None:
    """Log why the person may not sign in, with what the provider sent. The page for the person shows less."""
    groups = [repr(name[:SHOWN_CHARACTERS_MAX]) for name in sorted(identity.groups)]
    text = (
        f"The sign-in of the subject {identity.key.subject!r} was refused: {reason}. The provider sent "
        f"{f'these groups: {listed(groups)}' if groups else 'no groups'}."
    )
    if context.service.refusal_reports.may_report(text, context.service.now_us()):
        context.service.report_failure(_LOG_COMPONENT, Forbidden(text))


def _report_unknown_factories(context: PageContext, names: tuple[str, ...]) -> None:
    if names:
        text = f"The setting oidc_roles names factories that do not exist: {', '.join(names)}."
        context.service.report_failure(_LOG_COMPONENT, Invalid(text))


def _provider(context: PageContext) -> "tuple[Provider, ExternalSignIn]":
    """The provider, and the rules for signing in there. Raises `NotFound` if there is none."""
    provider, rules = context.service.provider, context.management.config.external_sign_in
    if provider is None or rules is None:
        raise NotFound("This page does not exist.")
    return provider, rules


def _answer(context: PageContext) -> Mapping[str, str]:
    """The parameters of the provider's answer. Raises `Invalid` if one of them occurs twice."""
    pairs = context.query.multi_items()
    answer = dict(pairs)
    if len(answer) != len(pairs):
        raise Invalid("The answer of the sign-in service is ambiguous. Try again.")
    return answer


def _queue(context: PageContext) -> limits.SignInQueue:
    """Known browsers have a queue of their own, so that a flood of other clients can't keep a member out."""
    service = context.service
    return service.provider_queue if known_browser(context) is None else service.known_browser_provider_queue


def _failure_key(context: PageContext) -> str:
    """The key under which failed sign-ins of this client or account are counted."""
    return f"provider {_address(context)}"


def _address(context: PageContext) -> str:
    browser = known_browser(context)
    return f"client {client_network(context.client)}" if browser is None else f"member {browser.account}"


async def _unavailable_page(
    context: PageContext, rules: ExternalSignIn, error: ProviderUnavailable, attempt: SignInAttempt
) -> Response:
    if not error.is_repeated:
        # Otherwise, a flood of sign-ins would fill the log while the provider is down.
        context.service.report_failure(_LOG_COMPONENT, error)
    text = (
        f"{rules.provider_name} did not give a valid response, so you are not signed in. Try again in a few seconds. "
        "If this repeats, ask the operator of Hookmill: the service log has the reason."
    )
    response = await _problem_page(context, 503, ProviderUnavailable(text), attempt)
    response.headers["Retry-After"] = str(PROVIDER_RETRY_SECONDS)
    return response


async def _problem_page(
    context: PageContext, status: int, error: HookmillError, attempt: SignInAttempt | None = None
) -> Response:
    """The page with the ways to sign in, and the reason why this attempt has ended."""
    next_path = attempt.next_path if attempt is not None else ""
    response = await context.in_thread(sign_in_page, context, status=status, problem=str(error), next_path=next_path)
    _delete_attempt_cookie(context, response)
    return response


def _attempt_cookie(context: PageContext) -> str:
    """The name of the cookie with the sealed attempt."""
    return f"{cookie_name(context.service.is_https)}-attempt"


def _set_attempt_cookie(context: PageContext, response: Response, value: SecretValue) -> None:
    set_cookie(context, response, _attempt_cookie(context), value, ATTEMPT_SECONDS)


def _delete_attempt_cookie(context: PageContext, response: Response) -> None:
    response.delete_cookie(_attempt_cookie(context), secure=context.service.is_https, httponly=True, samesite="lax")


PAGES: Final = (
    Page("GET", "/sign-in/oidc", start, require_nothing),
    Page("GET", "/sign-in/oidc/callback", finish, require_nothing),
    Page("POST", "/welcome/{token}/oidc", connect, require_nothing),
)
