"""Attacks on the dashboard and the API, twice as large as those that once kept real senders out."""

import asyncio
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlencode

import pytest

from hookmill.app.connections import CROWDED_SECONDS
from hookmill.domain.permission import Role
from hookmill.management import Management, WebhookWithSecret
from tests.dashboard.client import FORM, PASSWORD
from tests.http.conftest import ENOUGH
from tests.http.test_floods import honest_sender, meanwhile, memory_grown
from tests.http.test_slow_clients import for_large_answers
from tests.support.counts import count
from tests.support.service import Service, operator, serving
from tests.support.waiting import stalls

FILES_MAX: Final = 400
"""Of which 272 are left for connections."""
MEGABYTE: Final = 1_000_000
ATTACK_SECONDS: Final = count(40, usually=2)


@pytest.fixture(scope="module")
def small_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that an attacker can outnumber."""
    with serving(
        tmp_path_factory.mktemp("small"), **ENOUGH, test_files_max=FILES_MAX, trusted_proxies="127.0.0.1"
    ) as service:
        yield service


@pytest.fixture(scope="module")
def management(small_service: Service) -> Iterator[Management]:
    with small_service.management() as operations:
        yield operations


@pytest.fixture(scope="module")
def webhook(management: Management) -> WebhookWithSecret:
    return management.webhooks.create(operator(management), "real")


def test_forms_that_never_end_keep_no_delivery_waiting(small_service: Service, webhook: WebhookWithSecret):
    with honest_sender(small_service, webhook, rest=0.05) as waits:
        attack(small_service, 600, form_head("/sign-in", 16_000) + b"email=a")

    assert max(waits) < 2.0


@pytest.mark.parametrize("path", ["/sign-in", "/welcome/unknown", "/f/default/webhooks/new"])
def test_forms_of_unauthenticated_clients_hold_little_memory(
    small_service: Service, webhook: WebhookWithSecret, path: str
):
    offered = form_head(path, MEGABYTE) + b"email=" + b"a" * (MEGABYTE - 1_000)

    with memory_grown(small_service) as grown, honest_sender(small_service, webhook, rest=0.05) as waits:
        attack(small_service, 200, offered, seconds=2)

    assert max(waits) < 2.0
    assert max(grown) < 32 * MEGABYTE


@pytest.mark.parametrize("path", ["/api/v1/openapi.json", "/api/v1/me", "/sign-in"])
def test_answers_that_nobody_reads_keep_no_delivery_waiting(
    small_service: Service, webhook: WebhookWithSecret, path: str
):
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    with memory_grown(small_service) as grown, honest_sender(small_service, webhook, rest=0.05) as waits:
        attack(small_service, 560, request * 40)

    assert max(waits) < 2.0
    assert max(grown) < 64 * MEGABYTE


def test_clients_with_a_key_that_read_no_answers_give_way(
    small_service: Service, management: Management, webhook: WebhookWithSecret
):
    # Each key has its own 600 requests a minute.
    requests = [for_large_answers(small_service, management) * 20 for _ in range(10)]

    with honest_sender(small_service, webhook, rest=0.05) as waits:
        attack(small_service, 280, *requests, seconds=5 * CROWDED_SECONDS)

    assert max(waits) < 3 * CROWDED_SECONDS


@pytest.mark.parametrize("account", ["ada@example.com", "nobody-{}@example.com"])
def test_a_flood_of_guesses_slows_nobody_else(
    small_service: Service, management: Management, webhook: WebhookWithSecret, account: str
):
    member = signed_up(management)
    browser = management.sessions.browser_token("ada@example.com").reveal()
    key = management.keys.create(management.access.operator_of_team(), account, Role.VIEWER, factory="default")
    pages: list[float] = []
    answers: list[float] = []
    sign_ins: list[float] = []

    def look_once() -> None:
        pages.append(seconds_to_a_200(small_service, "/f/default", {"Cookie": f"hookmill={member}"}))
        bearer = {"Authorization": f"Bearer {key.token.reveal()}"}
        answers.append(seconds_to_a_200(small_service, "/api/v1/me", bearer))

    def look(leave: threading.Event) -> None:
        while not leave.wait(0.1):
            look_once()

    def sign_in(_leave: threading.Event) -> None:
        time.sleep(ATTACK_SECONDS / 2)
        sign_ins.append(seconds_to_sign_in(small_service, browser))

    # Other tests may use the processors at the same time, so each bound allows for the time that it takes without a
    # flood.
    look_once()
    sign_ins.append(seconds_to_sign_in(small_service, browser))
    with honest_sender(small_service, webhook, rest=0.05) as waits, meanwhile(look), meanwhile(sign_in):
        guessed = guess(small_service, account, connections=120)

    assert max(waits) < 2.0
    assert max(pages) < 1.0 + 5 * pages[0]
    assert max(answers) < 1.0 + 5 * answers[0]
    assert sign_ins[1] < 2.0 + 3 * sign_ins[0]
    # A form that gave way to newer ones is answered 408.
    assert set(guessed) <= {401, 408, 429, 503}
    assert guessed[429] > 0


def signed_up(management: Management) -> str:
    """A session of a member, who is made the first time."""
    token = management.sessions.sign_in("ada@example.com", PASSWORD, client=None)
    if token is None:
        link = management.sessions.create_first_link()
        assert link is not None
        token = management.sessions.accept_link(
            link.reveal(), password=PASSWORD, email="ada@example.com", name="Ada", client=None
        )
    return token.reveal()


def guess(service: Service, account: str, *, connections: int) -> Counter[int]:
    """Wrong passwords from one address, each connection as fast as it is answered. How often each status came."""
    statuses: Counter[int] = Counter()

    async def guess_on(number: int, deadline: float) -> None:
        form = urlencode({"email": account.format(number), "password": "not the right one"}).encode()
        head = form_head("/sign-in", len(form)).replace(b"Host: x", b"Host: x\r\nX-Forwarded-For: 198.51.100.7")
        while time.monotonic() < deadline:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(head + form)
            answer = await reader.read()
            statuses[int(answer.split(b" ", 2)[1])] += 1
            writer.close()

    async def all_of_them() -> None:
        deadline = time.monotonic() + ATTACK_SECONDS
        await asyncio.gather(*(guess_on(number, deadline) for number in range(connections)))

    asyncio.run(all_of_them())
    return statuses


def seconds_to_a_200(service: Service, path: str, headers: Mapping[str, str]) -> float:
    """Without those for which the whole machine stood still."""
    started = time.monotonic()
    with stalls() as stood_still:
        assert service.request("GET", path, headers=headers).status == 200
        seconds = time.monotonic() - started
    return seconds - sum(stood_still)


def seconds_to_sign_in(service: Service, browser: str) -> float:
    """With the right password, from a browser that is known and the address of those who guess."""
    form = urlencode({"email": "ada@example.com", "password": PASSWORD}).encode()
    headers = {
        "Content-Type": FORM,
        "Sec-Fetch-Site": "same-origin",
        "X-Forwarded-For": "198.51.100.7",
        "Cookie": f"hookmill-browser={browser}",
    }
    started = time.monotonic()
    answer = service.request("POST", "/sign-in", headers=headers, body=form)
    assert answer.status == 303
    return time.monotonic() - started


def form_head(path: str, length: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nContent-Type: {FORM}\r\nContent-Length: {length}"
    return f"{head}\r\n\r\n".encode()


def attack(service: Service, connections: int, *sent: bytes, seconds: float = ATTACK_SECONDS) -> None:
    """Open so many connections at once, send as much of one of these on each as it takes, and read nothing."""
    with ExitStack() as held:
        selector = held.enter_context(selectors.DefaultSelector())
        for number in range(connections):
            client = held.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", service.port))
            selector.register(client, selectors.EVENT_WRITE, memoryview(sent[number % len(sent)]))
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                send_some(selector, key)


def send_some(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    client = key.fileobj
    assert isinstance(client, socket.socket)
    try:
        rest = key.data[client.send(key.data[:65_536]) :]
    except BlockingIOError:
        return
    except OSError:
        selector.unregister(client)
        return
    if rest:
        selector.modify(client, selectors.EVENT_WRITE, rest)
    else:
        selector.unregister(client)
