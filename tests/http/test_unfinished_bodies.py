"""Bodies that are never completed hold a bounded amount of memory, whoever sends them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hookmill.web import ingress
from hookmill.web.ingress import GaveWay, _BodyReader, _Deadlines

PART = 400


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingress, "UNFINISHED_BYTES_MAX", 2 * PART)
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
        deadlines = _Deadlines()
        senders = [Sender() for _ in range(3)]
        reading = []
        for sender in senders:
            reading.append(asyncio.ensure_future(_BodyReader(sender, {}, deadlines).read()))
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        for sender in senders:
            sender.goes_on.set()
        ended = await asyncio.gather(*reading, return_exceptions=True)
        assert (deadlines._bytes_held, deadlines._held, deadlines._given_way, deadlines._since) == (0, {}, set(), {})
        return ended

    first, *others = asyncio.run(read_three())

    assert isinstance(first, GaveWay)
    assert others == [b"x" * 2 * PART] * 2


def test_bodies_that_are_completed_hold_nothing_of_the_bound():
    async def read_many() -> list[Any]:
        deadlines = _Deadlines()
        ended = []
        for _ in range(20):
            sender = Sender()
            sender.goes_on.set()
            ended.append(await _BodyReader(sender, {}, deadlines).read())
        return ended

    assert asyncio.run(read_many()) == [b"x" * 2 * PART] * 20
