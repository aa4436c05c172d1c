"""Runs: what deliveries started, how it goes, and what each left behind."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from hookmill.domain import text
from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.ids import run_id, run_key
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import PACKAGE_RUNNER, Run, RunState, envelope_text, full_prompt
from hookmill.runs.package import directory_of
from hookmill.runs.runners.guard import OUTPUT_FILE
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import managing, viewing
from hookmill.web.dashboard.door import Page
from hookmill.web.dashboard.visit import Visit, mark_of
from hookmill.web.dashboard.where import url

PAGE: Final = 50
OUTPUT_BYTES_SHOWN: Final = 16_384
"""The last so many bytes of what a command printed."""
FILES_SHOWN: Final = 50
FILES_COUNTED: Final = 1_000
PIECE_BYTES: Final = 65_536

pages.SAID.update({"run-cancelled": "Cancelled.", "run-stopping": "The run is told to stop."})


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a run's package. `address` is None where its name can't stand in one."""

    name: str
    size: int
    address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The end of what a run's command printed. `size` is the whole's."""

    text: str
    size: int
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A list of runs as a page shows it. `live_at` is where it is asked for again while it can grow."""

    runs: Sequence[Run]
    live_at: str | None
    nothing: str
    """What to say where there are none."""
    of_automation: bool = False
    newest_at: str | None = None
    older_at: str | None = None

    @property
    def seen(self) -> str:
        """Another one says that the reader has not seen the list as it is."""
        return mark_of([_changing(run) for run in self.runs], self.older_at)


def runs(visit: Visit, may: MayView) -> Response:
    typed, state, problem = _narrowed(visit)
    return visit.page(
        "runs.html",
        status=422 if problem else 200,
        may=may,
        listed=_listed(visit, may, typed, state, before=visit.query.get("before", ""), is_wrong=bool(problem)),
        typed=typed,
        problem=problem,
        states=list(RunState),
        webhooks=visit.management.webhooks.all(may, with_deleted=True),
        automations=visit.management.automations.all(may),
    )


def rows(visit: Visit, may: MayView) -> Response:
    """The first page's list alone. Nothing, when the reader has seen it as it is."""
    typed, state, problem = _narrowed(visit)
    return list_again(visit, _listed(visit, may, typed, state, is_wrong=bool(problem)))


def list_again(visit: Visit, listed: Listed) -> Response:
    return visit.page_again("parts/run-list.html", listed.seen, listed=listed)


def _narrowed(visit: Visit) -> tuple[dict[str, str], RunState | None, str]:
    """The form as it was filled in, the state that it names, and what is wrong with that."""
    typed = {name: visit.query.get(name, "").strip() for name in ("webhook", "automation", "state")}
    try:
        return typed, RunState(typed["state"]) if typed["state"] else None, ""
    except ValueError:
        return typed, None, "There is no such state. Choose one of the list."


def _listed(
    visit: Visit,
    may: MayView,
    typed: Mapping[str, str],
    state: RunState | None,
    *,
    before: str = "",
    is_wrong: bool = False,
) -> Listed:
    here = ("f", may.factory.name, "runs")
    found = visit.management.runs.newest(
        may,
        webhook=typed["webhook"] or None,
        automation=typed["automation"] or None,
        state=state,
        before=run_key(before) if before else None,
        limit=PAGE + 1,
    )
    has_older, found = len(found) > PAGE, found[:PAGE]
    if any(typed.values()) or before:
        nothing = "No run matches."
    else:
        nothing = "Nothing has run yet. A delivery starts a run when an automation selects it."
    return Listed(
        runs=found,
        live_at=url(*here, "rows", **typed) if not before and not is_wrong else None,
        nothing=nothing,
        newest_at=url(*here, **typed) if before else None,
        older_at=url(*here, **typed, before=run_id(found[-1].id)) if has_older else None,
    )


def run(visit: Visit, may: MayView) -> Response:
    return _run_page(visit, may)


def _run_page(visit: Visit, may: MayView, *, status: int = 200, problem: str = "") -> Response:
    found = visit.management.runs.get(may, visit.parameters["run"])
    files, count = _files(visit, found)
    return visit.page(
        "run.html",
        status=status,
        may=may,
        run=found,
        problem=problem,
        files=files,
        more_files=count - len(files),
        only_leaves_files=found.runner == PACKAGE_RUNNER,
        prompt=full_prompt(found),
        envelope=envelope_text(found),
        **_progress(visit, found),
    )


def progress(visit: Visit, may: MayView) -> Response:
    """The part of a run's page that changes while it runs. Nothing, when the reader has seen it as it is."""
    found = visit.management.runs.get(may, visit.parameters["run"])
    part = _progress(visit, found)
    return visit.page_again("parts/run-progress.html", part["seen"], may=may, run=found, **part)


def _progress(visit: Visit, found: Run) -> dict[str, Any]:
    output = _output(visit, found)
    return {"output": output, "seen": mark_of(_changing(found), output)}


def _changing(run: Run) -> tuple[object, ...]:
    return run.id, run.state, run.attempt, run.started_at, run.finished_at, run.cancel_requested_at


def cancel(visit: Visit, may: MayManage) -> Response:
    shown_id = visit.parameters["run"]
    try:
        found = visit.management.runs.cancel(may, shown_id)
    except Conflict as error:
        return _run_page(visit, may, status=409, problem=str(error))
    said = "run-cancelled" if found.state is RunState.CANCELLED else "run-stopping"
    return visit.go("f", may.factory.name, "runs", shown_id, said=said)


# ── The package ──────────────────────────────────────────────────────────────────────────────────────────────


def _package(visit: Visit, found: Run) -> Path | None:
    packages = visit.service.facts.get("packages")
    return directory_of(packages, found) if isinstance(packages, Path) else None


def _open_package(visit: Visit, found: Run) -> int | None:
    """A descriptor of the package's directory, which its command may have put something else in the place of."""
    directory = _package(visit, found)
    if directory is None:
        return None
    with suppress(OSError):
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    return None


def file(visit: Visit, may: MayView) -> Response:
    """A file of the package, byte for byte, as it was when it was asked for: a command may write to it meanwhile."""
    found = visit.management.runs.get(may, visit.parameters["run"])
    name = visit.parameters["file"]
    pieces = _pieces(visit, found, name)
    # The first piece opens the file, or says that there is none while another answer can still be given.
    try:
        first = next(pieces)
    except OSError:
        raise NotFound("The package of this run has no such file here.") from None
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(text.shown(name), safe='')}",
        # Shown in a page of ours, what a command or a sender wrote could act there.
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return StreamingResponse(chain([first], pieces), media_type="application/octet-stream", headers=headers)


def _pieces(visit: Visit, found: Run, name: str) -> Iterator[bytes]:
    """The content of a regular file of the package. Raises `OSError` at the first piece where there is none."""
    with os.fdopen(_open_file(visit, found, name), "rb", buffering=0) as opened:
        left = os.fstat(opened.fileno()).st_size
        yield b""
        while left > 0 and (piece := opened.read(min(left, PIECE_BYTES))):
            left -= len(piece)
            yield piece


def _open_file(visit: Visit, found: Run, name: str) -> int:
    """A descriptor of a regular file that lies in the package itself. Raises `OSError`."""
    if "/" in name or "\0" in name:
        raise FileNotFoundError(name)
    package = _open_package(visit, found)
    if package is None:
        raise FileNotFoundError(name)
    try:
        # A command may leave a link or a pipe there: it leads nowhere from here.
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=package)
    finally:
        os.close(package)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise FileNotFoundError(name)


def _files(visit: Visit, found: Run) -> tuple[list[File], int]:
    """The first files by name, and how many there are."""
    package = _open_package(visit, found)
    if package is None:
        return [], 0
    try:
        with os.scandir(package) as entries:
            files = [
                (entry.name, entry.stat(follow_symlinks=False).st_size)
                for entry, _ in zip(entries, range(FILES_COUNTED), strict=False)
                if entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return [], 0
    finally:
        os.close(package)
    first = sorted(files)[:FILES_SHOWN]
    return [File(name=name, size=size, address=_address(visit, found, name)) for name, size in first], len(files)


def _address(visit: Visit, found: Run, name: str) -> str | None:
    # A command may name a file by bytes that are no text.
    with suppress(UnicodeEncodeError):
        return url("f", visit.parameters["factory"], "runs", run_id(found.id), "files", name)
    return None


def _output(visit: Visit, found: Run) -> Output:
    """From the package if that is here, and else as it was kept."""
    with suppress(OSError), os.fdopen(_open_file(visit, found, OUTPUT_FILE), "rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        start = max(0, size - OUTPUT_BYTES_SHOWN)
        opened.seek(start)
        end = opened.read(OUTPUT_BYTES_SHOWN).decode("utf-8", "ignore" if start else "backslashreplace")
        return Output(text=end, size=size, is_cut=start > 0)
    kept = found.output_tail or ""
    return Output(text=kept, size=len(kept), is_cut=False)


PAGES: Final = (
    Page("GET", "/f/{factory}/runs", runs, viewing),
    Page("GET", "/f/{factory}/runs/rows", rows, viewing, by_itself=True),
    Page("GET", "/f/{factory}/runs/{run}", run, viewing),
    Page("GET", "/f/{factory}/runs/{run}/progress", progress, viewing, by_itself=True),
    Page("GET", "/f/{factory}/runs/{run}/files/{file}", file, viewing),
    Page("POST", "/f/{factory}/runs/{run}/cancel", cancel, managing),
)
