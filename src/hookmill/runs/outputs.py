"""The directory of a package to which a command writes its outputs.

One rule for every kind of runner that starts a command: when the command has ended, the texts that the service shows
or delivers are read, and then all regular files directly in the directory become files of the package. Secrets are
masked in the texts and in the files.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from hookmill.domain.masking import Masker
from hookmill.domain.run_outputs import OUTPUT_BYTES_MAX, OUTPUTS_DIRECTORY, READ_FILES, OutputText, output_text
from hookmill.runs.masked_files import mask_directory
from hookmill.runs.package import LISTED_ENTRIES_MAX, open_directory, open_file_in, raise_host_fault

_SECRET_BYTES_MAX: Final = 8_192
"""How many bytes are read beyond the longest text, so that a secret is masked as a whole before the text is cut."""
_JSON_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


def create_outputs_directory(package: Path) -> None:
    """Create the empty directory. Raises `OSError`."""
    (package / OUTPUTS_DIRECTORY).mkdir(mode=0o700)


def collect_outputs(package: Path, secrets: Sequence[bytes] = ()) -> dict[str, OutputText]:
    """Read the texts in the directory, and move its files into the package. `secrets` are masked in all of them.

    A file whose name the package already has stays where it is. Links are neither moved nor followed. What the command
    has left unusable is left out. Raises `OSError` for a fault of the host.
    """
    texts: dict[str, OutputText] = {}
    with _only_host_faults(), open_directory(package) as target:
        with open_directory(OUTPUTS_DIRECTORY, target) as source:
            masker = Masker(secrets)
            texts = _texts_in(source, masker)
            if masker.is_needed:
                mask_directory(source, masker)
            _move_files(source, target)
        # This fails if something stays, such as a link, or the subdirectory of files that could not be masked.
        os.rmdir(OUTPUTS_DIRECTORY, dir_fd=target)
    return texts


@contextmanager
def _only_host_faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise_host_fault(error)


def _texts_in(directory: int, masker: Masker) -> dict[str, OutputText]:
    texts = {}
    for name in READ_FILES:
        with _only_host_faults():
            text = output_text(masker.mask(_beginning_of(directory, name)))
            if text is not None:
                is_json = name.endswith(".json") and masker.is_needed
                texts[name] = replace(text, text=_with_masked_strings(text.text, masker)) if is_json else text
    return texts


def _with_masked_strings(text: str, masker: Masker) -> str:
    """The JSON text, with secrets also masked where escapes hide them. Programs may escape any character."""

    def masked(match: re.Match[str]) -> str:
        if "\\" not in match[0]:
            return match[0]
        try:
            value: str = json.loads(match[0])
        except ValueError:
            return match[0]
        masked_value = masker.mask_text(value)
        return json.dumps(masked_value) if masked_value != value else match[0]

    return _JSON_STRING.sub(masked, text)


def _beginning_of(directory: int, name: str) -> bytes:
    with open_file_in(directory, name) as file:
        return file.read(OUTPUT_BYTES_MAX + _SECRET_BYTES_MAX)


def _move_files(source: int, target: int) -> None:
    with os.scandir(source) as entries:
        names = [entry.name for entry in islice(entries, LISTED_ENTRIES_MAX)]
    for name in names:
        if stat.S_ISREG(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
            # Unlike a renaming, a second link never replaces a file.
            with suppress(FileExistsError):
                os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
                os.unlink(name, dir_fd=source)
