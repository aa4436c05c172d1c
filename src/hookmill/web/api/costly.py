"""Operations that can keep a processor busy for seconds: few at a time, one for each key, on threads of their own."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, Final

import anyio.to_thread
from fastapi import Request, Response

from hookmill.web.api.access import asking_of
from hookmill.web.api.problems import Refusal

AT_A_TIME: Final = 2
RETRY_SECONDS: Final = 1


class Places:
    """Where costly operations run. Who finds none free is sent away: waiting, they would pile up."""

    def __init__(self) -> None:
        # Apart from the threads of all the others, so that whoever looks at a webhook never waits for a backtest.
        self.threads = anyio.CapacityLimiter(AT_A_TIME)
        self._taken: set[str] = set()

    @contextmanager
    def one_for(self, key_id: str) -> Iterator[None]:
        """Raises `Refusal` when this key has a place already, or all are taken."""
        if key_id in self._taken:
            raise _not_now("This key has a costly operation under way.")
        if len(self._taken) >= AT_A_TIME:
            raise _not_now(f"{AT_A_TIME} costly operations of other keys are under way here.")
        self._taken.add(key_id)
        try:
            yield
        finally:
            self._taken.remove(key_id)


def _not_now(what: str) -> Refusal:
    told = f"{what} Repeat this after the time that Retry-After says."
    return Refusal("too_many_requests", told, headers={"Retry-After": str(RETRY_SECONDS)})


def costly(operation: Callable[..., Response]) -> Callable[..., Awaitable[Response]]:
    """Says of a route's operation that it is costly."""
    told = inspect.signature(operation)
    asked = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)

    @wraps(operation)
    async def in_its_place(*, request: Request, **given: Any) -> Response:
        places: Places = request.state.places
        caller = asking_of(request).caller
        assert caller is not None, "the gate was passed before"
        with places.one_for(caller.actor.id):
            return await anyio.to_thread.run_sync(partial(operation, **given), limiter=places.threads)

    in_its_place.__signature__ = told.replace(parameters=[*told.parameters.values(), asked])  # type: ignore[attr-defined]
    _COSTLY.add(in_its_place)
    return in_its_place


_COSTLY: Final[set[Callable[..., Any]]] = set()


def is_costly(operation: Callable[..., Any] | None) -> bool:
    return operation in _COSTLY
