"""Passwords are verified one at a time, and nobody waits behind those who guess."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
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
from tests.dashboard.client import PASSWORD, Dashboard, dashboard_for_test
from tests.support.passwords import quick_passwords
from tests.support.service import Answer

__all__ = ["quick_passwords"]

ATTACKER = "198.51.100.7"
MEMBER = "203.0.113.5"


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds for which guesses were held up. None of them is waited for."""
    seconds: list[float] = []

    async def note(delay: float) -> None:
        seconds.append(delay)

    monkeypatch.setattr(sign_in, "asyncio", SimpleNamespace(sleep=note))
    return seconds


class Crowd:
    """Attempts that wait, and in which order they were verified."""

    def __init__(self) -> None:
        self.line = SignInQueue()
        self.verified: list[str] = []
        self.refused: list[str] = []
        self.at_once = 0

    async def attempt(self, account: str, address: str) -> None:
        try:
            async with self.line.wait(account, address), self.line.verifying(address):
                self.at_once += 1
                assert self.at_once == 1
                await asyncio.sleep(0)
                self.verified.append(address)
                self.at_once -= 1
        except TooManyWaiting:
            self.refused.append(address)


def crowd(attempts: list[tuple[str, str]]) -> Crowd:
    """What became of attempts, as (account, address), that come at the same time in this order."""
    found = Crowd()

    async def all_at_once() -> None:
        await asyncio.gather(*(found.attempt(*each) for each in attempts))

    asyncio.run(all_at_once())
    return found


def test_attempts_are_verified_one_at_a_time():
    found = crowd([(f"account {number}", f"address {number}") for number in range(20)])

    assert len(found.verified) == 20


def test_addresses_take_turns():
    guesses = [(f"account {number}", ATTACKER) for number in range(WAITING_PER_ADDRESS // 2)]

    found = crowd([*guesses, ("ada", MEMBER)])

    assert found.verified.index(MEMBER) <= 1
    assert len(found.verified) == len(guesses) + 1


@pytest.mark.parametrize(
    ("attempts", "let_in"),
    [
        ([("ada", ATTACKER)] * 20, 1 + WAITING_PER_ACCOUNT),
        ([(f"account {number}", ATTACKER) for number in range(20)], WAITING_PER_ADDRESS),
        ([(f"account {number}", f"address {number}") for number in range(100)], WAITING_MAX),
    ],
)
def test_lines_have_an_end(attempts: list[tuple[str, str]], let_in: int):
    found = crowd(attempts)

    assert (len(found.verified), len(found.refused)) == (let_in, len(attempts) - let_in)


def test_a_full_line_of_one_address_lets_others_in():
    found = crowd([*[("ada", ATTACKER)] * 20, ("ada", MEMBER)])

    assert MEMBER in found.verified


def test_a_flood_from_many_addresses_keeps_no_new_one_out():
    guesses = [(f"account {number}", f"198.51.100.{number % 16}") for number in range(2 * WAITING_MAX)]

    found = crowd([*guesses, ("ada", MEMBER)])

    assert MEMBER in found.verified
    assert len(found.refused) == len(guesses) + 1 - WAITING_MAX


def test_what_is_over_is_forgotten():
    found = Crowd()

    async def cancelled() -> None:
        first, second = (asyncio.ensure_future(found.attempt("ada", address)) for address in (MEMBER, ATTACKER))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await found.attempt("ada", ATTACKER)

    asyncio.run(cancelled())

    assert found.verified == [MEMBER, ATTACKER]
    assert (found.line._addresses_by_timeout, found.line._account_locks, found.line._address_locks) == ({}, {}, {})


def test_guesses_at_the_same_time_are_counted_before_they_are_verified(dashboard: Dashboard, waited: list[float]):
    with ThreadPoolExecutor(12) as guessing:
        guesses = [guessing.submit(guess, dashboard, "ada@example.com", f"198.51.100.{n}") for n in range(12)]

    assert {each.result() for each in guesses} == {401}
    assert sorted(waited) == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_the_right_password_is_not_counted_as_a_guess(dashboard: Dashboard, waited: list[float]):
    dashboard.member("ada@example.com")

    statuses = {guess(dashboard, "ada@example.com", MEMBER, PASSWORD) for _ in range(8)}

    assert statuses == {303}
    assert waited == []


def test_a_known_browser_signs_in_during_a_flood_of_guesses(
    dashboard: Dashboard, waited: list[float], monkeypatch: pytest.MonkeyPatch
):
    dashboard.member("ada@example.com")
    browser = browser_of(signing_in(dashboard, "ada@example.com"))
    for _ in range(40):
        guess(dashboard, "ada@example.com", MEMBER)
    waited.clear()
    wait = SignInQueue.wait

    def is_full(line: SignInQueue, account: str, address: str) -> AbstractAsyncContextManager[None]:
        if not address.startswith("member "):
            raise TooManyWaiting
        return wait(line, account, address)

    monkeypatch.setattr(SignInQueue, "wait", is_full)

    unknown = signing_in(dashboard, "ada@example.com")
    others = signing_in(dashboard, "grace@example.com", browser)
    known = signing_in(dashboard, "ada@example.com", browser)

    assert (unknown.status, others.status, known.status) == (429, 429, 303)
    assert waited == []


def test_the_browsers_of_one_account_take_turns_as_one_client(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch):
    dashboard.member("ada@example.com")
    browsers = [browser_of(signing_in(dashboard, "ada@example.com")) for _ in range(2)]
    turns: list[tuple[str, str]] = []
    wait = SignInQueue.wait

    def noted(line: SignInQueue, account: str, address: str) -> AbstractAsyncContextManager[None]:
        turns.append((account, address))
        return wait(line, account, address)

    monkeypatch.setattr(SignInQueue, "wait", noted)

    statuses = [signing_in(dashboard, "ada@example.com", browser).status for browser in browsers]

    assert statuses == [303, 303]
    assert {address for _, address in turns} == {"member ada@example.com"}
    assert len({account for account, _ in turns}) == 2


def test_a_known_browser_that_guesses_is_slowed_down(dashboard: Dashboard, waited: list[float]):
    dashboard.member("ada@example.com")
    browser = browser_of(signing_in(dashboard, "ada@example.com"))

    statuses = [signing_in(dashboard, "ada@example.com", browser, "a wrong one").status for _ in range(32)]

    assert statuses == [401] * 30 + [429] * 2
    assert waited[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]


@pytest.mark.parametrize("forged", ["", "x", "AAAA" * 20, "é"])
def test_what_no_browser_was_given_makes_none_known(dashboard: Dashboard, forged: str):
    assert dashboard.management.sessions.known_browser_name(forged, "ada@example.com") is None


def browser_of(answer: Answer) -> str:
    """The cookie by which the browser is known, as it sends it."""
    (cookie,) = [cookie for cookie in answer.cookies if cookie.startswith("hookmill-browser=")]
    assert "HttpOnly" in cookie
    return cookie.partition(";")[0]


def signing_in(dashboard: Dashboard, account: str, browser: str = "", password: str = PASSWORD) -> Answer:
    headers = [("X-Forwarded-For", MEMBER), *([("Cookie", browser)] if browser else [])]
    return dashboard.unauthenticated.post("/sign-in", {"email": account, "password": password}, headers=headers)


def guess(dashboard: Dashboard, account: str, address: str, password: str = "not the right one") -> int:
    """The status of the answer."""
    form = {"email": account, "password": password}
    return dashboard.unauthenticated.post("/sign-in", form, headers=[("X-Forwarded-For", address)]).status
