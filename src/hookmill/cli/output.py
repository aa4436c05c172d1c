"""What a command prints: results on standard output, complaints on standard error.

Names, identities and payloads are anybody's words: they are printed as text, and no control character gets through.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from hookmill.domain import moment
from hookmill.domain.filters import filter_to_json
from hookmill.domain.text import shown, shown_lines
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from rich.table import Table

DEFAULT_FACTORY: Final = "default"


def utc(at_us: int | None) -> str:
    """µs since 1970 as people read them: `2026-11-21 09:12:36`, always UTC."""
    return "-" if at_us is None else moment.utc(at_us)


def print_line(text: str = "") -> None:
    """One line, however long: a terminal folds it, and a copy of it is whole."""
    print(text)


def json_line(value: Any) -> str:
    """One line of JSON. Views may stand in the value."""
    plain_value = plain(value)
    # ASCII only: then no terminal can be moved by what a sender wrote, and programs read the same text.
    try:
        return json.dumps(plain_value, separators=(", ", ": "))
    except (TypeError, ValueError):
        return _exact_json(plain_value)


def _exact_json(value: Any) -> str:
    """The same for a value with the numbers of a payload filter in it, which are exact and no `float`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_exact_json(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_exact_json, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else filter_to_json(value)


def print_json(value: Any) -> None:
    """One JSON value, on one line. Views may stand in it."""
    print(json_line(value))


def print_error(text: str) -> None:
    """To standard error: what happened, to which thing, and what to do."""
    print(shown_lines(text), file=sys.stderr)


def confirm(question: str) -> None:
    """Ask on standard error, and end the command with exit code 1 unless the answer is yes."""
    try:
        is_yes = typer.confirm(shown(question), err=True)
    except typer.Abort:
        print_error("\nNobody answered, so nothing was changed. Add --yes to go ahead without being asked.")
        raise typer.Exit(1) from None
    if not is_yes:
        print_error("Nothing was changed.")
        raise typer.Exit(1)


def print_fields(pairs: Iterable[tuple[str, str]]) -> None:
    """One thing's fields, a line each. Values are one line each, and whole."""
    rows = list(pairs)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print_line(f"{name:<{width}}  {value}".rstrip())


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column. A `whole` one is never folded: ids and times are there to be copied.

    A `stacked` one stands under the first column where the table is too wide for the terminal.
    """

    header: str
    whole: bool = False
    right: bool = False
    stacked: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Rows under their headers: folded to the terminal's width, or each on a line of its own when piped."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    cells = [tuple(shown(cell) for cell in row) for row in rows]
    headers = tuple(column.header for column in columns)
    rich_table = _rich_table(columns, headers, cells)
    unlimited = console.options.update(max_width=_UNLIMITED)
    if not console.is_terminal:
        console.width = console.measure(rich_table, options=unlimited).maximum
    elif console.measure(rich_table, options=unlimited).maximum > console.width:
        first, *others = [column for column in columns if not column.stacked]
        holds_whole = first.whole or any(column.whole for column in columns if column.stacked)
        unstacked = [replace(first, whole=holds_whole), *others]
        stacked = [_stack(columns, row) for row in cells]
        rich_table = _rich_table(unstacked, _stack(columns, headers), stacked)
        # Narrower than its ids: the terminal folds the lines itself, and nothing is cut.
        narrow = [
            tuple(cell if column.whole else cell[:_NARROW] for column, cell in zip(unstacked, row, strict=True))
            for row in stacked
        ]
        least = _rich_table(unstacked, _stack(columns, headers), narrow)
        console.width = max(console.width, console.measure(least, options=unlimited).maximum)
    with console.capture() as captured:
        console.print(rich_table)
    for text_line in captured.get().splitlines():
        print_line(text_line.rstrip())


_UNLIMITED: Final = 100_000
_NARROW: Final = 10
"""How narrow a column that may be folded gets before lines are longer than the terminal."""


def _rich_table(columns: Sequence[Column], headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    rich_table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for column, header in zip(columns, headers, strict=True):
        justify: Literal["left", "right"] = "right" if column.right else "left"
        rich_table.add_column(Text(header), no_wrap=column.whole, overflow="fold", justify=justify)
    for row in rows:
        rich_table.add_row(*(Text(cell) for cell in row))
    return rich_table


def _stack(columns: Sequence[Column], cells: Sequence[str]) -> tuple[str, ...]:
    """The cells of one row, the stacked ones under the first."""
    stacked = [cell for column, cell in zip(columns, cells, strict=True) if column.stacked]
    others = [cell for column, cell in zip(columns, cells, strict=True) if not column.stacked]
    return ("\n".join([others[0], *stacked]), *others[1:])


def on_terminal() -> bool:
    """Whether a person's terminal shows what is printed."""
    return sys.stdout.isatty()


def count(number: int, noun: str) -> str:
    """`1 webhook`, `2 webhooks`, `no webhooks`."""
    if number == 0:
        return f"no {plural(noun)}"
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def command_line(command: str, factory: str = DEFAULT_FACTORY, **options: str | int | list[str] | None) -> str:
    """A command to be copied as it is, in the same factory. Options that are None are left out."""
    all_options = {**options, "factory": factory if factory != DEFAULT_FACTORY else None}
    flags = [
        f"--{name.replace('_', '-')} {shlex.quote(str(item))}"
        for name, value in all_options.items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    return shown(" ".join([program(), command, *flags]))


def program() -> str:
    """How this person calls the command, so that the lines we offer can be copied as they are."""
    if shutil.which("hookmill"):
        return "hookmill"
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m hookmill"
    return shlex.quote(str(script)) if script.name == "hookmill" else "hookmill"
