"""The format of times, counts and JSON in the output."""

import os
import subprocess
import sys

import pytest

from hookmill.cli import output
from hookmill.domain.moment import iso_or_none


@pytest.mark.parametrize(
    ("at_us", "text", "json"),
    [
        (1_795_252_356_000_000, "2026-11-21 09:12:36", "2026-11-21T09:12:36.000000Z"),
        (1_795_252_356_999_999, "2026-11-21 09:12:36", "2026-11-21T09:12:36.999999Z"),
        (0, "1970-01-01 00:00:00", "1970-01-01T00:00:00.000000Z"),
        (None, "-", None),
    ],
)
def test_times_are_utc(at_us, text, json):
    assert output.utc(at_us) == text
    assert iso_or_none(at_us) == json


@pytest.mark.parametrize(
    ("number", "text"), [(0, "no deliveries"), (1, "1 delivery"), (2, "2 deliveries"), (1234, "1,234 deliveries")]
)
def test_count_is_printed_with_its_noun(number, text):
    assert output.count(number, "delivery") == text


def test_json_is_one_line_of_ascii():
    assert output.json_line({"a": "ü\x9b\u2028\n"}) == '{"a": "\\u00fc\\u009b\\u2028\\n"}'


def test_printed_line_and_its_end_are_written_together():
    prints = "from hookmill.cli.output import print_json, print_line; print_line('one'); print_json({'two': 2})"
    # In packet mode, each read returns the bytes of one write.
    reader, writer = os.pipe2(os.O_DIRECT)
    with os.fdopen(reader, "rb", buffering=0) as packets:
        with os.fdopen(writer, "wb") as stdout:
            environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
            subprocess.run([sys.executable, "-c", prints], stdout=stdout, env=environment, timeout=60, check=True)
        writes = [packets.read(4_096) for _ in range(2)]

    assert writes == [b"one\n", b'{"two": 2}\n']
