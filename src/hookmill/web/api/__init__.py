"""The HTTP API, /api/v1: management for programs.

A request passes the middleware, its route's checks (key, path, parameters, body), and one management operation.
Importing this package takes half a second, so only a process that serves the API imports it.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from hookmill.domain.errors import ReportFailure
from hookmill.domain.networks import Network
from hookmill.management import Management
from hookmill.web.api import (
    alarm_destinations,
    alarms,
    attempts,
    audit,
    automations,
    definitions,
    deliveries,
    factories,
    filters,
    problems,
    queue,
    reference,
    runs,
    secrets,
    team,
    webhooks,
)
from hookmill.web.api.access import (
    FAILURES_PER_MINUTE,
    REQUESTS_PER_MINUTE,
    Authenticator,
    OperatorAuthenticator,
)
from hookmill.web.api.expensive import ConcurrencyLimiter
from hookmill.web.api.middleware import ApiMiddleware
from hookmill.web.api.openapi import TITLE, operations
from hookmill.web.api.urls import PREFIX, api_path
from hookmill.web.body import BodyReader
from hookmill.web.routes import Application

BODIES_AT_A_TIME: Final = 32
"""The maximum of request bodies that one process reads concurrently. A body has up to 1 MiB."""


def build(
    management: Management,
    *,
    trusted_proxies: Sequence[Network],
    now_us: Callable[[], int],
    report_failure: ReportFailure,
    requests_per_minute: int = REQUESTS_PER_MINUTE,
    failures_per_minute: int = FAILURES_PER_MINUTE,
) -> Application:
    """The API as one ASGI application. `report_failure` is called for unexpected errors."""
    authenticator = Authenticator(
        management, now_us, requests_per_minute=requests_per_minute, failures_per_minute=failures_per_minute
    )
    return _application_with(authenticator, trusted_proxies, report_failure)


def build_for_operator(
    management: Management, user_id: int, *, now_us: Callable[[], int], report_failure: ReportFailure
) -> Application:
    """The API for requests that only the operator can send: they need no key.

    `user_id`: the operator's account.
    """
    return _application_with(OperatorAuthenticator(management, now_us, user_id), (), report_failure)


def _application_with(
    authenticator: Authenticator, trusted_proxies: Sequence[Network], report_failure: ReportFailure
) -> Application:
    return ApiMiddleware(
        application(),
        state={
            "authenticator": authenticator,
            "expensive_operations": ConcurrencyLimiter(),
            "body_reader": BodyReader(BODIES_AT_A_TIME),
            "report_failure": report_failure,
        },
        trusted_proxies=trusted_proxies,
        report_failure=report_failure,
    )


@functools.cache
def application() -> FastAPI:
    """The application with all routes. It is independent of the store: `ApiMiddleware` adds state to each request."""
    app = FastAPI(
        title=TITLE,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # A redirect would repeat the host that the client sent.
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    modules = (
        factories,
        webhooks,
        secrets,
        automations,
        definitions,
        deliveries,
        filters,
        runs,
        attempts,
        queue,
        alarm_destinations,
        alarms,
        audit,
        team,
        reference,
    )
    for module in modules:
        app.include_router(module.routes, prefix=PREFIX)
    allowed_methods = _allowed_methods(app)

    @app.exception_handler(HTTPException)
    async def _respond_without_route(request: Request, error: HTTPException) -> Response:
        """Respond to a request that no route handles: redirect it, name the allowed methods, or report an error."""
        path = request.scope["path"]
        allowed = next((methods for pattern, methods in allowed_methods if pattern.fullmatch(path)), None)
        if path in (PREFIX, f"{PREFIX}/", api_path("docs", "")) and request.method == "GET":
            return Response(status_code=308, headers={"Location": api_path("docs")})
        if error.status_code != 405 or allowed is None:
            return problems.error_response(problems.not_found_error())
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allowed})
        detail = f"Allowed methods: {allowed}."
        return problems.error_response(problems.ApiError("method_not_allowed", detail, headers={"Allow": allowed}))

    return app


def _allowed_methods(app: FastAPI) -> list[tuple[re.Pattern[str], str]]:
    """A pattern for each path, and the value of the `Allow` header for this path."""
    methods_by_path: dict[str, set[str]] = {}
    for operation in operations(app):
        head = {"HEAD"} if operation.method == "GET" else set()
        methods_by_path.setdefault(operation.path, {"OPTIONS"}).update({operation.method}, head)
    return [
        (re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))), ", ".join(sorted(methods)))
        for path, methods in methods_by_path.items()
    ]


__all__ = ["PREFIX", "application", "build", "build_for_operator", "operations"]
