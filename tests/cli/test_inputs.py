"""The inputs of commands: times, files, standard input and arguments."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import time_machine
import typer

from hookmill.cli import inputs
from hookmill.domain.errors import Invalid
from tests.cli.conftest import START_US
from tests.support.counts import only_in_proof

SECOND_US = 1_000_000


@pytest.mark.parametrize(
    ("text", "at_us"),
    [
        ("2026-11-21T09:12:36Z", START_US),
        ("2026-11-21T09:12:36.000001Z", START_US + 1),
        ("2026-11-21T10:12:36+01:00", START_US),
        ("2026-11-21 09:12:36", START_US),
        ("2026-11-21 09:12", START_US - 36 * SECOND_US),
        (" 2026-11-21 ", START_US - (9 * 3600 + 12 * 60 + 36) * SECOND_US),
        ("90s", START_US - 90 * SECOND_US),
        ("30m", START_US - 30 * 60 * SECOND_US),
        ("2h", START_US - 2 * 3600 * SECOND_US),
        ("7d", START_US - 7 * 86_400 * SECOND_US),
        ("1w", START_US - 7 * 86_400 * SECOND_US),
    ],
)
@time_machine.travel(START_US / SECOND_US, tick=False)
def test_time_is_utc_unless_it_has_an_offset_or_is_a_duration(text, at_us):
    assert inputs.parse_time(text, "--since") == at_us


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+00:01", "0001-01-01 00:00+23:59", "999999w"]
)
def test_time_outside_the_calendar_is_refused(text):
    with pytest.raises(typer.BadParameter, match="years 1 to 9999"):
        inputs.parse_time(text, "--since")


@pytest.mark.parametrize("text", ["", "yesterday", "09:12", "2026-13-01", "2 h", "-2h", "1.5h", "2h\u001b[31m"])
def test_text_that_is_no_time_is_refused(text):
    with pytest.raises(typer.BadParameter, match="is not a time") as error:
        inputs.parse_time(text, "--since")

    assert "\x1b" not in str(error.value)


# Files


def path_of_pipe(content: bytes) -> str:
    """The path of a pipe with this content, as a shell passes it for `<(command)`. Its reading end stays open."""
    reading_end, writing_end = os.pipe()
    os.write(writing_end, content)
    os.close(writing_end)
    return f"/dev/fd/{reading_end}"


def test_file_of_the_maximum_size_is_read_completely(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 10)

    assert inputs.read_bytes(str(tmp_path / "file"), "The file", 10) == b"x" * 10
    assert inputs.read_bytes(path_of_pipe(b"x" * 10), "The file", 10) == b"x" * 10


def test_input_over_the_maximum_size_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"x" * 11)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 11)))

    for path in (str(tmp_path / "file"), path_of_pipe(b"x" * 11), "-"):
        with pytest.raises(Invalid, match="more than 10 bytes"):
            inputs.read_bytes(path, "The file", 10)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/"])
def test_device_or_directory_is_refused(path):
    with pytest.raises(Invalid, match="is not a file"):
        inputs.read_bytes(path, "The file", 10)


@pytest.mark.parametrize(
    "command",
    [
        "filter test --filter {} --body /dev/zero",
        "filter test --filter-file /dev/zero --body -",
        "filter backtest --filter-file /dev/zero",
        "automation create x --webhook source --prompt-file /dev/zero",
        "automation create x --triggers-file /dev/zero --prompt x",
        "automation change triage --prompt-file /dev/zero",
        "send source --body /dev/zero",
    ],
)
def test_commands_refuse_an_endless_file(automation, hookmill, command):
    assert "is not a file" in hookmill(*command.split(), exit_code=1).err


@pytest.mark.parametrize(
    "command",
    [
        only_in_proof("filter test --filter {} --body -"),
        only_in_proof("filter test --filter-file - --body /nowhere"),
        only_in_proof("automation create x --webhook source --prompt-file -"),
        "send source --body -",
        "secret create X --from-stdin",
        only_in_proof("webhook rotate source --secret-from-stdin"),
    ],
)
def test_commands_refuse_endless_standard_input(automation, data_dir, command):
    with Path("/dev/zero").open("rb") as endless:
        process = subprocess.run(
            [sys.executable, "-m", "hookmill", *command.split()],
            stdin=endless,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert process.returncode == 1
    assert "bytes" in process.stderr
    assert "Traceback" not in process.stderr


# Arguments


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["webhook", "show", "\udcff"], 2),
        (["webhook", "create", "x\udcff"], 2),
        (["delivery", "list", "--identity", "\udcff", "--json"], 2),
        (["webhook", "list", "--factory", "\ud800"], 2),
        (["send", "source", "--data", '"\udcff"'], 2),
        (["\udcff"], 2),
        (["plan", "\udcff"], 1),
        (["apply", ".", "--factory", "\udcff"], 1),
    ],
)
def test_argument_that_is_not_utf_8_is_wrong_usage(webhook, hookmill, arguments, exit_code):
    result = hookmill(*arguments, exit_code=exit_code)

    assert result.out == ""
    assert result.err.startswith("An argument is not UTF-8: '")


def test_argument_with_bytes_that_are_not_utf_8_is_wrong_usage(webhook):
    command: list[str | bytes] = [sys.executable, "-m", "hookmill", "webhook", "show", b"\xff"]

    process = subprocess.run(command, capture_output=True, check=False, timeout=60)

    assert (process.returncode, process.stderr) == (2, b"An argument is not UTF-8: '\\udcff'.\n")
