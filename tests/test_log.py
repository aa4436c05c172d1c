"""The service's log: repeated errors are suppressed, and other errors are not."""

import json
import os
import subprocess
import sys
import time

import pytest

from hookmill.app import log
from hookmill.app.log import REPEATS_LOGGED, REPEATS_SECONDS, RepeatedErrorLimiter
from hookmill.settings import Settings

CONFIGURE = "from hookmill.app import log; from hookmill.settings import Settings; log.configure(Settings()); "


def test_repeated_error_is_counted_instead_of_logged():
    limiter = RepeatedErrorLimiter()

    first_results = [limiter.count_suppressed_lines("dashboard", "an error", 0.0) for _ in range(1_000)]
    later_results = [limiter.count_suppressed_lines("dashboard", "an error", REPEATS_SECONDS) for _ in range(2)]

    assert first_results == [0] * REPEATS_LOGGED + [None] * (1_000 - REPEATS_LOGGED)
    assert later_results == [1_000 - REPEATS_LOGGED, 0]


def test_other_errors_are_still_logged():
    limiter = RepeatedErrorLimiter()
    for _ in range(1_000):
        limiter.count_suppressed_lines("dashboard", "an error", 0.0)

    assert limiter.count_suppressed_lines("api", "an error", 0.0) == 0
    assert limiter.count_suppressed_lines("dashboard", "another error", 0.0) == 0


def test_number_of_remembered_errors_is_bounded():
    limiter = RepeatedErrorLimiter()

    for number in range(10_000):
        assert limiter.count_suppressed_lines("dashboard", f"error {number}", 0.0) == 0

    assert len(limiter._recent) <= 256


def test_log_line_has_the_number_of_suppressed_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log, "_limiter", RepeatedErrorLimiter())
    log.configure(Settings())
    now = time.monotonic()
    for seconds in (0.0,) * 20 + (REPEATS_SECONDS,):
        monkeypatch.setattr("hookmill.app.log.time.monotonic", lambda at=now + seconds: at)
        log.error("runs", "the disk is full")

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    assert [line.get("left_out") for line in lines] == [None] * REPEATS_LOGGED + [20 - REPEATS_LOGGED]
    assert {(line["event"], line["where"], line["why"]) for line in lines} == {("failed", "runs", "the disk is full")}


def test_line_and_its_end_are_written_together():
    logs_two_lines = "log.event('starting'); log.error('runs', 'the disk is full')"
    # In packet mode, each read returns the bytes of one write.
    reader, writer = os.pipe2(os.O_DIRECT)
    try:
        subprocess.run([sys.executable, "-c", f"{CONFIGURE}{logs_two_lines}"], stderr=writer, timeout=60, check=True)
        writes = [os.read(reader, 4_096) for _ in range(2)]
    finally:
        os.close(reader)
        os.close(writer)

    assert [json.loads(write)["event"] for write in writes] == ["starting", "failed"]
    assert all(write.endswith(b"}\n") for write in writes)
