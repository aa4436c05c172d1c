"""Who watches the log, as the server's process keeps them."""

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from hookmill.web.dashboard.live import Hub, Wanted, Watcher
from hookmill.web.dashboard.page_context import PageContext, Service
from tests.support.world import World


@pytest.fixture
def hub() -> Iterator[Hub]:
    """It hears the signals that end a server, for as long as the test lasts."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Hub()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_failure_is_logged_although_every_listener_has_left(hub: Hub, world: World):
    told: list[str] = []
    service = Service(
        management=world.management,
        now_us=world.clock,
        failed=lambda where, _: told.append(where),
        is_https=False,
    )
    unforeseen: Any = object()
    context = PageContext(request=Request({"type": "http"}), service=service, client=None, session=unforeseen)
    watcher = Watcher(context=context, may=world.may, wanted=Wanted(), filters={}, after=None)

    async def scene() -> None:
        hub.join(watcher)
        assert hub._looking is not None
        # The look is begun, in a thread, and what it found is not yet heard of.
        await asyncio.sleep(0)
        hub.leave(watcher)
        await hub._looking

    asyncio.run(scene())

    assert told == ["live log"]
