"""Progress of slow operations: on a terminal's standard error, and removed at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hookmill.cli.output import plural


@contextmanager
def row_counter(noun: str, *, prints_rows_to_terminal: bool) -> Iterator[Callable[[int], None]]:
    """A bar that counts rows of an unknown total. Yields a function that gets the number of further rows.

    There is no bar if the rows go to the same terminal, or if standard error is no terminal.
    """
    if prints_rows_to_terminal or not sys.stderr.isatty():
        yield lambda _rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        # Without a total: counting the rows would read the log twice.
        task = progress.add_task(plural(noun), total=None)
        yield lambda rows: progress.advance(task, rows)


@contextmanager
def activity_bar(description: str) -> Iterator[None]:
    """A bar that moves while one operation runs, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(description, total=None)
        yield
