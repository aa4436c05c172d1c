"""What a person hands to a command: texts, bodies and JSON, from options, files and standard input."""

import json
import sys
from pathlib import Path
from typing import Any

import typer

from hookmill.cli.output import shown
from hookmill.domain.errors import Invalid

STANDARD_INPUT = "-"


def exactly_one(**options: object) -> None:
    """Wrong usage unless one of these options was given, and no other."""
    if sum(value is not None for value in options.values()) != 1:
        known = ", ".join("--" + name.replace("_", "-") for name in options)
        raise typer.BadParameter(f"give exactly one of {known}")


def at_most_one(**options: object) -> None:
    """Wrong usage when several of these options were given."""
    if any(value is not None for value in options.values()):
        exactly_one(**options)


def filter_in(text: str | None, path: str | None) -> Any:
    """The payload filter of `--filter` or `--filter-file`; None when there is none."""
    at_most_one(filter=text, filter_file=path)
    if path is not None:
        text = text_of(path, "The filter file")
    if text is None:
        return None
    chosen = json_in(text, "The payload filter")
    if chosen is None:
        raise Invalid("The payload filter is null. Leave it out to select every payload.")
    return chosen


def bytes_of(path: str, what: str) -> bytes:
    """A file's bytes, or standard input's for `-`. Raises `Invalid` when there is nothing to read."""
    if path == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise Invalid(f"{what} {shown(path)} can't be read: {reason}.") from None


def text_of(path: str, what: str) -> str:
    """A file's text, or standard input's for `-`. Raises `Invalid` unless it is UTF-8."""
    try:
        return bytes_of(path, what).decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{what} {shown(path)} is not UTF-8: byte {error.start + 1} can't be read.") from None


def json_in(text: str, what: str) -> Any:
    """The JSON value that the text spells. Raises `Invalid` with the place of the fault."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Invalid(f"{what} is not JSON: {error.msg} at {place}.") from None
    except (RecursionError, ValueError):
        raise Invalid(
            f"{what} is not usable JSON: it is nested too deep, or holds a number of too many digits."
        ) from None


def secret_from_standard_input() -> str:
    """What is piped in. At a terminal it is asked for, and not echoed."""
    if sys.stdin.isatty():
        return str(typer.prompt("Secret", hide_input=True, err=True))
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise Invalid("The secret on standard input is not UTF-8. Pipe in the text itself.") from None
