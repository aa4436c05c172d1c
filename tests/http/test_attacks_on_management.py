"""Attacks on the dashboard and the API don't delay deliveries. They are twice as large as attacks that once did."""

import asyncio
import selectors
import socket
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlencode

import pytest

from hookmill.app.connections import CROWDED_SECONDS
from hookmill.domain.permission import Role
from tests.dashboard.client import FORM, PASSWORD
from tests.http.conftest import UNLIMITED
from tests.http.test_floods import in_background, memory_growth, valid_sender
from tests.http.test_slow_clients import request_for_large_answer
from tests.support.counts import count, only_in_proof
from tests.support.service import Service, create_webhook, serving
from tests.support.waiting import stalls

FILES_MAX: Final = 400
"""The service reserves 128 of them, so it accepts 272 connections."""
MEGABYTE: Final = 1_000_000
ATTACK_SECONDS: Final = count(40, usually=2)


@pytest.fixture(scope="module")
def small_service(tmp_path_factory):
    """A service that accepts fewer connections than the attacks open."""
    with serving(
        tmp_path_factory.mktemp("small"), **UNLIMITED, test_files_max=FILES_MAX, trusted_proxies="127.0.0.1"
    ) as service:
        yield service


@pytest.fixture(scope="module")
def management(small_service):
    with small_service.management() as operations:
        yield operations


@pytest.fixture(scope="module")
def webhook(management):
    return create_webhook(management, "valid")


def test_unfinished_forms_delay_no_delivery(small_service, webhook):
    with valid_sender(small_service, webhook, pause_seconds=0.05) as answer_seconds:
        attack(small_service, 600, form_head("/sign-in", 16_000) + b"email=a")

    assert max(answer_seconds) < 2.0


@pytest.mark.parametrize("path", ["/sign-in", "/welcome/unknown", "/f/default/webhooks/new"])
def test_forms_of_unauthenticated_clients_use_little_memory(small_service, webhook, path):
    form = form_head(path, MEGABYTE) + b"email=" + b"a" * (MEGABYTE - 1_000)

    with (
        memory_growth(small_service) as growth,
        valid_sender(small_service, webhook, pause_seconds=0.05) as answer_seconds,
    ):
        attack(small_service, 200, form, seconds=2)

    assert max(answer_seconds) < 2.0
    assert max(growth) < 32 * MEGABYTE


@pytest.mark.parametrize("path", ["/api/v1/openapi.json", "/api/v1/me", "/sign-in"])
def test_clients_that_read_no_answers_delay_no_delivery(small_service, webhook, path):
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    with (
        memory_growth(small_service) as growth,
        valid_sender(small_service, webhook, pause_seconds=0.05) as answer_seconds,
    ):
        attack(small_service, 560, request * 40)

    assert max(answer_seconds) < 2.0
    assert max(growth) < 64 * MEGABYTE


def test_api_clients_that_read_no_answers_delay_deliveries_only_briefly(small_service, management, webhook):
    # Several keys, because each key is limited to 600 requests a minute.
    requests = [request_for_large_answer(small_service, management) * 20 for _ in range(10)]

    with valid_sender(small_service, webhook, pause_seconds=0.05) as answer_seconds:
        attack(small_service, 280, *requests, seconds=5 * CROWDED_SECONDS)

    assert max(answer_seconds) < 3 * CROWDED_SECONDS


@pytest.mark.parametrize("account", ["ada@example.com", only_in_proof("nobody-{}@example.com")])
def test_flood_of_wrong_passwords_delays_no_other_client(small_service, management, webhook, account):
    session = member_session(management)
    browser = management.sessions.browser_token("ada@example.com").reveal()
    key = management.keys.create(management.access.operator_of_team(), account, Role.VIEWER, factory="default")
    page_seconds: list[float] = []
    api_seconds: list[float] = []
    sign_in_seconds: list[float] = []

    def measure():
        page_seconds.append(seconds_to_200(small_service, "/f/default", {"Cookie": f"hookmill={session}"}))
        bearer = {"Authorization": f"Bearer {key.token.reveal()}"}
        api_seconds.append(seconds_to_200(small_service, "/api/v1/me", bearer))

    def measure_repeatedly(is_over):
        while not is_over.wait(0.1):
            measure()

    def sign_in(_is_over):
        time.sleep(ATTACK_SECONDS / 2)
        sign_in_seconds.append(seconds_to_sign_in(small_service, browser))

    # Other tests may use the processors at the same time, so each bound allows for the time that it takes without a
    # flood.
    measure()
    sign_in_seconds.append(seconds_to_sign_in(small_service, browser))
    with (
        valid_sender(small_service, webhook, pause_seconds=0.05) as answer_seconds,
        in_background(measure_repeatedly),
        in_background(sign_in),
    ):
        statuses = send_wrong_passwords(small_service, account, connections=120)

    assert max(answer_seconds) < 2.0
    assert max(page_seconds) < 2.0 + 5 * page_seconds[0]
    assert max(api_seconds) < 2.0 + 5 * api_seconds[0]
    assert sign_in_seconds[1] < 2.0 + 3 * sign_in_seconds[0]
    # 408 is the answer to a form that was evicted in favor of newer ones.
    assert set(statuses) <= {401, 408, 429, 503}
    assert statuses[429] > 0


def member_session(management):
    """A session of a member. The first call creates the member."""
    token = management.sessions.sign_in("ada@example.com", PASSWORD, client=None)
    if token is None:
        link = management.sessions.create_first_link()
        assert link is not None
        token = management.sessions.accept_link(
            link.reveal(), password=PASSWORD, email="ada@example.com", name="Ada", client=None
        )
    return token.reveal()


def send_wrong_passwords(service: Service, account: str, *, connections: int) -> Counter[int]:
    """Send wrong passwords from one address, on several connections without pauses. Returns the answers by status."""
    statuses: Counter[int] = Counter()

    async def send_repeatedly(number: int, deadline: float):
        form = urlencode({"email": account.format(number), "password": "not the right one"}).encode()
        head = form_head("/sign-in", len(form)).replace(b"Host: x", b"Host: x\r\nX-Forwarded-For: 198.51.100.7")
        while time.monotonic() < deadline:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(head + form)
            answer = await reader.read()
            statuses[int(answer.split(b" ", 2)[1])] += 1
            writer.close()

    async def run_all():
        deadline = time.monotonic() + ATTACK_SECONDS
        await asyncio.gather(*(send_repeatedly(number, deadline) for number in range(connections)))

    asyncio.run(run_all())
    return statuses


def seconds_to_200(service: Service, path: str, headers: Mapping[str, str]) -> float:
    """The seconds until the answer, without stalls of the machine."""
    began = time.monotonic()
    with stalls() as stall_seconds:
        assert service.request("GET", path, headers=headers).status == 200
        seconds = time.monotonic() - began
    return seconds - sum(stall_seconds)


def seconds_to_sign_in(service: Service, browser: str) -> float:
    """Sign in with the right password, from a known browser, with the client address of the attackers."""
    form = urlencode({"email": "ada@example.com", "password": PASSWORD}).encode()
    headers = {
        "Content-Type": FORM,
        "Sec-Fetch-Site": "same-origin",
        "X-Forwarded-For": "198.51.100.7",
        "Cookie": f"hookmill-browser={browser}",
    }
    began = time.monotonic()
    with stalls() as stall_seconds:
        answer = service.request("POST", "/sign-in", headers=headers, body=form)
        seconds = time.monotonic() - began
    assert answer.status == 303
    return seconds - sum(stall_seconds)


def form_head(path: str, length: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nContent-Type: {FORM}\r\nContent-Length: {length}"
    return f"{head}\r\n\r\n".encode()


def attack(service: Service, connections: int, *requests: bytes, seconds: float = ATTACK_SECONDS):
    """Open the connections at the same time. On each, send as much of a request as the service reads, but read nothing.

    The requests are used in turn.
    """
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for number in range(connections):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", service.port))
            selector.register(client, selectors.EVENT_WRITE, memoryview(requests[number % len(requests)]))
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(remaining):
                send_part(selector, key)


def send_part(selector: selectors.BaseSelector, key: selectors.SelectorKey):
    client = key.fileobj
    assert isinstance(client, socket.socket)
    try:
        unsent = key.data[client.send(key.data[:65_536]) :]
    except BlockingIOError:
        return
    except OSError:
        selector.unregister(client)
        return
    if unsent:
        selector.modify(client, selectors.EVENT_WRITE, unsent)
    else:
        selector.unregister(client)
