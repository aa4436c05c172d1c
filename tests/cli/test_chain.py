"""`hookmill delivery export --chain`: an independent checker finds each line that was altered, removed or moved."""

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.delivery import Label
from tests.cli.conftest import START_US, Hookmill, LogWriter

ROOT = Path(__file__).parents[2]
CHECKER = ROOT / "scripts" / "check_chain.py"
DELIVERIES = 7


@pytest.fixture
def export(webhook: Any, log: LogWriter, hookmill: Hookmill, tmp_path: Path) -> tuple[Path, str]:
    """A chained export, and its head."""
    for number in range(DELIVERIES):
        log.add_delivery(webhook["uid"], body=b'{"number": %d}' % number, at=START_US - 10_000_000_000 + number)
    log.add_delivery(webhook["uid"], Label.REJECTED_AUTH, at=START_US - 9_000_000_000, reason="caf\u00e9 \u202e")
    printed = hookmill("delivery", "export", "--chain", "--output", "1.jsonl")
    assert printed.out.startswith(f"Wrote {DELIVERIES + 1} deliveries to 1.jsonl.\n")
    return tmp_path / "1.jsonl", head_in(printed.out)


def head_in(text: str) -> str:
    match = re.search(r"The head of the chain is ([0-9a-f]{64})\.", text)
    assert match is not None
    return match[1]


def check(head: str, *paths: Path) -> str:
    """Run the checker as a third party would: without Hookmill and its environment. Returns what it prints."""
    completed = subprocess.run(
        [sys.executable, "-I", "-S", str(CHECKER), head, *map(str, paths)], capture_output=True, text=True, cwd="/"
    )
    assert (completed.returncode == 0) == (completed.stdout == "The chain is complete and unaltered.\n")
    assert "Traceback" not in completed.stderr
    return completed.stdout + completed.stderr


def test_export_is_a_chain_of_the_whole_log(export: tuple[Path, str], hookmill: Hookmill):
    path, head = export
    lines = path.read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines]

    assert check(head, path) == "The chain is complete and unaltered.\n"
    assert [record["sequence"] for record in records] == list(range(1, DELIVERIES + 4))
    assert records[0]["chain"] == "hookmill deliveries 1"
    assert records[0]["previous"] == "0" * 64
    for number in range(DELIVERIES):
        assert records[1 + number]["payload_sha256"] == hashlib.sha256(b'{"number": %d}' % number).hexdigest()
    assert records[-2]["payload_sha256"] is None
    assert records[-1]["end"] == {"deliveries": DELIVERIES + 1, "last_delivery": records[-2]["delivery_id"]}
    listed = hookmill("delivery", "export").json_lines
    chained = [
        {name: value for name, value in record.items() if name in listed[0]} for record in records if "label" in record
    ]
    assert chained == listed


def altered(lines: list[bytes], number: int) -> list[bytes]:
    return [*lines[:number], lines[number].replace(b'"size": ', b'"size": 1'), *lines[number + 1 :]]


def removed(lines: list[bytes], number: int) -> list[bytes]:
    return [*lines[:number], *lines[number + 1 :]]


def swapped(lines: list[bytes], number: int) -> list[bytes]:
    return [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]


def doubled(lines: list[bytes], number: int) -> list[bytes]:
    return [*lines[:number], lines[number], *lines[number:]]


def rehashed(lines: list[bytes], number: int) -> list[bytes]:
    """The line is altered, and has the right hash."""
    content = lines[number][: -len(b', "hash": ""}\n') - 64].replace(b'"size": ', b'"size": 1')
    line = content + b', "hash": "%s"}\n' % hashlib.sha256(content).hexdigest().encode()
    return [*lines[:number], line, *lines[number + 1 :]]


def rechained(lines: list[bytes], number: int) -> list[bytes]:
    """The line is removed, and all later ones are computed anew. Only the head shows this."""
    result = lines[:number]
    for line in lines[number + 1 :]:
        record = json.loads(line) | {"sequence": len(result) + 1, "previous": json.loads(result[-1])["hash"]}
        del record["hash"]
        content = json.dumps(record)[:-1].encode()
        result.append(content + b', "hash": "%s"}\n' % hashlib.sha256(content).hexdigest().encode())
    return result


@pytest.mark.parametrize("change", [altered, removed, swapped, doubled, rehashed, rechained])
@pytest.mark.parametrize("number", [1, 4, DELIVERIES])
def test_checker_finds_a_changed_row(
    change: Callable[[list[bytes], int], Sequence[bytes]], number: int, export: tuple[Path, str], tmp_path: Path
):
    path, head = export
    lines = path.read_bytes().splitlines(keepends=True)
    changed = change(lines, number)
    assert list(changed) != lines
    (tmp_path / "changed").write_bytes(b"".join(changed))

    assert check(head, tmp_path / "changed").startswith("The chain is broken: ")


def test_checker_finds_a_cut_file(export: tuple[Path, str], tmp_path: Path):
    path, head = export
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    for cut in (content[:-1], content[:-40], b"".join(lines[:-1]), lines[0], b""):
        (tmp_path / "cut").write_bytes(cut)

        assert "The chain is broken: " in check(head, tmp_path / "cut")


def test_later_export_continues_the_chain(export: tuple[Path, str], webhook: Any, log: LogWriter, hookmill: Hookmill):
    path, head = export
    log.add_delivery(webhook["uid"], body=b'"later"', at=START_US - 8_000_000_000)
    log.add_deliveries(webhook["uid"], 250)

    printed = hookmill("delivery", "export", "--chain", "--after", "1.jsonl", "--output", "2.jsonl")
    empty = hookmill("delivery", "export", "--chain", "--after", "2.jsonl")

    later = path.with_name("2.jsonl")
    (path.with_name("3.jsonl")).write_bytes(empty.out_bytes)
    assert printed.out.startswith("Wrote 251 deliveries to 2.jsonl.\n")
    assert check(head_in(printed.out), path, later) == "The chain is complete and unaltered.\n"
    assert check(head_in(empty.err), path, later, path.with_name("3.jsonl")).startswith("The chain is complete")
    assert check(head_in(printed.out), later).startswith("The chain is broken: ")
    assert check(head, later, path).startswith("The chain is broken: ")


def test_deliveries_of_the_last_minute_are_left_to_the_next_export(webhook: Any, hookmill: Hookmill, log: LogWriter):
    log.add_delivery(webhook["uid"], at=time.time_ns() // 1000 - 120_000_000)
    log.add_delivery(webhook["uid"], at=time.time_ns() // 1000)

    exported = hookmill("delivery", "export", "--chain", "--webhook", "source").json_lines

    assert [len(exported), exported[0]["webhook"]] == [3, webhook["uid"]]


def test_export_that_can_not_be_continued_is_refused(export: tuple[Path, str], hookmill: Hookmill, tmp_path: Path):
    path, _ = export
    content = path.read_bytes()
    for name, part in {"empty": b"", "cut": content[:-1], "no-end": content[: content.rindex(b'{"seq')]}.items():
        (tmp_path / name).write_bytes(part)
        printed = hookmill("delivery", "export", "--chain", "--after", name, exit_code=1)
        assert f"The earlier export {name} can't be continued: " in printed.err
        assert printed.out == ""
    (tmp_path / "altered").write_bytes(content.replace(b'"deliveries": 8', b'"deliveries": 9'))
    assert "was altered" in hookmill("delivery", "export", "--chain", "--after", "altered", exit_code=1).err
    assert "No such file" in hookmill("delivery", "export", "--chain", "--after", "missing", exit_code=1).err
    assert "only a chain can be continued" in hookmill("delivery", "export", "--after", "1.jsonl", exit_code=2).err
    same = hookmill("delivery", "export", "--chain", "--after", "1.jsonl", "--output", "1.jsonl", exit_code=2)
    assert "would replace the earlier export" in same.err
    assert path.read_bytes() == content
    other = hookmill("delivery", "export", "--chain", "--after", "1.jsonl", "--webhook", "source", exit_code=1)
    assert "is of the factory 'default' and all webhooks." in other.err


def test_checker_is_as_short_as_the_page_says():
    lines = CHECKER.read_text().splitlines()

    assert len(lines) <= 42
    assert {line for line in lines if line.startswith(("import", "from"))} == {
        "import hashlib",
        "import json",
        "import sys",
        "from pathlib import Path",
    }
