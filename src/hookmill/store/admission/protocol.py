"""The messages between an ingress process and its writing process, and how they are framed on the socket."""

from typing import Final

import msgspec

from hookmill.store.admission.plan import Plan
from hookmill.store.admission.transaction import Admission

LENGTH_BYTES: Final = 4

DroppedCount = tuple[int, int, str, int]
"""Attempts that get no row in the log: webhook, start of the minute in µs, kind, how many."""


class NumberedPlan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A plan on its way to the writer. `begin_by` is on the machine's monotonic clock, in seconds."""

    number: int
    begin_by: float
    plan: Plan


class Work(msgspec.Struct, frozen=True, array_like=True):
    """What the event loop sends: plans to admit, and counters to add up."""

    plans: list[NumberedPlan]
    dropped: list[DroppedCount]


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of the plan with this number."""

    number: int
    outcome: Admission


class Report(msgspec.Struct, frozen=True, array_like=True):
    """What the writer sends back; an empty one is its greeting. `failure` is why a batch was not kept, for the log."""

    results: list[Result]
    failure: str = ""


_encode: Final = msgspec.msgpack.Encoder().encode
decode_work: Final = msgspec.msgpack.Decoder(Work).decode
decode_report: Final = msgspec.msgpack.Decoder(Report).decode


def frame(message: Work | Report) -> bytes:
    """The message behind its own length, as it travels."""
    encoded = _encode(message)
    return len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded


class Unframer:
    """Cuts the bytes that arrive into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def messages(self, piece: bytes) -> list[bytes]:
        """The messages that are complete now that `piece` has arrived."""
        self._buffer += piece
        complete, start = [], 0
        while len(self._buffer) - start >= LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(self._buffer[start : start + LENGTH_BYTES], "big")
            if len(self._buffer) < end:
                break
            complete.append(bytes(self._buffer[start + LENGTH_BYTES : end]))
            start = end
        del self._buffer[:start]
        return complete
