"""Progress of slow operations: on a terminal's standard error, and removed at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hookmill.cli.output import count, plural, print_error

if TYPE_CHECKING:
    from hookmill.store.rows import ReportRows

LINE_SECONDS: Final = 10.0
"""The time between two lines of progress of the same phase, where there is no terminal."""


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


@contextmanager
def phases() -> Iterator[ReportRows]:
    """A bar for each phase on a terminal's standard error. Otherwise lines, a few for each phase.

    Phases without rows are not shown.
    """
    if not sys.stderr.isatty():
        yield _ProgressLines().report
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    task_by_phase: dict[str, TaskID] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:

        def report(phase: str, rows: int, total: int) -> None:
            if total == 0:
                return
            if phase not in task_by_phase:
                task_by_phase[phase] = progress.add_task(phase, total=total)
            progress.advance(task_by_phase[phase], rows)

        yield report


class _ProgressLines:
    """Prints how far a phase is: at its beginning, every few seconds, and at its end."""

    def __init__(self) -> None:
        self._phase = ""
        self._rows = 0
        self._printed_at = 0.0

    def report(self, phase: str, rows: int, total: int) -> None:
        if total == 0:
            return
        is_new = phase != self._phase
        was_finished = not is_new and self._rows >= total
        self._phase, self._rows = phase, rows if is_new else self._rows + rows
        is_finished = self._rows >= total and not was_finished
        now = time.monotonic()
        if is_new or is_finished or now - self._printed_at >= LINE_SECONDS:
            self._printed_at = now
            print_error(f"{phase}: {self._rows:,} of {count(total, 'row')}")
