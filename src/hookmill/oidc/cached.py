"""A document of the provider that is kept in memory, and loaded again when it is old."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from hookmill.domain.errors import ProviderUnavailable

VALID_SECONDS: Final = 3600.0
"""How long a document is used before it is loaded again."""
RELOAD_SECONDS: Final = 60.0
"""The minimum time between two loads, if the document in memory lacks something."""
RETRY_SECONDS: Final = 2.0
"""How long a failed load is not tried again."""

T = TypeVar("T")


class CachedDocument(Generic[T]):
    """For one event loop. Callers that need the document at the same time share one load and its failure."""

    def __init__(
        self, load: Callable[[], Coroutine[Any, Any, T]], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._monotonic = monotonic
        self._document: T | None = None
        self._loaded_at = -math.inf
        self._failed_at = -math.inf
        self._failure = ""
        self._task: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The document. Raises `ProviderUnavailable`."""
        if self._document is None or self._age() >= VALID_SECONDS:
            return await self._reload()
        return self._document

    async def get_newer(self) -> T:
        """The document, loaded again unless that happened within `RELOAD_SECONDS`. Raises `ProviderUnavailable`."""
        if self._document is None or self._age() >= RELOAD_SECONDS:
            return await self._reload()
        return self._document

    def _age(self) -> float:
        return self._monotonic() - self._loaded_at

    async def _reload(self) -> T:
        if self._monotonic() < self._failed_at + RETRY_SECONDS:
            raise ProviderUnavailable(self._failure, is_repeated=True)
        if self._task is None:
            self._task = asyncio.create_task(self._load_and_store())
            self._task.add_done_callback(self._forget_task)
        # A client that disconnects must not cancel the load, for which others may wait.
        return await asyncio.shield(self._task)

    async def _load_and_store(self) -> T:
        try:
            document = await self._load()
        except ProviderUnavailable as error:
            self._failed_at, self._failure = self._monotonic(), str(error)
            raise
        self._document, self._loaded_at = document, self._monotonic()
        return document

    def _forget_task(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if not task.cancelled():
            # Marks the exception as retrieved, even if all callers have disconnected.
            task.exception()
