"""Runs: what deliveries started, how it goes, and what each left behind."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from hookmill.domain.errors import Conflict
from hookmill.domain.ids import run_id, run_key
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import Run, RunState, envelope_text, full_prompt
from hookmill.runs.package import directory_of
from hookmill.runs.runners.guard import OUTPUT_FILE
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import managing, viewing
from hookmill.web.dashboard.door import Page
from hookmill.web.dashboard.visit import Visit

PAGE: Final = 50
OUTPUT_BYTES_SHOWN: Final = 16_384
"""The last so many bytes of what a command printed."""
FILES_SHOWN: Final = 50
FILES_COUNTED: Final = 1_000

pages.SAID.update({"run-cancelled": "Cancelled.", "run-stopping": "The run is told to stop."})


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a run's package."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The end of what a run's command printed. `size` is the whole's."""

    text: str
    size: int
    is_cut: bool


def runs(visit: Visit, may: MayView) -> Response:
    typed = {name: visit.query.get(name, "").strip() for name in ("webhook", "state")}
    problem = ""
    state: RunState | None = None
    if typed["state"]:
        try:
            state = RunState(typed["state"])
        except ValueError:
            problem = "There is no such state. Choose one of the list."
    before = visit.query.get("before", "")
    found = visit.management.runs.newest(
        may,
        webhook=typed["webhook"] or None,
        state=state,
        before=run_key(before) if before else None,
        limit=PAGE + 1,
    )
    has_older, found = len(found) > PAGE, found[:PAGE]
    return visit.page(
        "runs.html",
        status=422 if problem else 200,
        may=may,
        runs=found,
        typed=typed,
        problem=problem,
        states=list(RunState),
        webhooks=visit.management.webhooks.all(may, with_deleted=True),
        before=before,
        older={**typed, "before": run_id(found[-1].id)} if has_older else None,
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
        prompt=full_prompt(found),
        envelope=envelope_text(found),
        **_progress(visit, found),
    )


def progress(visit: Visit, may: MayView) -> Response:
    """The part of a run's page that changes while it runs. Nothing, when the reader has seen it as it is."""
    found = visit.management.runs.get(may, visit.parameters["run"])
    part = _progress(visit, found)
    if visit.query.get("seen") == part["seen"]:
        return Response(status_code=204)
    return visit.page("parts/run-progress.html", may=may, run=found, **part)


def _progress(visit: Visit, found: Run) -> dict[str, Any]:
    output = _output(visit, found)
    changing = repr(
        (found.state, found.attempt, found.started_at, found.finished_at, found.cancel_requested_at, output)
    )
    return {"output": output, "seen": sha256(changing.encode("utf-8", "backslashreplace")).hexdigest()[:16]}


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


def _files(visit: Visit, found: Run) -> tuple[list[File], int]:
    """The first files by name, and how many there are."""
    package = _open_package(visit, found)
    if package is None:
        return [], 0
    try:
        with os.scandir(package) as entries:
            files = [
                File(name=entry.name, size=entry.stat(follow_symlinks=False).st_size)
                for entry, _ in zip(entries, range(FILES_COUNTED), strict=False)
                if entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return [], 0
    finally:
        os.close(package)
    files.sort(key=lambda file: file.name)
    return files[:FILES_SHOWN], len(files)


def _output(visit: Visit, found: Run) -> Output:
    """From the package if that is here, and else as it was kept."""
    package = _open_package(visit, found)
    if package is not None:
        try:
            # A command may leave a link or a pipe there: it leads nowhere from here.
            file = os.open(OUTPUT_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=package)
        except OSError:
            pass
        else:
            with os.fdopen(file, "rb") as opened:
                facts = os.fstat(opened.fileno())
                if stat.S_ISREG(facts.st_mode):
                    start = max(0, facts.st_size - OUTPUT_BYTES_SHOWN)
                    opened.seek(start)
                    text = opened.read(OUTPUT_BYTES_SHOWN).decode("utf-8", "ignore" if start else "backslashreplace")
                    return Output(text=text, size=facts.st_size, is_cut=start > 0)
        finally:
            os.close(package)
    kept = found.output_tail or ""
    return Output(text=kept, size=len(kept), is_cut=False)


PAGES: Final = (
    Page("GET", "/f/{factory}/runs", runs, viewing),
    Page("GET", "/f/{factory}/runs/{run}", run, viewing),
    Page("GET", "/f/{factory}/runs/{run}/progress", progress, viewing),
    Page("POST", "/f/{factory}/runs/{run}/cancel", cancel, managing),
)
