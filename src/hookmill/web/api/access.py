"""Authentication by API key, rate limits, and the requirements of routes.

A requirement is a dependency (`require_…`). Every route declares exactly one, and receives the value that it returns:
the caller or the permission.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from starlette.concurrency import run_in_threadpool

from hookmill.domain.client import FORWARDED_FOR, client_address, client_network
from hookmill.domain.networks import Network
from hookmill.domain.permission import Caller, Channel, MayAdminister, MayManage, MayView
from hookmill.management import Management, MayReport
from hookmill.web.api.fields import AttemptInPath, FactoryInPath
from hookmill.web.api.problems import ApiError, unauthenticated_error
from hookmill.web.api.rate_limit import RateLimiter, RateLimitStatus
from hookmill.web.asgi import CHANNEL, Scope

FAILURES_PER_MINUTE: Final = 60
"""How many failed authentications of one client network get 401. Further ones get 429."""
REQUESTS_PER_MINUTE: Final = 600
"""How many requests with one API key are allowed. Further ones get 429."""
_TOKEN_CHARACTERS_MAX: Final = 200
_CONTEXT_KEY: Final = "hookmill.request_context"


class RequestContext:
    """The state of one request: client, channel, body, caller, and the state of the key's rate limit.

    `client` is the client's address.
    """

    def __init__(self, client: str | None, channel: Channel) -> None:
        self.client = client
        self.channel = channel
        self.body = b""
        """Empty until the route has read the body, or if the operation has none."""
        self.may_report: MayReport | None = None
        """The permission of an agent platform; None for every other client."""
        self.caller: Caller | None = None
        """None until the route has authenticated the request, and without a valid key."""
        self.rate_limit: RateLimitStatus | None = None
        """None without a valid key."""


def add_context(scope: Scope, trusted_proxies: Sequence[Network]) -> RequestContext:
    """Add the context of a request to its scope."""
    peer = scope["client"][0] if scope.get("client") else ""
    forwarded = b",".join(value for name, value in scope["headers"] if name == FORWARDED_FOR)
    client = client_address(peer, forwarded or None, trusted_proxies)
    context = RequestContext(client, scope.get(CHANNEL, Channel.API))
    scope[_CONTEXT_KEY] = context
    return context


def context_of(request: Request) -> RequestContext:
    context: RequestContext = request.scope[_CONTEXT_KEY]
    return context


class Authenticator:
    """Authenticates requests by their API key, and applies the rate limits."""

    def __init__(
        self,
        management: Management,
        now_us: Callable[[], int],
        *,
        requests_per_minute: int,
        failures_per_minute: int,
    ) -> None:
        self.management = management
        self._request_limiter = RateLimiter(requests_per_minute, now_us)
        self._failure_limiter = RateLimiter(failures_per_minute, now_us)

    async def authenticate(self, request: Request) -> None:
        """Set the caller and the rate limit of the request's context.

        Raises `ApiError` if the API key is missing or invalid, or if a rate limit is exceeded.
        """
        context = context_of(request)
        await self._set_caller(request)
        if context.caller is None:
            self._count_failure(context, "Too many requests without a valid API key.")
            raise unauthenticated_error()
        context.rate_limit = self._request_limiter.count(context.caller.actor.id)
        if context.rate_limit.is_exceeded:
            raise _too_many_requests_error("This key has used up its requests for this minute.", context.rate_limit)

    async def authenticate_platform(self, request: Request, attempt: str) -> None:
        """Set the permission of the request's context. Raises `ApiError` unless the token is that of the attempt."""
        context, token = context_of(request), _bearer_token(request)
        if token is not None:
            reports = self.management.platform_reports
            context.may_report = await run_in_threadpool(reports.permission, attempt, token)
        if context.may_report is None:
            self._count_failure(context, "Too many requests without the token of an attempt.")
            raise unauthenticated_error("Send the token of this attempt, as Authorization: Bearer hat_….")

    def _count_failure(self, context: RequestContext, detail: str) -> None:
        """Count a failed authentication of the client's network. Raises `ApiError` if there were too many.

        Only failures count. So unauthenticated clients can't use up the limit of a valid key.
        """
        rate_limit = self._failure_limiter.count(client_network(context.client))
        if rate_limit.is_exceeded:
            raise _too_many_requests_error(detail, rate_limit)

    async def reauthenticate(self, request: Request) -> None:
        """Verify the key again after the body has arrived. Raises `ApiError` if the key is no longer valid."""
        await self._set_caller(request)
        if context_of(request).caller is None:
            raise unauthenticated_error()

    async def _set_caller(self, request: Request) -> None:
        """Set the context's caller to the owner of the API key, or to None without a valid key."""
        context, token = context_of(request), _bearer_token(request)
        context.caller = (
            await run_in_threadpool(
                self.management.access.caller_with_token, token, client=context.client, channel=context.channel
            )
            if token is not None
            else None
        )


class OperatorAuthenticator(Authenticator):
    """Authenticates every request as the operator's, and needs no key.

    Only the operator may reach an application with it: the identity comes from the listener, never from the request.
    """

    def __init__(self, management: Management, now_us: Callable[[], int], user_id: int) -> None:
        """`user_id`: the account of the operator, for the audit log."""
        super().__init__(
            management, now_us, requests_per_minute=REQUESTS_PER_MINUTE, failures_per_minute=FAILURES_PER_MINUTE
        )
        self._user_id = user_id

    async def authenticate(self, request: Request) -> None:
        await self._set_caller(request)

    async def _set_caller(self, request: Request) -> None:
        access = self.management.access
        context_of(request).caller = await run_in_threadpool(access.operator_caller, self._user_id)


def _too_many_requests_error(detail: str, rate_limit: RateLimitStatus) -> ApiError:
    return ApiError("too_many_requests", detail, headers={"Retry-After": str(rate_limit.reset_seconds)})


def _bearer_token(request: Request) -> str | None:
    """The token in the only `Authorization` header; None if the header is missing, repeated or malformed."""
    headers = request.headers.getlist("authorization")
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token.isascii() or not 0 < len(token) <= _TOKEN_CHARACTERS_MAX:
        return None
    return token


# The requirements


def require_nothing() -> None:
    """Require no API key. The responses of such routes must contain nothing about this installation."""


async def require_attempt_token(attempt: AttemptInPath, request: Request) -> MayReport:
    """Require the token of the attempt that the path names. No API key is needed."""
    may_report = context_of(request).may_report
    assert may_report is not None, "the route authenticates before it resolves dependencies"
    return may_report


async def require_any_key(request: Request) -> Caller:
    """Require any valid API key."""
    caller = context_of(request).caller
    assert caller is not None, "the route authenticates before it resolves dependencies"
    return caller


def require_viewer(
    factory: FactoryInPath, caller: Annotated[Caller, Depends(require_any_key)], management: "ManagementDependency"
) -> MayView:
    """Require the role viewer in the factory that the path names."""
    return management.access.permission_to_view(caller, factory)


def require_manager(
    factory: FactoryInPath, caller: Annotated[Caller, Depends(require_any_key)], management: "ManagementDependency"
) -> MayManage:
    """Require the role manager in the factory that the path names."""
    return management.access.permission_to_manage(caller, factory)


def require_admin(
    caller: Annotated[Caller, Depends(require_any_key)], management: "ManagementDependency"
) -> MayAdminister:
    """Require the role admin."""
    return management.access.permission_to_administer(caller)


def require_factory_admin(
    factory: FactoryInPath, caller: Annotated[Caller, Depends(require_any_key)], management: "ManagementDependency"
) -> MayManage:
    """Require the role admin, for an operation in the factory that the path names."""
    management.access.permission_to_administer(caller)
    return management.access.permission_to_manage(caller, factory)


async def _management_of(request: Request) -> Management:
    authenticator: Authenticator = request.state.authenticator
    return authenticator.management


ManagementDependency = Annotated[Management, Depends(_management_of)]
Public = Depends(require_nothing)
AttemptAccess = Annotated[MayReport, Depends(require_attempt_token)]
AnyKey = Annotated[Caller, Depends(require_any_key)]
ViewerAccess = Annotated[MayView, Depends(require_viewer)]
ManagerAccess = Annotated[MayManage, Depends(require_manager)]
AdminAccess = Annotated[MayAdminister, Depends(require_admin)]

MINIMUM_ROLES: Final[dict[Callable[..., Any], str | None]] = {
    require_nothing: None,
    require_attempt_token: "attempt",
    require_any_key: "any",
    require_viewer: "viewer",
    require_manager: "manager",
    require_admin: "admin",
    require_factory_admin: "admin",
}
"""The lowest role that meets each requirement. None: no API key is needed; `any`: any valid key; `attempt`: the token
of an attempt instead of a key."""


def requirement_of(dependant: Dependant) -> Callable[..., Any]:
    """The requirement that a route declares. Raises `TypeError` unless it declares exactly one."""
    requirements = [dependency.call for dependency in dependant.dependencies if dependency.call in MINIMUM_ROLES]
    if len(requirements) != 1 or requirements[0] is None:
        raise TypeError(f"{dependant.call} must declare exactly one requirement, not {len(requirements)}")
    return requirements[0]
