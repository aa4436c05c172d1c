"""Which trace a delivery and its runs belong to."""

import pytest

from hookmill.domain.ids import DeliveryKey, RunKey, time_ordered_key
from hookmill.domain.trace import (
    Trace,
    Tracing,
    attempt_span_id,
    commit_span_id,
    delivery_span_id,
    run_span_id,
    valid_traceparent,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
KEY = bytes(range(16))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01"),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f" 00-{TRACE}-{SPAN}-01\t", f"00-{TRACE}-{SPAN}-01"),
        # Other flags than the sampled one are not passed on.
        (f"00-{TRACE}-{SPAN}-ff", f"00-{TRACE}-{SPAN}-01"),
        (f"00-{TRACE}-{SPAN}-fe", f"00-{TRACE}-{SPAN}-00"),
        # A later version may have more fields.
        (f"cc-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01"),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-holds", f"00-{TRACE}-{SPAN}-01"),
        (f"cc-{TRACE}-{SPAN}-01.what", None),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE[:-1]}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-1", None),
        (f"00-{TRACE}-{SPAN}", None),
        (f"00-{TRACE}-{SPAN}-01\n00-{TRACE}-{SPAN}-01", None),
        ("", None),
        ("\xff", None),
    ],
)
def test_only_valid_traceparent_is_used(header, expected):
    assert valid_traceparent(header.encode("latin-1")) == expected


def test_missing_traceparent_is_none():
    assert valid_traceparent(None) is None


def test_trace_of_a_sender_is_continued():
    trace = Trace.of_sender(f"00-{TRACE}-{SPAN}-01")

    assert (trace.trace_id.hex(), trace.is_sampled) == (TRACE, True)
    assert trace.parent_span_id == bytes.fromhex(SPAN)
    assert trace.traceparent(bytes.fromhex("00" * 7 + "07")) == f"00-{TRACE}-0000000000000007-01"


def test_senders_flag_decides_whether_spans_are_recorded():
    trace = Trace.of_sender(f"00-{TRACE}-{SPAN}-00")

    assert not trace.is_sampled
    assert trace.traceparent(KEY[:8]).endswith("-00")


def test_new_trace_has_the_key_as_its_id():
    trace = Trace.beginning_with(KEY, 1.0)

    assert (trace.trace_id, trace.parent_span_id, trace.is_sampled) == (KEY, None, True)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
def test_share_of_sampled_traces_is_that_of_the_setting(ratio):
    entropies = [(number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "big") for number in range(2_000)]

    sampled = sum(Trace.beginning_with(time_ordered_key(1, entropy), ratio).is_sampled for entropy in entropies)

    assert abs(sampled / 2_000 - ratio) < 0.02


@pytest.mark.parametrize(
    ("traceparent", "ratio", "is_sampled"),
    [
        (None, 1.0, True),
        (None, 0.0, False),
        (f"00-{TRACE}-{SPAN}-01", 0.0, True),
        (f"00-{TRACE}-{SPAN}-00", 1.0, False),
    ],
)
def test_ratio_decides_unless_the_sender_has_decided(traceparent, ratio, is_sampled):
    tracing = Tracing(record=lambda span: None, clock=lambda: 0, sample_ratio=ratio)

    trace = tracing.trace_of(traceparent, KEY)

    assert trace.is_sampled == is_sampled
    assert tracing.sampled_trace_of(traceparent, KEY) == (trace if is_sampled else None)


def test_all_spans_of_a_delivery_have_different_ids():
    key = time_ordered_key(1, b"\0" * 8)
    ids = [
        delivery_span_id(DeliveryKey(key)),
        commit_span_id(DeliveryKey(key)),
        run_span_id(RunKey(key)),
        attempt_span_id(RunKey(key), 1),
        attempt_span_id(RunKey(key), 2),
    ]

    assert len(set(ids)) == len(ids)
    assert {len(span_id) for span_id in ids} == {8}
