"""The queue of sign-in attempts: passwords are verified one at a time, and guesses do not lock members out."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import SimpleNamespace

import pytest

from hookmill.web.dashboard import sign_in
from hookmill.web.dashboard.sign_in_limits import (
    WAITING_MAX,
    WAITING_PER_ACCOUNT,
    WAITING_PER_ADDRESS,
    SignInQueue,
    TooManyWaiting,
)
from tests.dashboard.client import PASSWORD, Dashboard
from tests.support.passwords import quick_passwords
from tests.support.service import Answer

__all__ = ["quick_passwords"]

ATTACKER_ADDRESS = "198.51.100.7"
MEMBER_ADDRESS = "203.0.113.5"


@pytest.fixture
def delays(monkeypatch):
    """The delays of guesses, in seconds. They are recorded instead of waited for."""
    delays: list[float] = []

    async def record_delay(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr(sign_in, "asyncio", SimpleNamespace(sleep=record_delay))
    return delays


class Attempts:
    """Attempts in a queue. `verified` and `rejected` are their addresses, in the order of the decisions."""

    def __init__(self) -> None:
        self.queue = SignInQueue()
        self.verified: list[str] = []
        self.rejected: list[str] = []
        self._verifying = 0

    async def attempt(self, account: str, address: str) -> None:
        try:
            async with self.queue.wait(account, address), self.queue.verifying(address):
                self._verifying += 1
                assert self._verifying == 1
                await asyncio.sleep(0)
                self.verified.append(address)
                self._verifying -= 1
        except TooManyWaiting:
            self.rejected.append(address)


def attempt_all(accounts_and_addresses: list[tuple[str, str]]) -> Attempts:
    """Make these attempts at the same time, in this order."""
    attempts = Attempts()

    async def attempt_concurrently() -> None:
        await asyncio.gather(*(attempts.attempt(account, address) for account, address in accounts_and_addresses))

    asyncio.run(attempt_concurrently())
    return attempts


def test_attempts_are_verified_one_at_a_time():
    attempts = attempt_all([(f"account {number}", f"address {number}") for number in range(20)])

    assert len(attempts.verified) == 20


def test_addresses_take_turns():
    guesses = [(f"account {number}", ATTACKER_ADDRESS) for number in range(WAITING_PER_ADDRESS // 2)]

    attempts = attempt_all([*guesses, ("ada", MEMBER_ADDRESS)])

    assert attempts.verified.index(MEMBER_ADDRESS) <= 1
    assert len(attempts.verified) == len(guesses) + 1


@pytest.mark.parametrize(
    ("guesses", "verified_count"),
    [
        ([("ada", ATTACKER_ADDRESS)] * 20, 1 + WAITING_PER_ACCOUNT),
        ([(f"account {number}", ATTACKER_ADDRESS) for number in range(20)], WAITING_PER_ADDRESS),
        ([(f"account {number}", f"address {number}") for number in range(100)], WAITING_MAX),
    ],
)
def test_attempts_over_a_limit_are_rejected(guesses, verified_count):
    attempts = attempt_all(guesses)

    assert len(attempts.verified) == verified_count
    assert len(attempts.rejected) == len(guesses) - verified_count


def test_attempts_over_the_limit_of_an_address_reject_no_other_address():
    attempts = attempt_all([*[("ada", ATTACKER_ADDRESS)] * 20, ("ada", MEMBER_ADDRESS)])

    assert MEMBER_ADDRESS in attempts.verified


def test_attempt_from_a_new_address_is_verified_although_queue_is_full():
    guesses = [(f"account {number}", f"198.51.100.{number % 16}") for number in range(2 * WAITING_MAX)]

    attempts = attempt_all([*guesses, ("ada", MEMBER_ADDRESS)])

    assert MEMBER_ADDRESS in attempts.verified
    assert len(attempts.rejected) == len(guesses) + 1 - WAITING_MAX


def test_queue_is_empty_after_verified_and_cancelled_attempts():
    attempts = Attempts()

    async def cancel_one() -> None:
        verified, cancelled = (
            asyncio.ensure_future(attempts.attempt("ada", address)) for address in (MEMBER_ADDRESS, ATTACKER_ADDRESS)
        )
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(verified, cancelled, return_exceptions=True)
        await attempts.attempt("ada", ATTACKER_ADDRESS)

    asyncio.run(cancel_one())

    queue = attempts.queue
    assert attempts.verified == [MEMBER_ADDRESS, ATTACKER_ADDRESS]
    assert (queue._attempts, queue._locks) == ({}, {})


def test_concurrent_guesses_are_counted_before_they_are_verified(dashboard, delays):
    with ThreadPoolExecutor(12) as threads:
        guesses = [threads.submit(guess, dashboard, "ada@example.com", f"198.51.100.{n}") for n in range(12)]

    assert {status.result() for status in guesses} == {401}
    assert sorted(delays) == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_right_password_is_not_counted_as_a_guess(dashboard, delays):
    dashboard.member("ada@example.com")

    statuses = {submit_sign_in(dashboard, "ada@example.com").status for _ in range(8)}

    assert statuses == {303}
    assert delays == []


def test_known_browser_can_sign_in_during_a_flood_of_guesses(dashboard, delays, monkeypatch):
    dashboard.member("ada@example.com")
    browser = browser_cookie(submit_sign_in(dashboard, "ada@example.com"))
    for _ in range(40):
        guess(dashboard, "ada@example.com", MEMBER_ADDRESS)
    delays.clear()
    wait = SignInQueue.wait

    def reject_unknown_browsers(queue: SignInQueue, account: str, address: str) -> AbstractAsyncContextManager[None]:
        if not address.startswith("member "):
            raise TooManyWaiting
        return wait(queue, account, address)

    monkeypatch.setattr(SignInQueue, "wait", reject_unknown_browsers)

    unknown_browser = submit_sign_in(dashboard, "ada@example.com")
    browser_of_another_account = submit_sign_in(dashboard, "grace@example.com", browser)
    known_browser = submit_sign_in(dashboard, "ada@example.com", browser)

    assert (unknown_browser.status, browser_of_another_account.status, known_browser.status) == (429, 429, 303)
    assert delays == []


def test_known_browsers_of_an_account_take_turns_as_one_address(dashboard, monkeypatch):
    dashboard.member("ada@example.com")
    browsers = [browser_cookie(submit_sign_in(dashboard, "ada@example.com")) for _ in range(2)]
    attempts: list[tuple[str, str]] = []
    wait = SignInQueue.wait

    def record_attempt(queue: SignInQueue, account: str, address: str) -> AbstractAsyncContextManager[None]:
        attempts.append((account, address))
        return wait(queue, account, address)

    monkeypatch.setattr(SignInQueue, "wait", record_attempt)

    statuses = [submit_sign_in(dashboard, "ada@example.com", browser).status for browser in browsers]

    assert statuses == [303, 303]
    assert {address for _, address in attempts} == {"member ada@example.com"}
    assert len({account for account, _ in attempts}) == 2


def test_guesses_of_a_known_browser_are_delayed_and_limited(dashboard, delays):
    dashboard.member("ada@example.com")
    browser = browser_cookie(submit_sign_in(dashboard, "ada@example.com"))

    statuses = [submit_sign_in(dashboard, "ada@example.com", browser, "a wrong one").status for _ in range(32)]

    assert statuses == [401] * 30 + [429] * 2
    assert delays[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]


@pytest.mark.parametrize("cookie", ["", "x", "AAAA" * 20, "é"])
def test_forged_browser_cookie_makes_no_browser_known(dashboard, cookie):
    assert dashboard.management.sessions.known_browser(cookie) is None


def test_one_address_can_not_take_all_places_of_the_provider():
    async def take_places() -> None:
        queue = SignInQueue()
        async with AsyncExitStack() as stack:
            for _ in range(WAITING_PER_ADDRESS):
                await stack.enter_async_context(queue.place("one"))
            with pytest.raises(TooManyWaiting):
                await stack.enter_async_context(queue.place("one"))
            await stack.enter_async_context(queue.place("another"))
        async with queue.place("one"):
            pass

    asyncio.run(take_places())


def browser_cookie(answer: Answer) -> str:
    """The cookie of a known browser, as the browser sends it."""
    (cookie,) = [cookie for cookie in answer.cookies if cookie.startswith("hookmill-browser=")]
    assert "HttpOnly" in cookie
    return cookie.partition(";")[0]


def submit_sign_in(dashboard: Dashboard, account: str, browser: str = "", password: str = PASSWORD) -> Answer:
    """`browser` is the cookie of a known browser."""
    headers = [("X-Forwarded-For", MEMBER_ADDRESS), *([("Cookie", browser)] if browser else [])]
    return dashboard.unauthenticated.post("/sign-in", {"email": account, "password": password}, headers=headers)


def guess(dashboard: Dashboard, account: str, address: str) -> int:
    """Submit a wrong password. Returns the status."""
    form = {"email": account, "password": "not the right one"}
    return dashboard.unauthenticated.post("/sign-in", form, headers=[("X-Forwarded-For", address)]).status
