"""Incomplete bodies use a bounded amount of memory."""

import asyncio
from typing import Any

import pytest

from hookmill.web import delivery_body
from hookmill.web.delivery_body import BodyEvicted, DeliveryBodies

PART_BYTES = 400


@pytest.fixture(autouse=True)
def low_memory_limit():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery_body, "INCOMPLETE_BYTES_MAX", 2 * PART_BYTES)
        yield


class Sender:
    """Sends the first part of a body, and the last part when `may_finish` is set."""

    def __init__(self):
        self.may_finish = asyncio.Event()
        self._parts = 0

    async def __call__(self) -> dict[str, Any]:
        self._parts += 1
        if self._parts > 1:
            await self.may_finish.wait()
        return {"type": "http.request", "body": b"x" * PART_BYTES, "more_body": self._parts == 1}


def test_oldest_incomplete_body_is_evicted_at_the_memory_limit():
    async def read_three():
        bodies = DeliveryBodies()
        senders = [Sender() for _ in range(3)]
        tasks = []
        for sender in senders:
            tasks.append(asyncio.ensure_future(bodies.read(sender, {})))
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        for sender in senders:
            sender.may_finish.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert (bodies._total_bytes, bodies._sizes, bodies._evicted_tasks, bodies._start_times) == (0, {}, set(), {})
        return results

    first, *others = asyncio.run(read_three())

    assert isinstance(first, BodyEvicted)
    assert others == [b"x" * 2 * PART_BYTES] * 2


def test_complete_bodies_do_not_count_toward_the_memory_limit():
    async def read_many():
        bodies = DeliveryBodies()
        results = []
        for _ in range(20):
            sender = Sender()
            sender.may_finish.set()
            results.append(await bodies.read(sender, {}))
        return results

    assert asyncio.run(read_many()) == [b"x" * 2 * PART_BYTES] * 20
