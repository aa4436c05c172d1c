"""Traces: which trace a delivery and its runs belong to, and the spans of this trace.

All ids are derived from the keys of deliveries and runs. So two processes that record spans of one trace need not
exchange any ids. Only the trace of a sender, which the delivery continues, is stored.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

import msgspec

from hookmill.domain.ids import DeliveryKey, RunKey

TRACEPARENT_HEADER: Final = b"traceparent"
_TRACEPARENT: Final = re.compile(
    rb"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?\Z"
)
SAMPLED: Final = 0x01
"""The flag of a trace whose spans are recorded."""


class Trace(msgspec.Struct, frozen=True, gc=False):
    """The trace of a delivery or a run. `parent_span_id` is the sender's span; None if the trace begins here."""

    trace_id: bytes
    parent_span_id: bytes | None
    is_sampled: bool
    """Whether spans of this trace are recorded."""

    @classmethod
    def of_sender(cls, traceparent: str) -> Self:
        """The trace in a text that `valid_traceparent` returned."""
        _, trace_id, span_id, flags = traceparent.split("-")
        return cls(bytes.fromhex(trace_id), bytes.fromhex(span_id), bool(int(flags, 16) & SAMPLED))

    @classmethod
    def beginning_with(cls, key: bytes, sample_ratio: float) -> Self:
        """A trace with the key of its delivery, or of a run without a delivery, as its id.

        `sample_ratio` is the share of these traces whose spans are recorded, from 0 to 1.
        """
        return cls(key, None, _is_sampled(key, sample_ratio))

    def traceparent(self, span_id: bytes) -> str:
        """The text that lets another program continue the trace below the span."""
        return f"00-{self.trace_id.hex()}-{span_id.hex()}-{SAMPLED if self.is_sampled else 0:02x}"


def _is_sampled(key: bytes, sample_ratio: float) -> bool:
    # The last 7 bytes of a key are random, as W3C Trace Context recommends for trace ids.
    return int.from_bytes(key[-7:], "big") < sample_ratio * 2**56


def valid_traceparent(header: bytes | None) -> str | None:
    """The sender's trace in version 00 of the W3C format; None if the header is missing or invalid."""
    if header is None or (parts := _TRACEPARENT.match(header.strip())) is None:
        return None
    # Later versions may append fields. Their first four fields are those of version 00.
    is_valid_version = parts["version"] != b"ff" and (parts["version"] != b"00" or parts["more"] is None)
    if not is_valid_version or not int(parts["trace"], 16) or not int(parts["span"], 16):
        return None
    flags = int(parts["flags"], 16) & SAMPLED
    return f"00-{parts['trace'].decode()}-{parts['span'].decode()}-{flags:02x}"


def delivery_span_id(key: DeliveryKey) -> bytes:
    return _span_id(b"delivery", key)


def commit_span_id(key: DeliveryKey) -> bytes:
    return _span_id(b"commit", key)


def run_span_id(key: RunKey) -> bytes:
    return _span_id(b"run", key)


def attempt_span_id(key: RunKey, attempt: int) -> bytes:
    return _span_id(b"attempt %d" % attempt, key)


def _span_id(kind: bytes, key: bytes) -> bytes:
    # A span id must not be zero. A hash is zero once in 2^64 cases.
    return sha256(kind + b"\0" + key).digest()[:8]


AttributeValue = str | int


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A span that has ended. Times are in µs since 1970.

    Attributes contain ids, numbers and words of the service. They never contain text from a sender.
    """

    name: str
    trace: Trace
    span_id: bytes
    parent_span_id: bytes | None
    started_at: int
    ended_at: int
    attributes: Mapping[str, AttributeValue] = msgspec.field(default_factory=dict)
    is_failed: bool = False
    is_request: bool = False
    """Whether it is the span of a request that the service received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """How spans are recorded while tracing is on."""

    record: Callable[[Span], None]
    """Passes a span on to the collector. It never blocks or raises; if too many spans wait, it drops the span."""
    clock: Callable[[], int]
    """Microseconds since 1970."""
    sample_ratio: float = 1.0
    """The share of the traces that begin here whose spans are recorded, from 0 to 1."""

    def trace_of(self, traceparent: str | None, key: bytes) -> Trace:
        """The sender's trace if the delivery continues one; otherwise the trace that begins with the `key`.

        `traceparent` is a text that `valid_traceparent` returned.
        """
        if traceparent is not None:
            return Trace.of_sender(traceparent)
        return Trace.beginning_with(key, self.sample_ratio)

    def sampled_trace_of(self, traceparent: str | None, key: bytes) -> Trace | None:
        """Like `trace_of`, but None if the trace's spans are not recorded. This costs less for most deliveries."""
        if traceparent is None and not _is_sampled(key, self.sample_ratio):
            return None
        trace = self.trace_of(traceparent, key)
        return trace if trace.is_sampled else None
