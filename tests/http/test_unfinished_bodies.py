"""Bodies that are never completed hold a bounded amount of memory, whoever sends them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hookmill.web import delivery_body
from hookmill.web.delivery_body import BodyEvicted, DeliveryBodies

PART = 400


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery_body, "INCOMPLETE_BYTES_MAX", 2 * PART)
        yield


class Sender:
    """Sends one part of a body, and the last one when it is told to."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self._parts = 0

    async def __call__(self) -> dict[str, Any]:
        self._parts += 1
        if self._parts > 1:
            await self.goes_on.wait()
        return {"type": "http.request", "body": b"x" * PART, "more_body": self._parts == 1}


def test_the_oldest_unfinished_body_gives_way():
    async def read_three() -> list[Any]:
        bodies = DeliveryBodies()
        senders = [Sender() for _ in range(3)]
        reading = []
        for sender in senders:
            reading.append(asyncio.ensure_future(bodies.read(sender, {})))
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        for sender in senders:
            sender.goes_on.set()
        ended = await asyncio.gather(*reading, return_exceptions=True)
        assert (bodies._total_bytes, bodies._sizes, bodies._evicted_tasks, bodies._start_times) == (0, {}, set(), {})
        return ended

    first, *others = asyncio.run(read_three())

    assert isinstance(first, BodyEvicted)
    assert others == [b"x" * 2 * PART] * 2


def test_bodies_that_are_completed_hold_nothing_of_the_bound():
    async def read_many() -> list[Any]:
        bodies = DeliveryBodies()
        ended = []
        for _ in range(20):
            sender = Sender()
            sender.goes_on.set()
            ended.append(await bodies.read(sender, {}))
        return ended

    assert asyncio.run(read_many()) == [b"x" * 2 * PART] * 20
