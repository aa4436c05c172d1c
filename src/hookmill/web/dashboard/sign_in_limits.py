"""Limits the password verifications of unauthenticated clients.

Verifying a password takes 0.1 s of a processor and 64 MiB, and any client can request it. So attempts are verified one
at a time, in turns by address, and wait in a queue of limited length. A browser that signed in to the account before
uses another queue, so a flood of unknown clients can't lock a member out.
"""

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio

FREE_GUESSES: Final = 5
"""Wrong guesses at one account in a window that cause no delay."""
DELAY_SECONDS_MAX: Final = 2.0
GUESSES_PER_ADDRESS: Final = 30
"""Wrong guesses from one address in a window, at any account, before the response is 429. The right password is still
accepted."""
WINDOW_SECONDS: Final = 300
WAITING_PER_ACCOUNT: Final = 3
"""The maximum of waiting attempts at one account from one address."""
WAITING_PER_ADDRESS: Final = 8
WAITING_MAX: Final = 64
_REMEMBERED_MAX: Final = 10_000


class TooManyWaiting(Exception):
    """The queue is full. The password was not verified."""


class Guesses:
    """Counts the wrong guesses of the last minutes by account and by client, in this process."""

    def __init__(self) -> None:
        self._at: defaultdict[str, list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def count(self, by: str, now_us: int) -> int:
        with self._lock:
            recent = [at for at in self._at.get(by, ()) if at > now_us - WINDOW_SECONDS * 1_000_000]
            if not recent:
                self._at.pop(by, None)
            return len(recent)

    def add(self, by: str, now_us: int) -> None:
        with self._lock:
            if len(self._at) >= _REMEMBERED_MAX:
                self._at.clear()
            recent = self._at[by] = [at for at in self._at[by] if at > now_us - WINDOW_SECONDS * 1_000_000]
            recent.append(now_us)

    def remove(self, by: str, at_us: int) -> None:
        """Remove the attempt that was counted at this time, because its password was right."""
        with self._lock:
            if at_us in self._at.get(by, ()):
                self._at[by].remove(at_us)


class SignInQueue:
    """A queue of sign-in attempts for one event loop. It lets one attempt through at a time."""

    def __init__(self) -> None:
        self.thread = anyio.CapacityLimiter(1)
        """Limits the verifications of this queue to one thread."""
        self._waiting: dict[asyncio.Timeout, str] = {}
        self._accounts: dict[str, _Lock] = {}
        self._addresses: dict[str, _Lock] = {}
        self._verifying = asyncio.Lock()

    @asynccontextmanager
    async def wait(self, account: str, address: str) -> AsyncIterator[None]:
        """Wait until earlier attempts at the account from this address are done.

        Raises `TooManyWaiting` if the queue is full, also for a waiting attempt that is removed for another address.
        """
        # Addresses contain no slash.
        of_account = _lock_of(self._accounts, f"{address}/{account}")
        of_address = _lock_of(self._addresses, address)
        if of_address.users >= WAITING_PER_ADDRESS or of_account.users > WAITING_PER_ACCOUNT:
            raise TooManyWaiting
        if len(self._waiting) >= WAITING_MAX:
            self._make_room()
        try:
            async with asyncio.timeout(None) as place:
                self._waiting[place] = address
                try:
                    with of_account.used(), of_address.used():
                        async with of_account.lock:
                            yield
                finally:
                    self._waiting.pop(place, None)
        except TimeoutError:
            raise TooManyWaiting from None

    def _make_room(self) -> None:
        """Remove the last attempt of the address with the most attempts, so that few addresses can't fill the queue."""
        address, attempts = Counter(self._waiting.values()).most_common(1)[0]
        if attempts == 1:
            raise TooManyWaiting
        last = [place for place, its in self._waiting.items() if its == address][-1]
        del self._waiting[last]
        last.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def verifying(self, address: str) -> AsyncIterator[None]:
        """Hold the right to verify a password, inside `wait`.

        Each address competes with at most one attempt, so addresses take turns.
        """
        async with self._addresses[address].lock, self._verifying:
            yield


class _Lock:
    """A lock that is removed from `locks` when it is no longer used."""

    def __init__(self, locks: dict[str, "_Lock"], name: str) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self._locks = locks
        self._name = name

    @contextmanager
    def used(self) -> Iterator[None]:
        self._locks[self._name] = self
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            if not self.users:
                del self._locks[self._name]


def _lock_of(locks: dict[str, _Lock], name: str) -> _Lock:
    return locks.get(name) or _Lock(locks, name)
