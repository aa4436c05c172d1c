"""How often, and how many at a time, unauthenticated clients may have a password verified.

Verifying a password takes a tenth of a second of a processor and 64 MiB, and an address and a guess are all that a
client needs to ask for it. So attempts are verified one at a time, addresses take turns, and each waits in a line of
bounded length. A browser from which the account was signed in to before has a line of its own: no flood of unknown
clients keeps a member out.
"""

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio

FREE_GUESSES: Final = 5
"""Wrong guesses at one account in a window that cost nothing but their time."""
DELAY_SECONDS_MAX: Final = 2.0
GUESSES_PER_ADDRESS: Final = 30
"""Wrong guesses from one address in a window, at whichever account, before the answer is 429. The right password is
accepted all the same."""
WINDOW_SECONDS: Final = 300
WAITING_PER_ACCOUNT: Final = 3
"""Attempts at one account from one address that wait for the one before them."""
WAITING_PER_ADDRESS: Final = 8
WAITING_MAX: Final = 64
_REMEMBERED_MAX: Final = 10_000


class TooManyWaiting(Exception):
    """As many attempts as may wait are waiting already. Nothing was verified."""


class Guesses:
    """Attempts of the last minutes that were not right, by whatever they are counted by. One process's own count."""

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
            kept = self._at[by] = [at for at in self._at[by] if at > now_us - WINDOW_SECONDS * 1_000_000]
            kept.append(now_us)

    def take_back(self, by: str, at_us: int) -> None:
        """The attempt that was counted at this time was right."""
        with self._lock:
            if at_us in self._at.get(by, ()):
                self._at[by].remove(at_us)


class SignInLine:
    """Lets attempts through one at a time, for one event loop."""

    def __init__(self) -> None:
        self.thread = anyio.CapacityLimiter(1)
        """Where its passwords are verified."""
        self._waiting: dict[asyncio.Timeout, str] = {}
        self._accounts: dict[str, _Lock] = {}
        self._addresses: dict[str, _Lock] = {}
        self._verifying = asyncio.Lock()

    @asynccontextmanager
    async def wait(self, account: str, address: str) -> AsyncIterator[None]:
        """Attempts at one account from one address follow each other. Raises `TooManyWaiting`, also for one that has
        waited and gives way to another address."""
        # A slash can stand in no address.
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
        """The address with the most attempts gives up its last one: many addresses can't keep a new one out."""
        address, attempts = Counter(self._waiting.values()).most_common(1)[0]
        if attempts == 1:
            raise TooManyWaiting
        last = [place for place, its in self._waiting.items() if its == address][-1]
        del self._waiting[last]
        last.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def verifying(self, address: str) -> AsyncIterator[None]:
        """The one place where a password is verified, for an attempt that `wait` has let through.

        Each address has one attempt at most in the line for it, so those that wait take turns.
        """
        async with self._addresses[address].lock, self._verifying:
            yield


class _Lock:
    """A lock that is forgotten once nobody uses it."""

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
