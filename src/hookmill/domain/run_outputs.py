"""The texts that a run writes for people and for the delivery of its results: summary, comment and annotations.

If an agent wrote no summary, its last message is the summary. A command may have followed instructions in a payload, so
these texts are untrusted.
"""

from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

OUTPUTS_DIRECTORY: Final = "outputs"
"""The directory of a package to which the command writes its outputs."""
SUMMARY_FILE: Final = "summary.md"
COMMENT_FILE: Final = "comment.json"
"""A comment to deliver instead of the summary: an object with the text `body`."""
ANNOTATIONS_FILE: Final = "annotations.json"
"""Annotations of lines of code for a check run: an array of objects."""
OUTPUT_BYTES_MAX: Final = 65_536
"""How much of a file is read."""
READ_FILES: Final = (SUMMARY_FILE, COMMENT_FILE, ANNOTATIONS_FILE)
"""The files in the directory whose contents are stored with the run. All files there become files of the run."""
LAST_MESSAGE: Final = "last message"
"""The name of an agent's last message among the outputs. No file of `READ_FILES` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputText:
    """One text, as the run wrote it, without a byte order mark. Each destination makes it inert in its own way."""

    text: str
    is_cut: bool = False
    """Whether the whole text was longer."""


RunOutputs = Mapping[str, OutputText]
"""The texts of a run's latest attempt, by the name of the file or `LAST_MESSAGE`. Empty ones are left out."""
NO_OUTPUTS: Final[RunOutputs] = {}


class SummarySource(StrEnum):
    FILE = "file"
    """The run wrote the summary to its file."""
    LAST_MESSAGE = "last_message"
    """The run's agent wrote no such file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The summary of a run."""

    text: str
    is_cut: bool
    source: SummarySource


def summary_of(outputs: RunOutputs) -> RunSummary | None:
    """The summary of the run with these outputs; None if it has none."""
    for name, source in ((SUMMARY_FILE, SummarySource.FILE), (LAST_MESSAGE, SummarySource.LAST_MESSAGE)):
        if (output := outputs.get(name)) is not None:
            return RunSummary(text=output.text, is_cut=output.is_cut, source=source)
    return None


def output_text(content: bytes) -> OutputText | None:
    """The text in the first `OUTPUT_BYTES_MAX` bytes. None if it is blank."""
    # Half of a character at the end is left out. Elsewhere, bytes that are not UTF-8 are replaced, and so is NUL, which
    # PostgreSQL can't store.
    cut_content = content[:OUTPUT_BYTES_MAX].removeprefix(BOM_UTF8)
    text = cut_content.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    is_cut = len(content) > OUTPUT_BYTES_MAX
    if is_cut:
        text = text.removesuffix("\N{REPLACEMENT CHARACTER}")
    return OutputText(text=text, is_cut=is_cut) if text.strip() else None
