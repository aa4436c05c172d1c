"""The service's log: repeated errors are suppressed, and other errors are not."""

import errno
import json
import logging
import os
import re
import select
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from typing import cast

import pytest

from hookmill.app import log
from hookmill.app.log import REPEATS_LOGGED, REPEATS_SECONDS, RepeatedErrorLimiter
from hookmill.app.serve import _create_server
from hookmill.domain import json_pointer
from hookmill.settings import Settings
from tests.support.waiting import LONG_SECONDS

CONFIGURE = "from hookmill.app import log; from hookmill.settings import Settings; log.configure(Settings()); "


def test_repeated_error_is_counted_instead_of_logged():
    limiter = RepeatedErrorLimiter()

    first_results = [limiter.count_suppressed_lines("dashboard", "an error", 0.0) for _ in range(1_000)]
    later_results = [limiter.count_suppressed_lines("dashboard", "an error", REPEATS_SECONDS) for _ in range(2)]

    assert first_results == [0] * REPEATS_LOGGED + [None] * (1_000 - REPEATS_LOGGED)
    assert later_results == [1_000 - REPEATS_LOGGED, 0]


def test_log_at_a_terminal_is_text():
    program = CONFIGURE + (
        "log.warning('runner x', 'it has\\x1b no sandbox'); log.error('runs', 'disk full'); "
        "log.recovery('runs', 'claims again'); log.event('stopped', what='serve', key='k')"
    )
    terminal, end = os.openpty()
    with os.fdopen(end, "wb") as stderr:
        subprocess.run([sys.executable, "-c", program], stderr=stderr, check=True)
    with os.fdopen(terminal, "rb") as file:
        lines = file.read1().decode().splitlines()

    assert [line[9:] for line in lines] == [
        "warning: runner x: it has\\u001b no sandbox",
        "error: runs: disk full",
        "info: recovered: runs: claims again",
        "info: stopped: serve (key: k)",
    ]


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


def test_log_line_has_the_number_of_suppressed_lines(capsys, monkeypatch):
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
    with os.fdopen(reader, "rb", buffering=0) as packets:
        with os.fdopen(writer, "wb") as stderr:
            subprocess.run(
                [sys.executable, "-c", f"{CONFIGURE}{logs_two_lines}"],
                stderr=stderr,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                timeout=60,
                check=True,
            )
        writes = [packets.read(4_096) for _ in range(2)]

    assert [json.loads(write)["event"] for write in writes] == ["starting", "failed"]
    assert all(write.endswith(b"}\n") for write in writes)


@pytest.mark.parametrize(
    ("exception", "why"),
    [
        (OSError(errno.ENOSPC, "canary"), "a fault of type OSError: No space left on device"),
        (PermissionError(errno.EACCES, "canary"), "a fault of type PermissionError: Permission denied"),
        (OSError("canary"), "a fault of type OSError"),
        (ssl.SSLError(1, "canary"), "a fault of type SSLError"),
    ],
)
def test_fault_of_the_operating_system_is_logged_with_its_reason(exception, why, capsys, monkeypatch):
    monkeypatch.setattr(log, "_limiter", RepeatedErrorLimiter())
    log.configure(Settings())

    log.failure("metrics", exception)

    assert json.loads(capsys.readouterr().err)["why"] == why


def test_messages_of_the_http_server_are_logged_as_json(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(log, "_limiter", RepeatedErrorLimiter())
    settings = Settings(data_dir=tmp_path)
    log.configure(settings)
    _create_server(settings)

    logger = logging.getLogger("_granian")
    logger.warning("Killing worker-2 after it refused to gracefully stop")
    logger.error("Worker crash loop detected, exiting")
    logger.error("Application callable raised an exception\nTraceback: canary")

    output = capsys.readouterr()
    killed, crashed, raised = map(json.loads, output.err.splitlines())
    assert killed["level"] == "info"
    assert killed["what"] == "Killing ingress process 2 after it refused to gracefully stop"
    assert crashed["why"] == "Ingress process crash loop detected, exiting"
    assert (raised["where"], raised["why"]) == ("ingress", "Application callable raised an exception")
    assert "canary" not in output.out + output.err


def test_unexpected_fault_is_logged_with_its_place_without_its_text(capsys, monkeypatch):
    monkeypatch.setattr(log, "_limiter", RepeatedErrorLimiter())
    log.configure(Settings())

    try:
        json_pointer.escape(cast("str", 5))
    except AttributeError as error:
        log.failure("metrics", error)

    why = json.loads(capsys.readouterr().err)["why"]
    assert re.fullmatch(r"a fault of type AttributeError in hookmill\.domain\.json_pointer, line [0-9]+", why)


def test_stuck_reader_of_the_log_stops_no_process():
    program = (
        "log.error('disk', 'while it is stuck'); print('works', flush=True); input(); "
        "log.error('disk', 'x' * 10_000); log.error('disk', 'the end')"
    )
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    stuck_bytes = 0
    with suppress(BlockingIOError):
        while True:
            stuck_bytes += os.write(write_end, b"x" * select.PIPE_BUF)
    os.set_blocking(write_end, True)
    with subprocess.Popen(
        [sys.executable, "-c", CONFIGURE + program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write_end
    ) as process:
        os.close(write_end)
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], LONG_SECONDS)[0], "it waits for the reader"
            with os.fdopen(read_end) as log_lines:
                log_lines.read(stuck_bytes)
                process.communicate(b"\n", timeout=LONG_SECONDS)
                reasons = [json.loads(line)["why"] for line in log_lines]
        finally:
            process.kill()

    assert reasons == ["x" * 10_000, "the end"]


def test_process_ends_with_a_thread_in_which_a_library_panics():
    program = CONFIGURE + (
        "import threading\n"
        "def panic(): raise type('PanicException', (BaseException,), {})('a secret')\n"
        "thread = threading.Thread(target=panic, name='alarms'); thread.start(); thread.join()\n"
        "print('it goes on')"
    )

    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (process.returncode, process.stdout) == (1, "")
    line = json.loads(process.stderr)
    assert (line["where"], line["why"]) == ("alarms", "a fault of type PanicException")
