"""The files of a run: those that its package contains from the start, and how files are shown on every host."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.domain.filters import exact_json
from hookmill.domain.payload import Parsed, parsed_payload
from hookmill.domain.run import PAYLOAD_FILE, Run, envelope, envelope_text, full_prompt
from hookmill.domain.run_options import FieldValue
from hookmill.domain.workspace import CheckedOut, CheckoutCommits, GitRef

PROMPT_FILE: Final = "prompt.md"
ENVELOPE_FILE: Final = "envelope.json"
ENVELOPE_TEXT_FILE: Final = "envelope.txt"
WORKSPACE_DIRECTORY: Final = "workspace"
"""The directory of the package with the checkout. Only regular files of a package are listed or stored."""
OUTPUT_FILE: Final = "output.log"
_FIRST_FILES: Final = (PROMPT_FILE, ENVELOPE_FILE, PAYLOAD_FILE)
NAMED_FILES: Final = (*_FIRST_FILES, ENVELOPE_TEXT_FILE, OUTPUT_FILE)
"""The files whose names the service chooses."""
OUTPUT_END_BYTES: Final = 16_384
"""The size of the end of a command's output that is stored while the command runs, and that a page shows."""

STORED_FILE_BYTES_MAX: Final = 1_048_576
STORED_RUN_BYTES_MAX: Final = 4_194_304
STORED_FILES_MAX: Final = 100


def listing_order(name: str) -> tuple[int, str]:
    """The sort key of a file in a list: what the run was given comes first, and the others follow by name."""
    return (_FIRST_FILES.index(name) if name in _FIRST_FILES else len(_FIRST_FILES), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFileLimits:
    """How much of a run's files is stored for every host. Content above a limit stays on the worker's host only."""

    file_bytes_max: int = STORED_FILE_BYTES_MAX
    run_bytes_max: int = STORED_RUN_BYTES_MAX
    files_max: int = STORED_FILES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A file of a run. If this host can't read it, `only_on_host` is the name of the host that has it."""

    name: str
    """A byte that is not UTF-8 is a lone surrogate, as in `os.fsdecode`."""
    size: int
    only_on_host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The files of a run's latest attempt, in the order of `listing_order`."""

    files: Sequence[RunFile] = ()
    has_more: bool = False
    """Whether the package has more files than are listed."""
    is_on_this_host: bool = False
    """Whether the files are those of the package on this host. Otherwise the store has them, if there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """The output of a run's command, or its end."""

    content: bytes
    size: int | None
    """The size of the whole output. None if it is unknown, because only the end was recorded with the run's result."""
    is_on_this_host: bool = False
    """Whether the content is that of the file on this host."""
    complete_on_host: str | None = None
    """The host that has the whole output, if the store has only its end."""

    @property
    def is_cut(self) -> bool | None:
        """Whether the output is longer than `content`. None if that is unknown."""
        return None if self.size is None else self.size > len(self.content)


def prepared_texts(
    run: Run, payload: bytes | None, commits: CheckoutCommits | None = None
) -> Iterator[tuple[str, bytes]]:
    """The texts that a run's package contains when its command starts, by file name. The payload is another file.

    `payload` matters only if the run's options refer to it. `commits` are those of the workspace; only the worker knows
    them.
    """
    yield PROMPT_FILE, _utf8(full_prompt(run))
    programs_envelope = envelope(run, fields_of(run, payload), workspace_of(run, payload, commits))
    yield ENVELOPE_FILE, _utf8(exact_json(programs_envelope, indent=2) + "\n")
    yield ENVELOPE_TEXT_FILE, _utf8(envelope_text(run))


def prepared_files(
    run: Run, payload: bytes | None, commits: CheckoutCommits | None = None
) -> Iterator[tuple[str, bytes]]:
    """All files that a run's package contains when its command starts, by name. `commits`: see `prepared_texts`."""
    yield from prepared_texts(run, payload, commits)
    if payload is not None:
        yield PAYLOAD_FILE, payload


def fields_of(run: Run, payload: bytes | None) -> dict[str, FieldValue]:
    """The values of the run's fields in its payload, by name."""
    if not run.options.fields:
        return {}
    return run.options.field_values(parsed_payload(payload))


def workspace_of(run: Run, payload: bytes | None, commits: CheckoutCommits | None) -> CheckedOut | None:
    """What the envelope says about the run's workspace; None if its automation has none."""
    workspace = run.options.workspace
    if workspace is None:
        return None
    parsed = parsed_payload(payload)
    return CheckedOut(
        repository=workspace.repository,
        ref=_usable_ref(workspace.ref_in, parsed),
        base=_usable_ref(workspace.base_in, parsed),
        has_base=workspace.base is not None,
        commits=commits,
    )


def _usable_ref(ref_in: Callable[[Parsed | None], GitRef | None], payload: Parsed | None) -> GitRef | None:
    with suppress(Invalid):
        return ref_in(payload)
    return None


def _utf8(text: str) -> bytes:
    # A prompt from JSON may contain half of a surrogate pair, which UTF-8 can't encode.
    return text.encode("utf-8", "backslashreplace")


def from_first_character(text: bytes) -> bytes:
    """UTF-8 text from its first complete character. Text in another encoding loses at most three bytes."""
    start, rest = text[:_CONTINUATION_BYTES_MAX], text[_CONTINUATION_BYTES_MAX:]
    return start.lstrip(_CONTINUATION_BYTES) + rest


_CONTINUATION_BYTES_MAX: Final = 3
"""In UTF-8, at most three bytes follow the first byte of a character."""
_CONTINUATION_BYTES: Final = bytes(range(0x80, 0xC0))
