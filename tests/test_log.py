"""The service's log says what failed, and one fault does not hide the others."""

import json
import time

import pytest

from hookmill.app import log
from hookmill.app.log import REPEATS_LOGGED, REPEATS_SECONDS, RepeatedErrorLimiter
from hookmill.settings import Settings


def test_a_fault_that_repeats_is_counted_instead_of_logged():
    limiter = RepeatedErrorLimiter()

    at_first = [limiter.count_suppressed_lines("dashboard", "a fault", 0.0) for _ in range(1_000)]
    later = [limiter.count_suppressed_lines("dashboard", "a fault", REPEATS_SECONDS) for _ in range(2)]

    assert at_first == [0] * REPEATS_LOGGED + [None] * (1_000 - REPEATS_LOGGED)
    assert later == [1_000 - REPEATS_LOGGED, 0]


def test_other_faults_are_logged_meanwhile():
    limiter = RepeatedErrorLimiter()
    for _ in range(1_000):
        limiter.count_suppressed_lines("dashboard", "a fault", 0.0)

    assert limiter.count_suppressed_lines("api", "a fault", 0.0) == 0
    assert limiter.count_suppressed_lines("dashboard", "another fault", 0.0) == 0


def test_faults_that_differ_each_time_are_forgotten():
    limiter = RepeatedErrorLimiter()

    for number in range(10_000):
        assert limiter.count_suppressed_lines("dashboard", f"fault {number}", 0.0) == 0

    assert len(limiter._recent) <= 256


def test_a_line_says_how_many_were_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log, "_limiter", RepeatedErrorLimiter())
    log.configure(Settings())
    now = time.monotonic()
    for seconds in (0.0,) * 20 + (REPEATS_SECONDS,):
        monkeypatch.setattr("hookmill.app.log.time.monotonic", lambda at=now + seconds: at)
        log.error("runs", "the disk is full")

    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    assert [line.get("left_out") for line in logged] == [None] * REPEATS_LOGGED + [20 - REPEATS_LOGGED]
    assert {(line["event"], line["where"], line["why"]) for line in logged} == {("failed", "runs", "the disk is full")}
