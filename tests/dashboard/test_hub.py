"""The hub of the live delivery log, which polls the database for all watchers of a process."""

import asyncio
import signal
from typing import Any

import pytest
from starlette.requests import Request

from hookmill.web.dashboard.live import Hub, LogFilter, Watcher
from hookmill.web.dashboard.page_context import PageContext, Service


@pytest.fixture
def hub():
    """A hub. Its signal handlers are removed after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Hub()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_failed_poll_is_reported_although_all_watchers_have_left(hub, world):
    failures: list[str] = []
    service = Service(
        management=world.management,
        now_us=world.clock,
        report_failure=lambda where, _: failures.append(where),
        is_https=False,
    )
    # Looking up this session fails, and so does the poll.
    invalid_token: Any = object()
    context = PageContext(request=Request({"type": "http"}), service=service, client=None, session_token=invalid_token)
    watcher = Watcher(context=context, may=world.may, log_filter=LogFilter(), filters={}, newest_key=None)

    async def leave_during_the_poll() -> None:
        hub.join(watcher)
        assert hub._poll_task is not None
        # The poll runs in a thread, and its result is not handled yet.
        await asyncio.sleep(0)
        hub.leave(watcher)
        await hub._poll_task

    asyncio.run(leave_during_the_poll())

    assert failures == ["live log"]
