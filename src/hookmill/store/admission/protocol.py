"""The messages between an ingress process and its writer process, and their framing on the socket."""

from typing import Final

import msgspec

from hookmill.metrics import ProcessUsage
from hookmill.store.admission.plan import Plan
from hookmill.store.admission.transaction import AdmissionOutcome

LENGTH_BYTES: Final = 4

DroppedCount = tuple[int, int, str, int]
"""A count of dropped attempts: webhook number, start of the minute in µs since 1970, kind, count."""


class NumberedPlan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A plan for the writer, which does not begin it after `begin_by`, in monotonic seconds."""

    number: int
    begin_by: float
    plan: Plan


class Work(msgspec.Struct, frozen=True, array_like=True):
    """A message to the writer: plans to admit, and counts of dropped attempts to add to the counters."""

    plans: list[NumberedPlan]
    dropped_counts: list[DroppedCount]


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of the plan with this number."""

    number: int
    outcome: AdmissionOutcome


class Report(msgspec.Struct, frozen=True, array_like=True):
    """A message from the writer. The first one is empty, and means that the writer is ready.

    `failure` is the reason why a batch was not committed, for the service's log. `seconds` is the duration of the
    batch's transaction. `usage` is that of the writer process; most messages don't have it. `is_unreachable`: the
    batch was not committed because the database's server can't be reached.
    """

    results: list[Result]
    failure: str = ""
    seconds: float = 0.0
    usage: ProcessUsage | None = None
    is_unreachable: bool = False


_encode: Final = msgspec.msgpack.Encoder().encode
decode_work: Final = msgspec.msgpack.Decoder(Work).decode
decode_report: Final = msgspec.msgpack.Decoder(Report).decode


def frame(message: Work | Report) -> bytes:
    """The encoded message, after its length in `LENGTH_BYTES` bytes."""
    encoded = _encode(message)
    return len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded


class Unframer:
    """Splits received bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def messages(self, piece: bytes) -> list[bytes]:
        """Add received bytes, and return the messages that are now complete."""
        self._buffer += piece
        complete_messages, start = [], 0
        while len(self._buffer) - start >= LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(self._buffer[start : start + LENGTH_BYTES], "big")
            if len(self._buffer) < end:
                break
            complete_messages.append(bytes(self._buffer[start + LENGTH_BYTES : end]))
            start = end
        del self._buffer[:start]
        return complete_messages
