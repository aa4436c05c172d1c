"""A run as files: the prompt, the envelope and the payload, in a directory of its own, ready for whoever acts on it."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.domain.ids import run_id
from hookmill.domain.run import PAYLOAD_FILE, Run, envelope, envelope_text, full_prompt

PROMPT_FILE: Final = "prompt.md"
ENVELOPE_FILE: Final = "envelope.json"
ENVELOPE_TEXT_FILE: Final = "envelope.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that stands complete in `directory`. No name in its path comes from outside."""

    run: Run
    directory: Path

    @property
    def prompt_file(self) -> Path:
        return self.directory / PROMPT_FILE

    @property
    def envelope_file(self) -> Path:
        return self.directory / ENVELOPE_FILE

    @property
    def payload_file(self) -> Path:
        return self.directory / PAYLOAD_FILE


def directory_of(packages: Path, run: Run) -> Path:
    return packages / run_id(run.id)


def write_package(packages: Path, run: Run, payload: bytes) -> Package:
    """Put a run's package into its place, whole or not at all; what an earlier attempt left there is gone.

    Raises `OSError` when the disk refuses.
    """
    place = directory_of(packages, run)
    draft = packages / f".{place.name}"
    packages.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove(draft)
    draft.mkdir(mode=0o700)
    for name, content in _files(run, payload):
        _write(draft / name, content)
    _remove(place)
    draft.rename(place)
    return Package(run=run, directory=place)


def make_durable(package: Package) -> None:
    """From here on the package survives a loss of power."""
    for path in (*package.directory.iterdir(), package.directory, package.directory.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _files(run: Run, payload: bytes) -> Iterator[tuple[str, bytes]]:
    yield PROMPT_FILE, _text(full_prompt(run))
    yield ENVELOPE_FILE, _text(json.dumps(envelope(run), indent=2) + "\n")
    yield ENVELOPE_TEXT_FILE, _text(envelope_text(run))
    yield PAYLOAD_FILE, payload


def _text(text: str) -> bytes:
    # A prompt that came as JSON may hold half a surrogate pair, which UTF-8 has no place for.
    return text.encode("utf-8", "backslashreplace")


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _remove(directory: Path) -> None:
    if not directory.exists():
        return
    # A command may have left directories that it made read-only.
    for inside, _, _ in os.walk(directory):
        Path(inside).chmod(0o700)
    shutil.rmtree(directory)
