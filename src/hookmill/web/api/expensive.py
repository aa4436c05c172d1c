"""Expensive operations, which can use a processor for seconds.

A process performs at most two of them concurrently, in threads of their own, and at most one for each API key.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, Final

import anyio.to_thread
from fastapi import Request, Response

from hookmill.web.api.access import context_of
from hookmill.web.api.problems import ApiError

CONCURRENT_MAX: Final = 2
RETRY_SECONDS: Final = 1


class ConcurrencyLimiter:
    """Limits the expensive operations in progress: two in all, and one for each API key.

    Further requests are rejected, because waiting requests would pile up.
    """

    def __init__(self) -> None:
        # Threads of their own, so that a cheap request never waits until a backtest frees a thread.
        self.threads = anyio.CapacityLimiter(CONCURRENT_MAX)
        self._key_ids: set[str] = set()
        """The ids of the API keys that hold a slot."""

    @contextmanager
    def slot_for(self, key_id: str) -> Iterator[None]:
        """Hold a slot for an operation of this API key.

        Raises `ApiError` if the key already holds a slot, or if no slot is free.
        """
        if key_id in self._key_ids:
            raise _busy_error("This key has an expensive operation in progress.")
        if len(self._key_ids) >= CONCURRENT_MAX:
            raise _busy_error(f"{CONCURRENT_MAX} expensive operations of other keys are in progress.")
        self._key_ids.add(key_id)
        try:
            yield
        finally:
            self._key_ids.remove(key_id)


def _busy_error(reason: str) -> ApiError:
    detail = f"{reason} Retry after the number of seconds in Retry-After."
    return ApiError("too_many_requests", detail, headers={"Retry-After": str(RETRY_SECONDS)})


def expensive(operation: Callable[..., Response]) -> Callable[..., Awaitable[Response]]:
    """Decorate a route's operation: it holds a slot, and runs in a thread, of the `ConcurrencyLimiter`."""
    signature = inspect.signature(operation)
    request_parameter = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)

    @wraps(operation)
    async def with_slot(*, request: Request, **arguments: Any) -> Response:
        limiter: ConcurrencyLimiter = request.state.expensive_operations
        caller = context_of(request).caller
        assert caller is not None, "the route authenticates before it calls the operation"
        with limiter.slot_for(caller.actor.id):
            return await anyio.to_thread.run_sync(partial(operation, **arguments), limiter=limiter.threads)

    parameters = [*signature.parameters.values(), request_parameter]
    with_slot.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    _EXPENSIVE_OPERATIONS.add(with_slot)
    return with_slot


_EXPENSIVE_OPERATIONS: Final[set[Callable[..., Any]]] = set()


def is_expensive(operation: Callable[..., Any] | None) -> bool:
    return operation in _EXPENSIVE_OPERATIONS
