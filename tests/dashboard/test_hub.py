"""Who watches the log, as the server's process keeps them."""

import asyncio
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hookmill.web.dashboard.live import Hub


@pytest.fixture
def hub() -> Iterator[Hub]:
    """One that the process's signals end, as in a server, for as long as the test lasts."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Hub()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_failure_is_told_of_although_everybody_left_meanwhile(hub: Hub):
    told: list[str] = []

    def leave_and_fail(*_: object, **__: object) -> None:
        hub.leave(watcher)
        raise ZeroDivisionError

    visit = SimpleNamespace(
        session="one",
        client=None,
        service=SimpleNamespace(failed=lambda where, error: told.append(f"{where}: {error!r}")),
        management=SimpleNamespace(sessions=SimpleNamespace(by_token=leave_and_fail)),
    )
    watcher: Any = SimpleNamespace(visit=visit)

    async def scene() -> None:
        hub.join(watcher)
        assert hub._looking is not None
        await hub._looking

    asyncio.run(scene())

    assert told == ["live log: ZeroDivisionError()"]
