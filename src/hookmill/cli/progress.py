"""What a person at a terminal sees while something takes its time: on standard error, and gone when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hookmill.cli.output import plural


@contextmanager
def row_counter(noun: str, *, rows_on_terminal: bool) -> Iterator[Callable[[int], None]]:
    """A bar that counts rows of which nobody knows how many there are, unless they run over the same terminal."""
    if rows_on_terminal or not sys.stderr.isatty():
        yield lambda _rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        # How many there are is not known: counting them would read the log twice.
        task = progress.add_task(plural(noun), total=None)
        yield lambda rows: progress.advance(task, rows)


@contextmanager
def activity_bar(description: str) -> Iterator[None]:
    """A bar that moves for as long as one operation lasts."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(description, total=None)
        yield
