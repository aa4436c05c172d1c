"""Which timestamps are valid, and which time they have."""

import pytest

from hookmill.domain.signatures.encoding import TimeUnit, seconds_since_1970


@pytest.mark.parametrize(
    ("text", "unit", "seconds"),
    [
        (b"1760000000", TimeUnit.SECONDS, 1_760_000_000),
        (b"0", TimeUnit.SECONDS, 0),
        (b"1760000000999", TimeUnit.MILLISECONDS, 1_760_000_000),
        (b"2025-10-09T08:53:20Z", TimeUnit.ISO8601, 1_760_000_000),
        (b"2025-10-09T08:53:20.999999999Z", TimeUnit.ISO8601, 1_760_000_000),
        (b"2025-10-09T10:53:20+02:00", TimeUnit.ISO8601, 1_760_000_000),
        (b"2025-10-09T03:23:20-05:30", TimeUnit.ISO8601, 1_760_000_000),
    ],
)
def test_timestamp_is_read_in_its_unit(text, unit, seconds):
    assert seconds_since_1970(text, unit) == seconds


@pytest.mark.parametrize("text", [b"", b" 176000", b"176000 ", b"1_760", b"+1", b"-1", b"1.5", b"1" * 16, b"1\n"])
@pytest.mark.parametrize("unit", list(TimeUnit))
def test_text_in_another_format_is_not_a_timestamp(text, unit):
    assert seconds_since_1970(text, unit) is None
