"""What a command writes to its directory of outputs: the texts that are stored, and the files of the run."""

import errno
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from hookmill.domain.run import Ended, RunState
from hookmill.domain.run_outputs import OUTPUT_BYTES_MAX, OutputText
from hookmill.domain.secret import SecretValue
from hookmill.runs.outputs import collect_outputs, create_outputs_directory
from hookmill.runs.package import Package, list_files, write_package
from hookmill.runs.runners import CommandRunner
from tests.faults.limits import lowered_limit
from tests.runs.samples import always_continue, sample_run


@pytest.fixture
def package(tmp_path):
    return write_package(tmp_path / "runs", sample_run(), b"{}")


@pytest.fixture
def outputs(package):
    create_outputs_directory(package.directory)
    return package.directory / "outputs"


def result_of(runner: CommandRunner, package: Package) -> Ended:
    result = runner.run(package, always_continue)
    assert isinstance(result, Ended)
    return result


def shell(script: str, **settings) -> CommandRunner:
    return CommandRunner(argv=("sh", "-c", script), **settings)


def test_outputs_become_files_of_the_run_and_its_summary(package):
    script = 'echo "# Done" > outputs/summary.md; echo "{}" > "$HOOKMILL_OUTPUTS_DIR/data.json"'

    result = result_of(shell(script), package)

    assert result.outputs == {"summary.md": OutputText(text="# Done\n")}
    names = [name for name, _ in list_files(package.directory.parent, package.run.id)[0]]
    assert {"summary.md", "data.json"} < set(names)
    assert not (package.directory / "outputs").exists()


def test_command_that_fails_leaves_its_summary(package):
    result = result_of(shell("echo No. > outputs/summary.md; exit 3"), package)

    assert (result.state, result.outputs) == (RunState.FAILED, {"summary.md": OutputText(text="No.\n")})


@pytest.mark.parametrize("script", ["true", "rmdir outputs", "rmdir outputs; ln -s / outputs"])
def test_command_without_outputs_has_no_summary(package, script):
    result = result_of(shell(script), package)

    assert (result.state, result.outputs) == (RunState.SUCCEEDED, {})


def test_secrets_are_masked_in_a_summary(package):
    script = 'printf "%s and %s" "$KEY" "$SHORT" > outputs/summary.md'
    environment = {"KEY": "key-1234567", "SHORT": "short"}
    runner = shell(script, environment=environment, masked_variables=("KEY", "SHORT", "NOT_SET"))

    assert result_of(runner, package).outputs == {"summary.md": OutputText(text="[masked] and short")}
    assert (package.directory / "summary.md").read_text() == "[masked] and short"


def test_secret_of_the_automation_is_masked_in_a_summary(package):
    package = replace(package, secrets={"TOKEN": SecretValue("token-1234567")})

    result = result_of(shell('printf "%s" "$TOKEN" > outputs/summary.md'), package)

    assert result.outputs == {"summary.md": OutputText(text="[masked]")}


def test_no_part_of_a_secret_is_left_where_a_summary_is_cut(package, outputs):
    (outputs / "summary.md").write_bytes(b"x" * (OUTPUT_BYTES_MAX - 8) + b"key-1234567" + b"y" * 1_000_000)

    texts = collect_outputs(package.directory, [b"key-1234567"])

    assert texts == {"summary.md": OutputText(text="x" * (OUTPUT_BYTES_MAX - 8) + "[masked]", is_cut=True)}


@pytest.mark.parametrize("name", ["comment.json", "annotations.json"])
@pytest.mark.parametrize(
    "escaped",
    [
        "key\\u003C\\/\\u003e123",
        "\\u006bey</>123",
        "k\\u0065y<\\/>123",
        "\\u006B\\u0065\\u0079</>\\u0031\\u0032\\u0033",
    ],
)
def test_secrets_are_masked_in_json_whatever_is_escaped_there(package, outputs, name, escaped):
    (outputs / name).write_text(f'{{"\\u0022": "{escaped}", "body": "\\ud800 \\"{escaped}\\" \\/"}}')

    texts = collect_outputs(package.directory, [b"key</>123"])

    assert json.loads(texts[name].text) == {'"': "[masked]", "body": '\ud800 "[masked]" /'}


@pytest.mark.parametrize("text", ['"' + '\\"' * 32_000, '"\\u00"', '"\\', "[" * 60_000, '"\\/" ' * 10_000])
def test_json_without_a_secret_is_unchanged(package, outputs, text):
    (outputs / "comment.json").write_text(text)

    assert collect_outputs(package.directory, [b"key</>123"])["comment.json"].text == text


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_summary_that_is_no_regular_file_is_not_read(package, outputs, kind, tmp_path):
    (tmp_path / "other").write_text("secret of the host")
    summary = outputs / "summary.md"
    match kind:
        case "link":
            summary.symlink_to(tmp_path / "other")
        case "pipe":
            os.mkfifo(summary)
        case _:
            summary.mkdir()

    assert collect_outputs(package.directory) == {}


def test_only_new_regular_files_are_taken_from_the_outputs(package, outputs):
    (outputs / "report.txt").write_text("new")
    (outputs / "prompt.md").write_text("forged")
    (outputs / "link").symlink_to("/etc/passwd")
    (outputs / "directory").mkdir()
    os.mkfifo(outputs / "pipe")
    prompt = package.prompt_file.read_text()
    before = {path.name for path in package.directory.iterdir()}

    collect_outputs(package.directory)

    assert (package.directory / "report.txt").read_text() == "new"
    assert package.prompt_file.read_text() == prompt
    assert {path.name for path in package.directory.iterdir()} - before == {"report.txt"}
    assert sorted(path.name for path in outputs.iterdir()) == ["directory", "link", "pipe", "prompt.md"]


@contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Let this process open only so many further files."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    for descriptor in opened:
        os.close(descriptor)
    with lowered_limit(os.getpid(), resource.RLIMIT_NOFILE, opened[-1]):
        yield


@pytest.mark.parametrize("count", [0, 1, 2])
def test_outputs_are_not_lost_if_this_host_cannot_open_more_files(package, outputs, count):
    (outputs / "summary.md").write_text("Done.")

    with free_descriptors(count), pytest.raises(OSError, match="Too many open files"):
        collect_outputs(package.directory)

    assert collect_outputs(package.directory) == {"summary.md": OutputText(text="Done.")}


def test_file_is_not_hidden_if_this_host_cannot_open_it_to_mask_it(package, outputs, monkeypatch):
    (outputs / "report.txt").write_text("key-1234567")
    open_file = os.open

    def fail_to_open(name, *arguments, **options):
        if name == "report.txt":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return open_file(name, *arguments, **options)

    monkeypatch.setattr(os, "open", fail_to_open)
    with pytest.raises(OSError, match="Input/output error"):
        collect_outputs(package.directory, [b"key-1234567"])
    monkeypatch.undo()
    collect_outputs(package.directory, [b"key-1234567"])

    assert (package.directory / "report.txt").read_text() == "[masked]"
