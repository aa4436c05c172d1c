"""Output of commands: results go to standard output, errors and warnings to standard error.

Names, identities and payloads come from others, and are printed as text, without control characters.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from hookmill.domain import moment
from hookmill.domain.factory import DEFAULT_FACTORY
from hookmill.domain.text import shown, shown_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def utc(at: int | str | None) -> str:
    """A time in µs since 1970, or from JSON, for people: `2026-11-21 09:12:36`, always UTC."""
    if isinstance(at, str):
        return at[:19].replace("T", " ")
    return "-" if at is None else moment.utc(at)


def utc_with_zone(at: int | str | None) -> str:
    """The same with its time zone, for places whose heading does not name the zone: `2026-11-21 09:12:36 UTC`."""
    return "-" if at is None else f"{utc(at)} UTC"


def print_line(text: str = "") -> None:
    """Print one line of any length. The terminal folds it, so that it is copied as one line."""
    # With one call: with PYTHONUNBUFFERED, `print` needs two, and a line of the log could come between them.
    print(f"{text}\n", end="")


def json_line(value: Any) -> str:
    """One line of JSON. The value may contain views."""
    separators = (", ", ": ")
    # ASCII only: no text of a sender can control a terminal, and programs read the same value.
    try:
        return json.dumps(value, separators=separators)
    except (TypeError, ValueError, RecursionError):
        # It contains views, or exact decimals of a payload filter. Only few commands need these modules.
        from hookmill.domain.filters import exact_json
        from hookmill.presentation.view import plain

        plain_value = plain(value)
        try:
            return json.dumps(plain_value, separators=separators)
        except (TypeError, ValueError, RecursionError):
            return exact_json(plain_value, separators=separators)


def print_json(value: Any) -> None:
    """Print one JSON value, which may contain views, on one line."""
    print_line(json_line(value))


def print_error(text: str) -> None:
    """Print an error or a warning to standard error. The text says what happened, to what, and what to do."""
    # With one call, because processes that log may share standard error.
    sys.stderr.write(f"{shown_lines(text)}\n")


def confirm(question: str) -> None:
    """Ask on standard error, and end the command with exit code 1 unless the answer is yes."""
    try:
        is_yes = typer.confirm(shown(question), err=True)
    except typer.Abort:
        print_error("\nNothing was changed: there was no answer. Add --yes to skip the question.")
        raise typer.Exit(1) from None
    if not is_yes:
        print_error("Nothing was changed.")
        raise typer.Exit(1)


def print_fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Print the fields of one resource, one line each. Values are not folded."""
    rows = list(pairs)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print_line(f"{name:<{width}}  {value}".rstrip())


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. A `no_wrap` column is never folded, so that ids and times can be copied.

    A column that `moves_below_if_narrow` is shown below the first column if the table is too wide for the terminal.
    """

    header: str
    no_wrap: bool = False
    align_right: bool = False
    moves_below_if_narrow: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: folded to the terminal's width, or one line per row in a pipe."""
    cells = [tuple(shown(cell) for cell in row) for row in rows]
    headers = tuple(column.header for column in columns)
    if not on_terminal():
        _print_unfolded_table(columns, [headers, *cells])
        return
    console = new_console()
    rich_table = _rich_table(columns, headers, cells)
    unlimited = console.options.update(max_width=_UNLIMITED_WIDTH)
    if console.measure(rich_table, options=unlimited).maximum > console.width:
        first, *others = [column for column in columns if not column.moves_below_if_narrow]
        first_has_no_wrap = first.no_wrap or any(column.no_wrap for column in columns if column.moves_below_if_narrow)
        stacked_columns = [replace(first, no_wrap=first_has_no_wrap), *others]
        stacked_headers = _stack(columns, headers)
        stacked_rows = [_stack(columns, row) for row in cells]
        rich_table = _rich_table(stacked_columns, stacked_headers, stacked_rows)
        # If the terminal is narrower than the columns that don't wrap, it folds the lines itself. So the printed table
        # is at least as wide as `narrowest_table`, which is not printed.
        narrowest_rows = [
            tuple(
                cell if column.no_wrap else cell[:_WRAPPING_WIDTH_MIN]
                for column, cell in zip(stacked_columns, row, strict=True)
            )
            for row in stacked_rows
        ]
        narrowest_table = _rich_table(stacked_columns, stacked_headers, narrowest_rows)
        console.width = max(console.width, console.measure(narrowest_table, options=unlimited).maximum)
    with console.capture() as captured:
        console.print(rich_table)
    for text_line in captured.get().splitlines():
        print_line(text_line.rstrip())


def _print_unfolded_table(columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> None:
    """Print one line per row, without `rich`, which takes as long to load as a request."""
    widths = [max(_width(row[index]) for row in rows) for index in range(len(columns))]
    for row in rows:
        line = ""
        for column, cell, width in zip(columns, row, widths, strict=True):
            padding = " " * (width - _width(cell))
            line += f"{padding}{cell}  " if column.align_right else f"{cell}{padding}  "
        print_line(line.rstrip())


def _width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


_UNLIMITED_WIDTH: Final = 100_000
_WRAPPING_WIDTH_MIN: Final = 10
"""The least width of a column that may be folded. Below it, lines get longer than the terminal."""


def _rich_table(columns: Sequence[Column], headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    rich_table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for column, header in zip(columns, headers, strict=True):
        justify: Literal["left", "right"] = "right" if column.align_right else "left"
        rich_table.add_column(Text(header), no_wrap=column.no_wrap, overflow="fold", justify=justify)
    for row in rows:
        rich_table.add_row(*(Text(cell) for cell in row))
    return rich_table


def _stack(columns: Sequence[Column], cells: Sequence[str]) -> tuple[str, ...]:
    """The cells of one row. The first one also contains those that move below it."""
    stacked = [cell for column, cell in zip(columns, cells, strict=True) if column.moves_below_if_narrow]
    others = [cell for column, cell in zip(columns, cells, strict=True) if not column.moves_below_if_narrow]
    return ("\n".join([others[0], *stacked]), *others[1:])


def new_console(*, soft_wrap: bool = False) -> Console:
    """A console on standard output that prints text as it is. With NO_COLOR, it has no styles at all."""
    from rich.console import Console

    return Console(
        file=sys.stdout,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=soft_wrap,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def count(number: int, noun: str) -> str:
    """`1 webhook`, `2 webhooks`, `no webhooks`."""
    if number == 0:
        return f"no {plural(noun)}"
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def command_line(command: str, factory: str = DEFAULT_FACTORY, **options: str | int | list[str] | None) -> str:
    """A command for the factory, ready to copy. Options that are None are left out; a list repeats its option."""
    all_options = {**options, "factory": factory if factory != DEFAULT_FACTORY else None}
    flags = [
        f"--{name.replace('_', '-')} {shlex.quote(str(item))}"
        for name, value in all_options.items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    return shown(" ".join([program(), command, *flags]))


def program() -> str:
    """How the caller started this program, so that suggested commands can be copied."""
    if shutil.which("hookmill"):
        return "hookmill"
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m hookmill"
    return shlex.quote(str(script)) if script.name == "hookmill" else "hookmill"
