"""Limits the sign-ins of unauthenticated clients.

Verifying a password takes 0.1 s of a processor and 64 MiB, and any client can request it. So attempts wait in a queue
of limited length, and are verified one at a time. The addresses of the clients take turns. Sign-ins at a provider,
which may hang, have places in a queue of their own. A browser that signed in to the account before uses another queue,
so a flood of unknown clients can't lock a member out.
"""

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

FREE_GUESSES: Final = 5
"""How many wrong guesses at one account within `WINDOW_SECONDS` cause no delay."""
DELAY_SECONDS_MAX: Final = 2.0
GUESSES_PER_CLIENT: Final = 30
"""How many wrong guesses from one network, or from one known browser, are allowed within `WINDOW_SECONDS`.

They count at any account. Further ones get 429, but the right password is still accepted.
"""
WINDOW_SECONDS: Final = 300
WAITING_PER_ACCOUNT: Final = 3
"""The maximum of waiting attempts at one account from one address."""
WAITING_PER_ADDRESS: Final = 8
"""The maximum of attempts from one address in the queue, including an attempt that is being verified."""
WAITING_MAX: Final = 64
"""The maximum of attempts in a queue."""
_GUESS_KEYS_MAX: Final = 10_000
REFUSALS_MAX: Final = 5
"""How many refused people are logged within `REFUSAL_SECONDS`. More would look like faults of the service."""
REFUSAL_SECONDS: Final = 900


class TooManyWaiting(Exception):
    """There is no place for the attempt, or another attempt got it. Nothing was verified."""


class GuessCounter:
    """Counts the wrong guesses of the last `WINDOW_SECONDS`, in this process. A key names an account or a client.

    A guess that is being verified counts as wrong.
    """

    def __init__(self) -> None:
        self._guess_times: defaultdict[str, list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def count(self, key: str, now_us: int) -> int:
        with self._lock:
            recent = [at for at in self._guess_times.get(key, ()) if at > now_us - WINDOW_SECONDS * 1_000_000]
            if not recent:
                self._guess_times.pop(key, None)
            return len(recent)

    def add(self, key: str, now_us: int) -> None:
        with self._lock:
            if len(self._guess_times) >= _GUESS_KEYS_MAX:
                self._guess_times.clear()
            recent = self._guess_times[key] = [
                at for at in self._guess_times[key] if at > now_us - WINDOW_SECONDS * 1_000_000
            ]
            recent.append(now_us)

    def remove(self, key: str, at_us: int) -> None:
        """Remove the guess that was added at this time. For a guess that was right."""
        with self._lock:
            if at_us in self._guess_times.get(key, ()):
                self._guess_times[key].remove(at_us)


class RefusalReports:
    """Limits the lines of the service log about people whom the provider signs in, and who may not use Hookmill.

    Its users are on one event loop.
    """

    def __init__(self) -> None:
        self._reported_at: dict[str, int] = {}

    def may_report(self, text: str, now_us: int) -> bool:
        """Whether to log the text: each text once within `REFUSAL_SECONDS`, and at most `REFUSALS_MAX` texts."""
        self._reported_at = {
            reported: at for reported, at in self._reported_at.items() if at > now_us - REFUSAL_SECONDS * 1_000_000
        }
        if text in self._reported_at or len(self._reported_at) >= REFUSALS_MAX:
            return False
        self._reported_at[text] = now_us
        return True


class SignInQueue:
    """The sign-in attempts of one event loop, of which each address and each account has few.

    An `address` is the network of a client, or the account of browsers that signed in to it before.
    """

    def __init__(self) -> None:
        self.thread = anyio.CapacityLimiter(1)
        """Limits the verifications of this queue to one thread."""
        self._attempts: dict[asyncio.Timeout, tuple[str, str]] = {}
        """The address and the account of each attempt, oldest first. The timeout serves to remove the attempt."""
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        """By address and account; with an empty account, the lock of the whole address."""
        self._verification_lock = asyncio.Lock()

    @asynccontextmanager
    async def place(self, address: str, account: str = "") -> AsyncIterator[None]:
        """Hold a place. Nobody waits for one.

        Raises `TooManyWaiting` if the address or the account has too many places or all are taken, or if this one is
        taken away, to make room for an attempt from another address.
        """
        attempts = list(self._attempts.values())
        # One attempt of the account is verified, so it does not wait.
        has_too_many = bool(account) and attempts.count((address, account)) > WAITING_PER_ACCOUNT
        if has_too_many or sum(other == address for other, _ in attempts) >= WAITING_PER_ADDRESS:
            raise TooManyWaiting
        if len(attempts) >= WAITING_MAX:
            self._remove_attempt_of_busiest_address()
        try:
            # It limits no time: to remove the attempt, `_remove_attempt_of_busiest_address` lets it expire.
            async with asyncio.timeout(None) as timeout:
                self._attempts[timeout] = address, account
                try:
                    yield
                finally:
                    self._attempts.pop(timeout, None)
        except TimeoutError:
            raise TooManyWaiting from None

    def _remove_attempt_of_busiest_address(self) -> None:
        """Remove the last attempt of the address with the most attempts, so that few addresses can't fill the queue.

        Raises `TooManyWaiting` if no address has more than one attempt.
        """
        [(busiest_address, count)] = Counter(address for address, _ in self._attempts.values()).most_common(1)
        if count == 1:
            raise TooManyWaiting
        last_timeout = [timeout for timeout, (address, _) in self._attempts.items() if address == busiest_address][-1]
        del self._attempts[last_timeout]
        last_timeout.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def wait(self, account: str, address: str) -> AsyncIterator[None]:
        """Hold a place, and wait until earlier attempts at the account from this address are done."""
        try:
            async with self.place(address, account), self._locks[address, account]:
                yield
        finally:
            # An attempt that waits for a lock has a place.
            if (address, account) not in self._attempts.values():
                self._locks.pop((address, account), None)
            if all(other != address for other, _ in self._attempts.values()):
                self._locks.pop((address, ""), None)

    @asynccontextmanager
    async def verifying(self, address: str) -> AsyncIterator[None]:
        """Hold the right to verify a password, inside `wait`.

        The address's lock comes first. So at most one attempt of each address waits for the verification lock, and
        addresses take turns.
        """
        async with self._locks[address, ""], self._verification_lock:
            yield
