"""The pages of runs: the list, and one run with its progress, output and files."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from hookmill.domain.errors import Conflict
from hookmill.domain.ids import run_id, run_key
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import PACKAGE_RUNNER, Run, RunState, envelope_text, full_prompt
from hookmill.domain.run_files import RunFile
from hookmill.domain.run_outputs import summary_of
from hookmill.presentation.run import hold_text
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import require_manager, require_viewer
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext, version_tag
from hookmill.web.dashboard.urls import url
from hookmill.web.run_file import file_response

PAGE_SIZE: Final = 50
FILES_SHOWN: Final = 50

pages.FLASH_MESSAGES.update({"run-cancelled": "Run cancelled.", "run-stopping": "Cancellation requested."})


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a run's package. `url` is None if the name can't be part of a URL, or if this host can't read it."""

    name: str
    size: int
    url: str | None
    only_on_host: str | None
    """The name of the host that has the file, if this host can't read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayedOutput:
    """The output of a run's command, or its end."""

    text: str
    size: int
    """Of the whole output, in bytes; 0 if it is unknown."""
    is_cut: bool
    complete_on_host: str | None
    """The host that has the whole output, if only its end is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """A list of runs on a page."""

    runs: Sequence[Run]
    poll_url: str | None
    """None on older pages and on pages with invalid filters, because these are not updated."""
    empty_text: str
    """The text for an empty list."""
    is_of_one_automation: bool = False
    newest_url: str | None = None
    older_url: str | None = None

    @property
    def version_tag(self) -> str:
        """The version tag of the list."""
        return version_tag([_changing_fields(run) for run in self.runs], self.older_url)


def runs(context: PageContext, may: MayView) -> Response:
    inputs, state, problem = _query_fields(context)
    return context.page(
        "runs.html",
        status=422 if problem else 200,
        may=may,
        run_list=_run_list(
            context, may, inputs, state, before=context.query.get("before", ""), has_problem=bool(problem)
        ),
        inputs=inputs,
        problem=problem,
        states=list(RunState),
        webhooks=context.management.webhooks.all(may, with_deleted=True),
        automations=context.management.automations.all(may),
    )


def rows(context: PageContext, may: MayView) -> Response:
    """The first page's list, for polling. The response is empty if nothing has changed."""
    inputs, state, problem = _query_fields(context)
    return list_if_changed(context, _run_list(context, may, inputs, state, has_problem=bool(problem)))


def list_if_changed(context: PageContext, run_list: RunList) -> Response:
    return context.page_if_changed("parts/run-list.html", run_list.version_tag, run_list=run_list)


def _query_fields(context: PageContext) -> tuple[dict[str, str], RunState | None, str]:
    """The fields of the form as typed, the parsed state, and a problem text if the state is unknown."""
    inputs = {name: context.query.get(name, "").strip() for name in ("webhook", "automation", "state")}
    try:
        return inputs, RunState(inputs["state"]) if inputs["state"] else None, ""
    except ValueError:
        return inputs, None, "Unknown state. Choose one from the list."


def _run_list(
    context: PageContext,
    may: MayView,
    inputs: Mapping[str, str],
    state: RunState | None,
    *,
    before: str = "",
    has_problem: bool = False,
) -> RunList:
    here = ("f", may.factory.name, "runs")
    newest = context.management.runs.newest(
        may,
        webhook=inputs["webhook"] or None,
        automation=inputs["automation"] or None,
        state=state,
        before=run_key(before) if before else None,
        limit=PAGE_SIZE + 1,
    )
    has_older, newest = len(newest) > PAGE_SIZE, newest[:PAGE_SIZE]
    if any(inputs.values()) or before:
        empty_text = "No runs match."
    else:
        empty_text = (
            "No runs yet. A delivery starts a run when it matches a trigger of an automation, and a schedule at its "
            "times."
        )
    return RunList(
        runs=newest,
        poll_url=url(*here, "rows", **inputs) if not before and not has_problem else None,
        empty_text=empty_text,
        newest_url=url(*here, **inputs) if before else None,
        older_url=url(*here, **inputs, before=run_id(newest[-1].id)) if has_older else None,
    )


def run(context: PageContext, may: MayView) -> Response:
    return _run_page(context, may)


def _run_page(context: PageContext, may: MayView, *, status: int = 200, problem: str = "") -> Response:
    shown_run = context.management.runs.get(may, context.parameters["run"])
    run_files = context.management.run_files.files_of(may, shown_run)
    return context.page(
        "run.html",
        status=status,
        may=may,
        run=shown_run,
        problem=problem,
        files=[_file(context, shown_run, file) for file in run_files.files[:FILES_SHOWN]],
        unlisted_file_count=max(len(run_files.files) - FILES_SHOWN, 0),
        is_package_on_this_host=run_files.is_on_this_host,
        are_files_stored=context.management.run_files.has_storage,
        only_writes_files=shown_run.runner == PACKAGE_RUNNER,
        prompt=full_prompt(shown_run),
        envelope=envelope_text(shown_run),
        fields=context.management.run_files.fields_of(may, shown_run),
        **_progress(context, may, shown_run),
    )


def progress(context: PageContext, may: MayView) -> Response:
    """The part of a run's page that changes, for polling. The response is empty if nothing has changed."""
    shown_run = context.management.runs.get(may, context.parameters["run"])
    part = _progress(context, may, shown_run)
    return context.page_if_changed("parts/run-progress.html", part["version_tag"], may=may, run=shown_run, **part)


def _progress(context: PageContext, may: MayView, run: Run) -> dict[str, Any]:
    output = _output(context, may, run)
    return {
        "output": output,
        "hold_text": hold_text(run),
        "reports": context.management.runs.agent_reports(may, run_id(run.id)) if run.attempt else {},
        "summary": summary_of(context.management.runs.outputs(may, run_id(run.id))) if run.state.is_final else None,
        "results": context.management.runs.results(may, run_id(run.id)) if run.options.results else (),
        "failed_attempts": context.management.runs.failed_attempts(may, run_id(run.id)) if run.failures else (),
        "version_tag": version_tag(_changing_fields(run), output),
    }


def _changing_fields(run: Run) -> tuple[object, ...]:
    """The run's id, and the values that tell whether what a page shows of the run has changed."""
    return (
        run.id,
        run.state,
        run.attempt,
        run.started_at,
        run.finished_at,
        run.cancel_requested_at,
        run.hold,
        run.due_at,
    )


def cancel(context: PageContext, may: MayManage) -> Response:
    shown_id = context.parameters["run"]
    try:
        run = context.management.runs.cancel(may, shown_id)
    except Conflict as error:
        return _run_page(context, may, status=409, problem=str(error))
    flash = "run-cancelled" if run.state is RunState.CANCELLED else "run-stopping"
    return context.redirect("f", may.factory.name, "runs", shown_id, flash=flash)


# ── The package ──────────────────────────────────────────────────────────────────────────────────────────────


def file(context: PageContext, may: MayView) -> Response:
    """A file of the package, byte for byte. The run's command may still write to it."""
    shown_run = context.management.runs.get(may, context.parameters["run"])
    name = context.parameters["file"]
    return file_response(name, context.management.run_files.read(may, shown_run, name))


def _file(context: PageContext, run: Run, file: RunFile) -> File:
    file_url = None
    if file.only_on_host is None:
        # A command may use bytes in a file name that are not valid text.
        with suppress(UnicodeEncodeError):
            file_url = url("f", context.parameters["factory"], "runs", run_id(run.id), "files", file.name)
    return File(name=file.name, size=file.size, url=file_url, only_on_host=file.only_on_host)


def _output(context: PageContext, may: MayView, run: Run) -> DisplayedOutput:
    output = context.management.run_files.output_of(may, run)
    if output is None:
        return DisplayedOutput(text="", size=0, is_cut=False, complete_on_host=None)
    return DisplayedOutput(
        text=output.content.decode("utf-8", "backslashreplace"),
        size=output.size or 0,
        is_cut=bool(output.is_cut),
        complete_on_host=output.complete_on_host,
    )


PAGES: Final = (
    Page("GET", "/f/{factory}/runs", runs, require_viewer),
    Page("GET", "/f/{factory}/runs/rows", rows, require_viewer, is_background=True),
    Page("GET", "/f/{factory}/runs/{run}", run, require_viewer),
    Page("GET", "/f/{factory}/runs/{run}/progress", progress, require_viewer, is_background=True),
    Page("GET", "/f/{factory}/runs/{run}/files/{file}", file, require_viewer),
    Page("POST", "/f/{factory}/runs/{run}/cancel", cancel, require_manager),
)
