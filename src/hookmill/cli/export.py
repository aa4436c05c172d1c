"""Exports: every row, oldest first, one JSON object per line. Only one page is in memory at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any, TypeVar

from hookmill.cli import progress
from hookmill.cli.output import count, json_line, on_terminal, print_line
from hookmill.domain.errors import Invalid
from hookmill.domain.text import shown

Row = TypeVar("Row")


def all_pages(page_after: Callable[[Row | None], Sequence[Row]]) -> Iterator[Sequence[Row]]:
    """All pages in order. Each page is requested with the last row of the previous page."""
    page = page_after(None)
    while page:
        yield page
        page = page_after(page[-1])


def write(pages: Iterable[Sequence[Any]], output: str | None, noun: str) -> None:
    """Write one row per line. Raises `Invalid` for a file that can't be written."""
    row_count = 0
    prints_rows_to_terminal = output is None and on_terminal()
    with (
        open_output(output) as file,
        progress.row_counter(noun, prints_rows_to_terminal=prints_rows_to_terminal) as advance,
    ):
        for page in pages:
            file.write("".join(f"{json_line(row)}\n" for row in page))
            row_count += len(page)
            advance(len(page))
    if output is not None:
        print_line(f"Wrote {count(row_count, noun)} to {shown(output)}.")


def open_output(output: str | None) -> AbstractContextManager[IO[str]]:
    """The file, or standard output. Raises `Invalid` for a file that can't be written."""
    if output is None:
        return nullcontext(sys.stdout)
    try:
        return Path(output).open("w", encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{shown(output)} can't be written: {error.strerror}.") from None
