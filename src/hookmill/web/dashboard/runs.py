"""Runs: what deliveries started, how it goes, and what each left behind."""

from collections.abc import Mapping, Sequence
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
from hookmill.runs.package import list_files, open_file, read_chunks, read_tail
from hookmill.runs.runners.guard import OUTPUT_FILE
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import managing, viewing
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext, mark_of
from hookmill.web.dashboard.urls import url

PAGE: Final = 50
OUTPUT_BYTES_SHOWN: Final = 16_384
"""The last so many bytes of what a command printed."""
FILES_SHOWN: Final = 50

pages.FLASH_MESSAGES.update({"run-cancelled": "Run cancelled.", "run-stopping": "Cancellation requested."})


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


def runs(context: PageContext, may: MayView) -> Response:
    typed, state, problem = _narrowed(context)
    return context.page(
        "runs.html",
        status=422 if problem else 200,
        may=may,
        listed=_listed(context, may, typed, state, before=context.query.get("before", ""), is_wrong=bool(problem)),
        typed=typed,
        problem=problem,
        states=list(RunState),
        webhooks=context.management.webhooks.all(may, with_deleted=True),
        automations=context.management.automations.all(may),
    )


def rows(context: PageContext, may: MayView) -> Response:
    """The first page's list alone. Nothing, when the reader has seen it as it is."""
    typed, state, problem = _narrowed(context)
    return list_again(context, _listed(context, may, typed, state, is_wrong=bool(problem)))


def list_again(context: PageContext, listed: Listed) -> Response:
    return context.page_again("parts/run-list.html", listed.seen, listed=listed)


def _narrowed(context: PageContext) -> tuple[dict[str, str], RunState | None, str]:
    """The form as it was filled in, the state that it names, and what is wrong with that."""
    typed = {name: context.query.get(name, "").strip() for name in ("webhook", "automation", "state")}
    try:
        return typed, RunState(typed["state"]) if typed["state"] else None, ""
    except ValueError:
        return typed, None, "Unknown state. Choose one from the list."


def _listed(
    context: PageContext,
    may: MayView,
    typed: Mapping[str, str],
    state: RunState | None,
    *,
    before: str = "",
    is_wrong: bool = False,
) -> Listed:
    here = ("f", may.factory.name, "runs")
    newest = context.management.runs.newest(
        may,
        webhook=typed["webhook"] or None,
        automation=typed["automation"] or None,
        state=state,
        before=run_key(before) if before else None,
        limit=PAGE + 1,
    )
    has_older, newest = len(newest) > PAGE, newest[:PAGE]
    if any(typed.values()) or before:
        nothing = "No runs match."
    else:
        nothing = "No runs yet. A delivery starts a run when it matches a trigger of an automation."
    return Listed(
        runs=newest,
        live_at=url(*here, "rows", **typed) if not before and not is_wrong else None,
        nothing=nothing,
        newest_at=url(*here, **typed) if before else None,
        older_at=url(*here, **typed, before=run_id(newest[-1].id)) if has_older else None,
    )


def run(context: PageContext, may: MayView) -> Response:
    return _run_page(context, may)


def _run_page(context: PageContext, may: MayView, *, status: int = 200, problem: str = "") -> Response:
    shown_run = context.management.runs.get(may, context.parameters["run"])
    files, count = _files(context, shown_run)
    return context.page(
        "run.html",
        status=status,
        may=may,
        run=shown_run,
        problem=problem,
        files=files,
        more_files=count - len(files),
        only_leaves_files=shown_run.runner == PACKAGE_RUNNER,
        prompt=full_prompt(shown_run),
        envelope=envelope_text(shown_run),
        **_progress(context, shown_run),
    )


def progress(context: PageContext, may: MayView) -> Response:
    """The part of a run's page that changes while it runs. Nothing, when the reader has seen it as it is."""
    shown_run = context.management.runs.get(may, context.parameters["run"])
    part = _progress(context, shown_run)
    return context.page_again("parts/run-progress.html", part["seen"], may=may, run=shown_run, **part)


def _progress(context: PageContext, run: Run) -> dict[str, Any]:
    output = _output(context, run)
    return {"output": output, "seen": mark_of(_changing(run), output)}


def _changing(run: Run) -> tuple[object, ...]:
    return run.id, run.state, run.attempt, run.started_at, run.finished_at, run.cancel_requested_at


def cancel(context: PageContext, may: MayManage) -> Response:
    shown_id = context.parameters["run"]
    try:
        cancelled = context.management.runs.cancel(may, shown_id)
    except Conflict as error:
        return _run_page(context, may, status=409, problem=str(error))
    flash = "run-cancelled" if cancelled.state is RunState.CANCELLED else "run-stopping"
    return context.go("f", may.factory.name, "runs", shown_id, flash=flash)


# ── The package ──────────────────────────────────────────────────────────────────────────────────────────────


def file(context: PageContext, may: MayView) -> Response:
    """A file of the package, byte for byte, as it was when it was asked for: a command may write to it meanwhile."""
    shown_run = context.management.runs.get(may, context.parameters["run"])
    name = context.parameters["file"]
    try:
        pieces = read_chunks(_open(context, shown_run, name))
        # From its first piece on it closes the file, whatever becomes of the answer.
        first = next(pieces, b"")
    except OSError:
        raise NotFound("The run's package has no such file on this machine.") from None
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(text.shown(name), safe='')}",
        # Shown in a page of ours, what a command or a sender wrote could act there.
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return StreamingResponse(chain([first], pieces), media_type="application/octet-stream", headers=headers)


def _packages(context: PageContext) -> Path | None:
    packages = context.service.facts.get("packages")
    return packages if isinstance(packages, Path) else None


def _open(context: PageContext, run: Run, name: str) -> int:
    """A descriptor of a file of the package. Raises `OSError`."""
    packages = _packages(context)
    if packages is None:
        raise FileNotFoundError(name)
    return open_file(packages, run, name)


def _files(context: PageContext, run: Run) -> tuple[list[File], int]:
    """The first files by name, and how many there are."""
    packages = _packages(context)
    files, _ = list_files(packages, run) if packages is not None else ([], False)
    first = files[:FILES_SHOWN]
    return [File(name=name, size=size, address=_address(context, run, name)) for name, size in first], len(files)


def _address(context: PageContext, run: Run, name: str) -> str | None:
    # A command may name a file by bytes that are no text.
    with suppress(UnicodeEncodeError):
        return url("f", context.parameters["factory"], "runs", run_id(run.id), "files", name)
    return None


def _output(context: PageContext, run: Run) -> Output:
    """From the package if that is here, and else as it was kept."""
    with suppress(OSError):
        end, size = read_tail(_open(context, run, OUTPUT_FILE), OUTPUT_BYTES_SHOWN)
        return Output(text=end.decode("utf-8", "backslashreplace"), size=size, is_cut=size > OUTPUT_BYTES_SHOWN)
    kept = run.output_tail or ""
    return Output(text=kept, size=len(kept), is_cut=False)


PAGES: Final = (
    Page("GET", "/f/{factory}/runs", runs, viewing),
    Page("GET", "/f/{factory}/runs/rows", rows, viewing, by_itself=True),
    Page("GET", "/f/{factory}/runs/{run}", run, viewing),
    Page("GET", "/f/{factory}/runs/{run}/progress", progress, viewing, by_itself=True),
    Page("GET", "/f/{factory}/runs/{run}/files/{file}", file, viewing),
    Page("POST", "/f/{factory}/runs/{run}/cancel", cancel, managing),
)
