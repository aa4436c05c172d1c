"""The package as somebody finds it who opens its directory."""

import json
import stat
from pathlib import Path

import pytest

from hookmill.domain.ids import run_id
from hookmill.domain.run import RunState, envelope, envelope_text, full_prompt
from hookmill.runs.package import write_package
from hookmill.runs.runners import PackageRunner
from tests.runs.samples import a_run, keep_going


def test_a_package_holds_prompt_envelope_and_payload(tmp_path):
    run = a_run()

    package = write_package(tmp_path, run, b'{"a": 1}')

    assert package.directory == tmp_path / run_id(run.id)
    assert package.prompt_file.read_text() == full_prompt(run)
    assert json.loads(package.envelope_file.read_text()) == envelope(run)
    assert (package.directory / "envelope.txt").read_text() == envelope_text(run)
    assert package.payload_file == package.directory / "event-payload.json"
    assert len(list(package.directory.iterdir())) == 4


@pytest.mark.parametrize(
    "payload",
    [
        b"0",
        b'{"a":1,"a":2}',
        b' [1e400,\r\n"\\ud83d"]\t',
        "{'ünïcode': \u2028}".encode(),
        b"\x00\xff\xfe not even text",
        bytes(range(256)) * 1024,
    ],
    ids=["scalar", "twice", "spaces", "unicode", "bytes", "full size"],
)
def test_the_payload_is_the_received_bytes(tmp_path, payload):
    package = write_package(tmp_path, a_run(), payload)

    assert package.payload_file.read_bytes() == payload


def test_a_package_is_for_its_owner_alone(tmp_path):
    package = write_package(tmp_path / "runs", a_run(), b"{}")

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in package.directory.iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(package.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o700


def test_a_later_attempt_starts_with_a_clean_package(tmp_path):
    first = write_package(tmp_path, a_run(), b"{}")
    (first.directory / "notes").write_text("half-done")
    first.payload_file.write_bytes(b"changed")

    again = write_package(tmp_path, a_run(id=first.run.id, attempt=2), b"{}")

    assert again.directory == first.directory
    assert not (again.directory / "notes").exists()
    assert again.payload_file.read_bytes() == b"{}"
    assert json.loads(again.envelope_file.read_text())["run"]["attempt"] == 2


def test_what_a_command_made_read_only_does_not_stop_the_next_attempt(tmp_path):
    first = write_package(tmp_path, a_run(), b"{}")
    locked = first.directory / "cache" / "module"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    locked.chmod(0o500)
    (first.directory / "cache").chmod(0o500)

    again = write_package(tmp_path, a_run(id=first.run.id, attempt=2), b"{}")

    assert not (again.directory / "cache").exists()


def test_a_link_that_a_command_left_is_removed_and_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    first = write_package(tmp_path / "runs", a_run(), b"{}")
    (first.directory / "link").symlink_to(outside)

    write_package(tmp_path / "runs", a_run(id=first.run.id, attempt=2), b"{}")

    assert (outside / "precious").read_text() == "x"


def test_a_draft_that_a_killed_worker_left_is_no_hindrance(tmp_path):
    run = a_run()
    draft = tmp_path / f".{run_id(run.id)}"
    draft.mkdir()
    (draft / "prompt.md").write_text("half")

    package = write_package(tmp_path, run, b"{}")

    assert package.prompt_file.read_text() == full_prompt(run)
    assert list(tmp_path.iterdir()) == [package.directory]


def test_a_package_that_cannot_be_written_leaves_none(tmp_path):
    run = a_run()
    (tmp_path / "runs").write_text("a file where the directory should be")

    with pytest.raises(OSError, match="exists"):
        write_package(tmp_path / "runs", run, b"{}")

    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_no_name_from_outside_is_in_a_path(tmp_path):
    run = a_run(webhook_name="../../etc", automation_name="/tmp/x", runner="../r", prompt="../p")

    package = write_package(tmp_path / "runs", run, b"{}")

    assert package.directory.parent == tmp_path / "runs"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert [path.name for path in Path(tmp_path / "runs").iterdir()] == [run_id(run.id)]


def test_a_prompt_with_half_a_surrogate_pair_can_be_written(tmp_path):
    package = write_package(tmp_path, a_run(prompt="half \ud83d"), b"{}")

    assert package.prompt_file.read_text().startswith("half \\ud83d\n")


def test_the_package_runner_says_where_the_package_is(tmp_path):
    package = write_package(tmp_path, a_run(), b"{}")

    ended = PackageRunner().run(package, keep_going)

    assert ended.state is RunState.SUCCEEDED
    assert ended.output_tail == f"The package is ready to be picked up in {package.directory}."


def test_the_package_runner_fails_when_the_package_is_gone(tmp_path):
    package = write_package(tmp_path, a_run(), b"{}")
    package.directory.rename(tmp_path / "elsewhere")

    ended = PackageRunner().run(package, keep_going)

    assert ended.state is RunState.FAILED
    assert ended.reason == "The package could not be synced: No such file or directory."
