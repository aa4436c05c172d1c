"""The reader of bodies for the API and the dashboard."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from hookmill.web.body import BodyReader, BodyTooSlow

SCOPE = {"headers": [(b"content-length", b"2")]}


async def never() -> MutableMapping[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


async def complete_body() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"{}", "more_body": False}


def test_eviction_does_not_extend_the_time_limit_of_a_body():
    async def read_one_during_another():
        reader = BodyReader(1, grace_seconds=600)
        slow = asyncio.create_task(reader.read(SCOPE, never, bytes_max=2, seconds=0.01))
        await asyncio.sleep(0)
        body = await reader.read(SCOPE, complete_body, bytes_max=2, seconds=60)
        async with asyncio.timeout(60):
            with pytest.raises(BodyTooSlow):
                await slow
        return body

    assert asyncio.run(read_one_during_another()) == b"{}"
