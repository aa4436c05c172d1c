"""Input of commands: texts, bodies, JSON and times, from options, files and standard input."""

import json
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import typer

from hookmill.cli.output import print_error
from hookmill.domain.errors import Invalid
from hookmill.domain.moment import parse_iso, require_in_calendar
from hookmill.domain.text import shown, trimmed_text

STANDARD_INPUT = "-"
TEXT_BYTES_MAX: Final = 1_048_576
"""The limit for a prompt, a filter or triggers, as in the API."""
SECRET_BYTES_MAX: Final = 16_384
"""The limit for a secret or a key, including white space around it."""

_AGE: Final = re.compile(r"([0-9]{1,6})([smhdw])\Z")
_SECONDS_BY_UNIT: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def require_exactly_one(**options: object) -> None:
    """Raise a usage error unless exactly one of these options is set."""
    if _count_set(options) != 1:
        raise typer.BadParameter(f"give exactly one of {_option_names(options)}")


def require_at_most_one(**options: object) -> None:
    """Raise a usage error if more than one of these options is set."""
    if _count_set(options) > 1:
        raise typer.BadParameter(f"give at most one of {_option_names(options)}")


def require_at_least_one(**options: object) -> None:
    """Raise a usage error unless at least one of these options is set."""
    if _count_set(options) == 0:
        raise typer.BadParameter(f"give at least one of {_option_names(options)}")


def _count_set(options: Mapping[str, object]) -> int:
    """How many of the options are set. Otherwise, an option is None, a flag is False, and a list may be empty."""
    return sum(not (value is None or value is False or value == []) for value in options.values())


def _option_names(options: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in options)


def require_yes_with_json(json: bool, yes: bool) -> None:
    """Raise a usage error for `--json` without `--yes`: a program can't answer a question."""
    if json and not yes:
        raise typer.BadParameter("--json can't ask for confirmation; give --yes as well")


def parse_time(text: str | None, option: str) -> int | None:
    """The time in µs since 1970. The text is a date such as `2026-11-21 09:12` (in UTC), or an age such as `2h`."""
    if text is None:
        return None
    try:
        if age := _AGE.match(text.strip()):
            return require_in_calendar(time.time_ns() // 1000 - int(age[1]) * _SECONDS_BY_UNIT[age[2]] * 1_000_000)
        return parse_iso(text.strip())
    except ValueError:
        raise typer.BadParameter(
            f'{shown(text[:100])!r} is not a time. Write 2026-11-21T09:12:36Z, "2026-11-21 09:12" or 2026-11-21 '
            "(UTC, in the years 1 to 9999), or an age: 30m, 2h, 7d",
            param_hint=option,
        ) from None


def require_id(text: str | None, prefix: str) -> None:
    """Raise `Invalid` unless the text is None, or an id such as `aud_0192…`."""
    if text is not None and not re.fullmatch(rf"{prefix}_[0-9a-f]{{32}}", text):
        raise Invalid(
            f"{shown(text[:80])!r} is not an id such as {prefix}_0192f0c1…. The list with --json shows the ids."
        )


def read_filter(text: str | None, path: str | None) -> Any:
    """The payload filter of `--filter` or `--filter-file`; None without these options."""
    require_at_most_one(filter=text, filter_file=path)
    if path is not None:
        text = read_text(path, "The filter file")
    if text is None:
        return None
    payload_filter = parse_json(text, "The payload filter")
    if payload_filter is None:
        raise Invalid("The payload filter is null. To select every payload, omit the option.")
    return payload_filter


@contextmanager
def opened(path: str, label: str) -> Iterator[BinaryIO]:
    """An open file or pipe, or standard input (`-`). Raises `Invalid` if it can't be opened."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            mode = Path(path).stat().st_mode
            # A shell's `<(…)` is a pipe. A device may never end.
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise Invalid(f"{label} {shown(path)} is not a file. Name a file or a pipe, or - for standard input.")
            file = stack.enter_context(Path(path).open("rb"))
        except (OSError, ValueError) as error:
            raise _unreadable_error(path, label, error) from None
        yield file


def read_bytes(path: str, label: str, bytes_max: int) -> bytes:
    """The bytes of a file, a pipe, or standard input (`-`). Raises `Invalid` if it can't be read or is too large."""
    try:
        with opened(path, label) as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise _unreadable_error(path, label, error) from None
    if len(content) > bytes_max:
        raise Invalid(f"{label} {shown(path)} has more than {bytes_max:,} bytes, which is the limit.")
    return content


def _unreadable_error(path: str, label: str, error: OSError | ValueError) -> Invalid:
    reason = error.strerror if isinstance(error, OSError) else "this is not a valid file name"
    return Invalid(f"{label} {shown(path)} can't be read: {reason}.")


def read_text(path: str, label: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """The text of a file, or of standard input (`-`). Raises `Invalid` unless it is UTF-8 and within the limit."""
    try:
        # Without a byte order mark, which editors on Windows put before a text.
        return read_bytes(path, label, bytes_max).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"{label} {shown(path)} is not UTF-8: byte {error.start + 1} can't be read.") from None


def parse_json(text: str, label: str) -> Any:
    """The JSON value of the text. Raises `Invalid` with line and column of an error."""
    from hookmill.domain.payload import exact_integer, number_without_loss

    try:
        return json.loads(text, parse_int=exact_integer, parse_float=number_without_loss)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Invalid(f"{label} is not JSON: {error.msg} at {place}.") from None
    except (RecursionError, ValueError):
        raise Invalid(f"{label} can't be used as JSON: it is nested too deeply.") from None


def read_secret(name: str = "secret") -> str:
    """The secret from standard input. If that is a terminal, a prompt asks for it without echo."""
    if sys.stdin.isatty():
        return str(typer.prompt(name.capitalize() if name.islower() else name, hide_input=True, err=True))
    try:
        return read_bytes(STANDARD_INPUT, f"The {name} on standard input", SECRET_BYTES_MAX).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid(f"The {name} on standard input is not UTF-8. Pipe in the text of the {name}.") from None


def read_new_secret() -> str:
    """The secret from standard input, with a warning if it could be guessed."""
    from hookmill.domain.secret import SECRET_CHARACTERS_GOOD, SecretValue, is_short_secret

    text = read_secret()
    if is_short_secret(SecretValue(trimmed_text(text))):
        print_error(
            f"Warning: the secret has fewer than {SECRET_CHARACTERS_GOOD} characters, so it could be guessed. Use a "
            "longer one if the sender permits it."
        )
    return text
