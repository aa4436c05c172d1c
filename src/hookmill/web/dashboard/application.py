"""The dashboard as an ASGI application: routing, sessions, permissions, forms, headers and errors."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Match, Route

from hookmill.domain.client import FORWARDED_FOR, client_address
from hookmill.domain.errors import (
    Conflict,
    DiskFull,
    Forbidden,
    HookmillError,
    Invalid,
    NotFound,
    ObjectStoreUnavailable,
    StoreUnavailable,
)
from hookmill.domain.networks import Network
from hookmill.web.asgi import Receive, Scope, Send
from hookmill.web.dashboard import access
from hookmill.web.dashboard.access import NotSignedIn, Requirement, cookie_name
from hookmill.web.dashboard.form_reader import FormReader, IncompleteForm
from hookmill.web.dashboard.page_context import PageContext, Service
from hookmill.web.dashboard.urls import url

Handler = Callable[..., Response] | Callable[..., Awaitable[Response]]

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its method, path, handler and requirement.

    The handler gets the context, and the value that the requirement returns unless it is None. It runs in a thread.
    But a handler that is a coroutine function runs on the event loop, and must not wait for the database there.
    """

    method: str
    path: str
    handler: Handler
    requirement: Requirement
    is_background: bool = False
    """Whether an open page requests this page automatically. Such requests don't keep the session alive."""


class DashboardApplication:
    def __init__(self, pages: Sequence[Page], service: Service, *, trusted_proxies: Sequence[Network]) -> None:
        self._service = service
        self._trusted_proxies = trusted_proxies
        self._forms = FormReader()
        self._routes = [(Route(page.path, _never_called, methods=[page.method]), page) for page in pages]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page_scope = dict(scope)
        # The path stays percent-encoded. Its parts are decoded after routing.
        page_scope["path"] = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        page_scope["root_path"] = ""
        is_head = scope["method"] == "HEAD"
        if is_head:
            page_scope["method"] = "GET"
        context = self._context(page_scope, receive)
        response = await self._respond(context)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Cache-Control", "no-store")
        if context.signed_in is None:
            # Otherwise an unauthenticated client that never reads its responses could fill the memory with them.
            response.headers["Connection"] = "close"
        if is_head:
            response = Response(status_code=response.status_code, headers=dict(response.headers))
        await response(page_scope, receive, send)

    def _context(self, scope: dict[str, Any], receive: Receive) -> PageContext:
        peer = scope["client"][0] if scope.get("client") else ""
        forwarded = b",".join(value for name, value in scope["headers"] if name == FORWARDED_FOR)
        return PageContext(
            request=Request(scope, receive),
            service=self._service,
            client=client_address(peer, forwarded or None, self._trusted_proxies),
        )

    async def _respond(self, context: PageContext) -> Response:
        """The page's response, or an error page for the exception that the page raised."""
        try:
            return await self._serve_page(context)
        except NotSignedIn:
            return self._redirect_to_sign_in(context)
        except IncompleteForm as error:
            response = await context.in_thread(_error_page, context, error.status, str(error))
            response.headers["Connection"] = "close"
            return response
        except StoreUnavailable as error:
            self._service.report_failure("dashboard", error)
            is_full = isinstance(error, DiskFull)
            message = str(error) if is_full else "The database is unavailable. Try again in a few seconds."
            return await context.in_thread(_error_page, context, 503, message)
        except ObjectStoreUnavailable as error:
            self._service.report_failure("dashboard", error)
            return await context.in_thread(_error_page, context, 503, str(error))
        except HookmillError as error:
            return await context.in_thread(_error_page, context, _status_of(error), str(error))
        except Exception as error:
            self._service.report_failure("dashboard", error)
            return await context.in_thread(
                _error_page, context, 500, "An internal error occurred. The service log contains the details."
            )

    async def _serve_page(self, context: PageContext) -> Response:
        page = self._page_for(context)
        is_visit = not (isinstance(page, Page) and page.is_background)
        await self._set_session(context, is_visit=is_visit)
        if page is None:
            raise NotFound("This page does not exist.")
        if isinstance(page, Response):
            return page
        if page.method == "POST":
            access.refuse_foreign_form(context)
            if context.signed_in is None and page.requirement is not access.require_nothing:
                await self._forms.discard(context)
                raise NotSignedIn
            context.form = await self._forms.read(context)
            access.refuse_stale_form(context)
        permission = await context.in_thread(page.requirement, context)
        arguments = (context,) if permission is None else (context, permission)
        if inspect.iscoroutinefunction(page.handler):
            response: Response = await page.handler(*arguments)
            return response
        handler: Callable[..., Any] = page.handler
        return await context.in_thread(handler, *arguments)

    def _page_for(self, context: PageContext) -> Page | Response | None:
        """The page at the path; a 405 response if the page has only other methods; None if there is no page."""
        other_methods: list[str] = []
        for route, page in self._routes:
            match, child_scope = route.matches(context.request.scope)
            if match is Match.FULL:
                try:
                    decoded = {
                        name: unquote_to_bytes(value).decode() for name, value in child_scope["path_params"].items()
                    }
                except UnicodeDecodeError:
                    return None
                context.request.scope["path_params"] = decoded
                return page
            if match is Match.PARTIAL:
                other_methods.append(page.method)
        if other_methods:
            allowed = ", ".join(sorted({*other_methods, *(["HEAD"] if "GET" in other_methods else [])}))
            return PlainTextResponse("This page does not accept this method.\n", 405, headers={"Allow": allowed})
        return None

    async def _set_session(self, context: PageContext, *, is_visit: bool) -> None:
        """Set the context's session token and member, if the request's cookie has the token of a valid session.

        `is_visit`: whether the request keeps the session alive.
        """
        session_token = context.request.cookies.get(cookie_name(self._service.is_https))
        if session_token is None:
            return
        context.signed_in = await context.in_thread(
            self._service.management.sessions.by_session_token,
            session_token,
            client=context.client,
            is_visit=is_visit,
            limiter=self._service.member_thread_limiter,
        )
        context.session_token = session_token if context.signed_in is not None else None

    def _redirect_to_sign_in(self, context: PageContext) -> Response:
        if context.is_htmx:
            return Response(status_code=204, headers={"HX-Redirect": url("sign-in")})
        if context.request.method == "POST":
            return RedirectResponse(url("sign-in", flash="session-ended"), 303)
        path = context.request.scope["path"]
        return RedirectResponse(url("sign-in", next=path if path != "/" else ""), 303)


async def _never_called(_request: Request) -> Response:
    raise AssertionError("this application calls the handlers of pages itself")


_STATUS_BY_ERROR_CLASS: Final = {Invalid: 422, NotFound: 404, Forbidden: 403, Conflict: 409}


def _status_of(error: HookmillError) -> int:
    return next(
        (status for error_class, status in _STATUS_BY_ERROR_CLASS.items() if isinstance(error, error_class)), 400
    )


def _error_page(context: PageContext, status: int, message: str) -> Response:
    if context.is_htmx:
        return context.page("parts/error.html", status=status, text=message)
    return context.page("error.html", status=status, text=message, code=status)
