"""Who is asking, and may they? Every route asks for one of five requirements, and gets the answer as a value."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from starlette.concurrency import run_in_threadpool

from hookmill.domain.client import Network, client_address, one_client
from hookmill.domain.permission import Caller, MayAdminister, MayManage, MayView
from hookmill.management import Management
from hookmill.web.api.budget import Budget, Spent
from hookmill.web.api.fields import FactoryInPath
from hookmill.web.api.problems import Refusal, not_authentic
from hookmill.web.asgi import Scope

FAILURES_PER_MINUTE: Final = 60
REQUESTS_PER_MINUTE: Final = 600
_TOKEN_CHARACTERS_MAX: Final = 200
_ASKING: Final = "hookmill.asking"


class Asking:
    """One request: where it comes from, and who it turns out to be."""

    def __init__(self, client: str | None) -> None:
        self.client = client
        self.body = b""
        self.caller: Caller | None = None
        self.spent: Spent | None = None


def begin(scope: Scope, trusted_proxies: Sequence[Network]) -> Asking:
    """Note down where a request comes from, for all who look at it later."""
    peer = scope["client"][0] if scope.get("client") else ""
    forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
    asking = Asking(client_address(peer, forwarded or None, trusted_proxies))
    scope[_ASKING] = asking
    return asking


def asking_of(request: Request) -> Asking:
    asking: Asking = request.scope[_ASKING]
    return asking


class Gate:
    """Lets in whoever bears an API key that is good."""

    def __init__(
        self,
        management: Management,
        now_us: Callable[[], int],
        *,
        requests_per_minute: int,
        failures_per_minute: int,
    ) -> None:
        self.management = management
        self._requests = Budget(requests_per_minute, now_us)
        self._failures = Budget(failures_per_minute, now_us)

    async def admit(self, request: Request) -> None:
        """Raises `Refusal` for whoever has not proven who they are, and for who asks too often."""
        asking = asking_of(request)
        await self._look(request)
        if asking.caller is None:
            # Counted after the key was looked at: what strangers do must not shut out one that is good.
            failed = self._failures.spend(one_client(asking.client))
            if failed.is_over:
                raise _too_many("Too many requests without a good API key.", failed)
            raise not_authentic()
        asking.spent = self._requests.spend(asking.caller.actor.id)
        if asking.spent.is_over:
            raise _too_many("This key has used up its requests for this minute.", asking.spent)

    async def admit_again(self, request: Request) -> None:
        """For whoever has held a body back: the key may have been revoked meanwhile. Raises `Refusal`."""
        await self._look(request)
        if asking_of(request).caller is None:
            raise not_authentic()

    async def _look(self, request: Request) -> None:
        asking, token = asking_of(request), _bearer_token(request)
        asking.caller = (
            await run_in_threadpool(self.management.access.by_key, token, client=asking.client)
            if token is not None
            else None
        )


def _too_many(detail: str, spent: Spent) -> Refusal:
    return Refusal("too_many_requests", detail, headers={"Retry-After": str(spent.reset_seconds)})


def _bearer_token(request: Request) -> str | None:
    given = request.headers.getlist("authorization")
    if len(given) != 1:
        return None
    scheme, _, token = given[0].partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token.isascii() or not 0 < len(token) <= _TOKEN_CHARACTERS_MAX:
        return None
    return token


# The requirements


def anybody() -> None:
    """Open to all, without a key: it says nothing about this installation."""


async def knowing(request: Request) -> Caller:
    """Any good key."""
    caller = asking_of(request).caller
    assert caller is not None, "the gate was passed before"
    return caller


def viewing(factory: FactoryInPath, caller: Annotated[Caller, Depends(knowing)], management: "Operations") -> MayView:
    """The role viewer in the factory that the address names."""
    return management.access.may_view(caller, factory)


def managing(
    factory: FactoryInPath, caller: Annotated[Caller, Depends(knowing)], management: "Operations"
) -> MayManage:
    """The role manager in the factory that the address names."""
    return management.access.may_manage(caller, factory)


def administering(caller: Annotated[Caller, Depends(knowing)], management: "Operations") -> MayAdminister:
    """The role admin, over the whole team."""
    return management.access.may_administer(caller)


async def _management(request: Request) -> Management:
    gate: Gate = request.state.gate
    return gate.management


Operations = Annotated[Management, Depends(_management)]
Anybody = Depends(anybody)
Knowing = Annotated[Caller, Depends(knowing)]
Viewing = Annotated[MayView, Depends(viewing)]
Managing = Annotated[MayManage, Depends(managing)]
Administering = Annotated[MayAdminister, Depends(administering)]

ROLES: Final[dict[Callable[..., Any], str | None]] = {
    anybody: None,
    knowing: "any",
    viewing: "viewer",
    managing: "manager",
    administering: "admin",
}
"""Every requirement, and the least role that meets it."""


def requirement_of(dependant: Dependant) -> Callable[..., Any]:
    """The one requirement that a route makes. A route without one can't be made."""
    found = [each.call for each in dependant.dependencies if each.call in ROLES]
    if len(found) != 1 or found[0] is None:
        raise TypeError(f"{dependant.call} must ask for exactly one requirement, and asks for {len(found)}")
    return found[0]
