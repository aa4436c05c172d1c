"""The HTTP API, /api/v1: management for programs. It takes half a second to import, so only who serves it should.

A request passes the application, its route's checks (who, address, parameters, body), and one management operation.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from hookmill.domain.client import Network
from hookmill.management import Management
from hookmill.web.api import (
    audit,
    automations,
    deliveries,
    factories,
    filters,
    problems,
    reference,
    runs,
    secrets,
    team,
    webhooks,
)
from hookmill.web.api.access import FAILURES_PER_MINUTE, REQUESTS_PER_MINUTE, Gate
from hookmill.web.api.costly import Places
from hookmill.web.api.document import TITLE, operations
from hookmill.web.api.middleware import ApiMiddleware
from hookmill.web.api.where import PREFIX, at
from hookmill.web.body import BodyReader
from hookmill.web.routes import Application

BODIES_AT_A_TIME: Final = 32
"""Request bodies of up to 1 MiB that one process reads at the same time."""


def build(
    management: Management,
    *,
    trusted_proxies: Sequence[Network],
    now_us: Callable[[], int],
    failed: Callable[[str, BaseException], None],
    requests_per_minute: int = REQUESTS_PER_MINUTE,
    failures_per_minute: int = FAILURES_PER_MINUTE,
) -> Application:
    """The whole API as one ASGI application. `failed` hears of what nobody foresaw."""
    gate = Gate(management, now_us, requests_per_minute=requests_per_minute, failures_per_minute=failures_per_minute)
    return ApiMiddleware(
        application(),
        behind={
            "gate": gate,
            "places": Places(),
            "bodies": BodyReader(BODIES_AT_A_TIME),
            "failed": failed,
        },
        trusted_proxies=trusted_proxies,
        failed=failed,
    )


@functools.cache
def application() -> FastAPI:
    """Every route, with nothing behind it: what is behind comes with each request."""
    app = FastAPI(
        title=TITLE,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # A redirect would repeat whatever host the client named.
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for noun in (factories, webhooks, secrets, automations, deliveries, filters, runs, audit, team, reference):
        app.include_router(noun.routes, prefix=PREFIX)
    methods = _methods_by_address(app)

    @app.exception_handler(HTTPException)
    async def _no_such_route(request: Request, error: HTTPException) -> Response:
        allowed = next((known for address, known in methods if address.fullmatch(request.scope["path"])), None)
        if request.scope["path"] in (PREFIX, f"{PREFIX}/", at("docs", "")) and request.method == "GET":
            return Response(status_code=308, headers={"Location": at("docs")})
        if error.status_code != 405 or allowed is None:
            return problems.answer(problems.nothing_here())
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allowed})
        told = f"The methods here are: {allowed}."
        return problems.answer(problems.Refusal("method_not_allowed", told, headers={"Allow": allowed}))

    return app


def _methods_by_address(app: FastAPI) -> list[tuple[re.Pattern[str], str]]:
    """What `Allow` says at each address."""
    found: dict[str, set[str]] = {}
    for operation in operations(app):
        also = {"HEAD"} if operation.method == "GET" else set()
        found.setdefault(operation.path, {"OPTIONS"}).update({operation.method}, also)
    return [
        (re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))), ", ".join(sorted(methods)))
        for path, methods in found.items()
    ]


__all__ = ["PREFIX", "application", "build", "operations"]
