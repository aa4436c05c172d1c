"""`hookmill run`: runs and their results."""

from __future__ import annotations

import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, assert_never

import typer

from hookmill.cli import export, inputs, options
from hookmill.cli.output import (
    Column,
    command_line,
    confirm,
    count,
    on_terminal,
    print_error,
    print_fields,
    print_json,
    print_line,
    print_table,
    utc,
    utc_with_zone,
)
from hookmill.cli.session import factory_session
from hookmill.domain.ids import delivery_id, run_id, run_key
from hookmill.domain.run import ByDelivery, ByPerson, BySchedule, Run, RunState
from hookmill.domain.run_files import OUTPUT_FILE
from hookmill.domain.run_outputs import SummarySource, summary_of
from hookmill.domain.text import shown, shown_lines
from hookmill.presentation.queue import (
    CancelledRunsView,
    QueueView,
    WaitingRunView,
    count_text,
    duration_text,
    waiting_text,
    warning_text,
    worker_text,
)
from hookmill.presentation.run import (
    RunView,
    RunWithOutputView,
    field_value_text,
    hold_text,
    result_text,
    usage_text,
)
from hookmill.presentation.run_files import RunOutputView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.client.types import RunJson
    from hookmill.domain.agent_report import AgentReport
    from hookmill.domain.queue import Queue, WaitingRun
    from hookmill.domain.run_files import RunFile, RunFiles, RunOutput
    from hookmill.settings import Settings

commands = typer.Typer(no_args_is_help=True, help="Runs of automations, and their results.")

FILES_SHOWN_MAX: Final = 20
"""How many files of a run `run show` lists. `--json` lists more."""
LOG_BYTES_MAX: Final = 1_048_576
"""The maximum size of the output that `run log --json` prints. Of a longer output, the command prints the end."""

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, run_….", show_default=False)]


class UnfinishedState(StrEnum):
    QUEUED = RunState.QUEUED.value
    RUNNING = RunState.RUNNING.value


@commands.command("list")
def list_runs(
    webhook: options.OnlyWebhook = None,
    automation: Annotated[
        str | None, typer.Option(metavar="AUTOMATION", help="Only runs of this automation (name or id).")
    ] = None,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.")] = None,
    limit: options.Limit = options.PAGE_ROWS,
    before: Annotated[
        str | None, typer.Option(metavar="RUN", help="Only runs older than this one: the next page.")
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """List runs, newest first."""
    with factory_session(factory) as session:
        runs = session.management.runs.newest(
            session.may,
            webhook=webhook,
            automation=automation,
            state=state,
            before=run_key(before) if before is not None else None,
            limit=limit,
        )
    if json:
        print_json({"items": [RunView.of(run) for run in runs]})
        return
    if not runs:
        matching = " that match" if webhook or automation or state or before else " yet"
        print_line(f"There are no runs{matching}. A delivery or a schedule of an automation starts one.")
        return
    print_runs([_json(run) for run in runs])
    if len(runs) == limit:
        same_options = {
            "webhook": webhook,
            "automation": automation,
            "state": state.value if state is not None else None,
            "limit": limit if limit != options.PAGE_ROWS else None,
            "before": run_id(runs[-1].id),
        }
        print_line(f"Older runs: {command_line('run list', factory, **same_options)}")


@commands.command("queue")
def show_queue(
    limit: options.Limit = options.PAGE_ROWS, factory: options.FactoryName = "default", json: options.AsJson = False
) -> None:
    """Show waiting runs, running runs, and all workers, alive or not."""
    with factory_session(factory) as session:
        queue = session.management.runs.queue(session.may, limit=limit + 1)
    waiting = queue.waiting[:limit]
    if json:
        print_json(plain(QueueView.of(queue)) | {"waiting": [WaitingRunView.with_reason(each) for each in waiting]})
        return
    if (warning := warning_text(queue)) is not None:
        print_error(warning)
    counts = queue.counts
    held_text = ", ".join(f"{hold.name.lower()} {count_text(held_count)}" for hold, held_count in counts.held.items())
    oldest_at = counts.oldest_ready_at
    age = f", the oldest for {duration_text(queue.read_at - oldest_at)}" if oldest_at is not None else ""
    print_fields(
        [
            ("Running", count_text(counts.running)),
            ("Ready", f"{count_text(counts.ready)}{age}"),
            ("Held", held_text),
        ]
    )
    print_line()
    _print_workers(queue)
    if queue.running:
        print_line()
        _print_running(queue)
    if waiting:
        print_line()
        _print_waiting(waiting, queue.read_at)
    if len(queue.waiting) > limit:
        print_line(f"More runs wait. All of them: {command_line('run list', factory, state=RunState.QUEUED.value)}")


def _print_workers(queue: Queue) -> None:
    if not queue.workers:
        print_line("There are no workers.")
        return
    print_table(
        [
            Column("WORKER"),
            Column("STATE", no_wrap=True),
            Column("HEARTBEAT (UTC)", no_wrap=True),
            Column("SLOTS USED"),
        ],
        [
            (
                worker_text(worker.executor),
                "alive" if worker.is_alive(queue.read_at) else "no heartbeat",
                utc(worker.last_seen_at),
                f"{worker.claimed_runs:,}",
            )
            for worker in queue.workers
        ],
    )


def _print_running(queue: Queue) -> None:
    print_table(
        [
            Column("RUNNING SINCE (UTC)", no_wrap=True),
            Column("RUN", no_wrap=True, moves_below_if_narrow=True),
            Column("STATE", no_wrap=True),
            Column("ATTEMPT", align_right=True),
            Column("AUTOMATION"),
            Column("RUNNER"),
            Column("WORKER"),
        ],
        [
            (
                utc(running.run.started_at),
                run_id(running.run.id),
                _state_text(_json(running.run)),
                str(running.run.attempt),
                _automation_text(_json(running.run)),
                running.run.runner,
                worker_text(running.executor) + ("" if running.has_live_worker(queue.read_at) else " (no heartbeat)"),
            )
            for running in queue.running
        ],
    )
    if queue.counts.running.count > len(queue.running):
        print_line(f"The other {queue.counts.running.count - len(queue.running):,} are not listed.")


def _print_waiting(waiting: Sequence[WaitingRun], now: int) -> None:
    print_table(
        [
            Column("WAITING", no_wrap=True),
            Column("RUN", no_wrap=True, moves_below_if_narrow=True),
            Column("PRIORITY", no_wrap=True),
            Column("AUTOMATION"),
            Column("WHY"),
        ],
        [
            (
                duration_text(now - each.run.created_at),
                run_id(each.run.id),
                each.priority.value,
                _automation_text(_json(each.run)),
                waiting_text(each),
            )
            for each in waiting
        ],
    )


@commands.command()
def show(identifier: RunArgument, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show one run, its result, its files, and where its package is."""
    with factory_session(factory) as session:
        run = session.management.runs.get(session.may, identifier)
        failed_attempts = session.management.runs.failed_attempts(session.may, identifier)
        run_files = session.management.run_files.files_of(session.may, run)
        fields = session.management.run_files.fields_of(session.may, run)
        agent_reports = session.management.runs.agent_reports(session.may, identifier)
        outputs = session.management.runs.outputs(session.may, identifier)
        results = session.management.runs.results(session.may, identifier)
        packages_directory = _packages_directory(session.settings)

    from hookmill.runs.package import directory_of

    directory = directory_of(packages_directory, run.id)
    if json:
        file_fields = [
            {"name": file.name, "size": file.size, "only_on_host": file.only_on_host} for file in run_files.files
        ]
        print_json(
            plain(RunWithOutputView.of(run, failed_attempts, fields, agent_reports, outputs, results))
            | {"package": str(directory), "files": file_fields, "more_files": run_files.has_more}
        )
        return
    pairs = [
        ("Run", run_id(run.id)),
        ("State", _state_text(_json(run))),
        ("Automation", f"{shown(run.automation_name)}, version {run.automation_version}"),
        ("Runner", run.runner),
        *_origin_fields(run),
        ("Attempt", str(run.attempt)),
        *(
            (
                "  failed",
                f"{failed.attempt}: {shown(failed.reason or '')}{_usage_note(agent_reports.get(failed.attempt))}",
            )
            for failed in failed_attempts
        ),
        ("Created", utc_with_zone(run.created_at)),
        ("Started", utc_with_zone(run.started_at)),
        ("Ended", utc_with_zone(run.finished_at)),
    ]
    if run.executor is not None:
        pairs.append(("Worker", shown(worker_text(run.executor))))
    # A negative status is minus the number of a signal. The reason says why the command was ended.
    if run.exit_status is not None and run.exit_status >= 0:
        pairs.append(("Exit status", str(run.exit_status)))
    if (hold_reason := hold_text(run)) is not None:
        pairs.append(("Waiting", hold_reason))
    if run.reason is not None:
        pairs.append(("Reason", shown(run.reason)))
    summary = summary_of(outputs)
    is_last_message = summary is not None and summary.source is SummarySource.LAST_MESSAGE
    if (report := agent_reports.get(run.attempt)) is not None:
        # The summary has the agent's last message, too.
        pairs += _report_fields(report, has_result=not is_last_message)
    if summary is not None:
        if is_last_message:
            pairs.append(("Summary", "the agent's last message, because it wrote no summary.md:"))
        pairs += _lines_below("" if is_last_message else "Summary", summary.text, is_cut=summary.is_cut)
    for result in results:
        phase = "" if result.is_about_end else " (start)"
        pairs.append(
            (
                result.kind.value,
                f"{shown(result.target.text() or result.destination)}{phase}: {shown(result_text(result))}",
            )
        )
        if result.url is not None:
            pairs.append(("", shown(result.url)))
    pairs += [("Field", f"{name}: {shown(field_value_text(value))}") for name, value in fields.items()]
    pairs.append(("Package", _package_text(directory, run_files)))
    pairs += [("", _file_text(file)) for file in run_files.files[:FILES_SHOWN_MAX]]
    if (unlisted_count := len(run_files.files) - FILES_SHOWN_MAX) > 0:
        pairs.append(("", f"and {'more than ' if run_files.has_more else ''}{unlisted_count} more"))
    print_fields(pairs)


def _report_fields(report: AgentReport, *, has_result: bool) -> Iterator[tuple[str, str]]:
    if (usage := usage_text(report)) is not None:
        yield "Used", usage
    if has_result and report.result is not None:
        yield from _lines_below("Result", report.result, is_cut=report.is_result_cut)


def _lines_below(name: str, text: str, *, is_cut: bool) -> Iterator[tuple[str, str]]:
    """The lines of an untrusted text. Each begins below the first one, so none looks like a field of the run."""
    lines = (text + ("…" if is_cut else "")).splitlines()
    return (("" if number else name, shown(line)) for number, line in enumerate(lines))


def _usage_note(report: AgentReport | None) -> str:
    usage = usage_text(report) if report is not None else None
    return f" ({usage})" if usage is not None else ""


def _package_text(directory: Path, run_files: RunFiles) -> str:
    if not run_files.files:
        return f"{directory} (does not exist now)"
    return str(directory) if run_files.is_on_this_host else "not on this host; its files are stored copies"


def _file_text(file: RunFile) -> str:
    place = f", only on the host {shown(file.only_on_host)}" if file.only_on_host is not None else ""
    return f"{shown(file.name)} ({file.size:,} bytes{place})"


@commands.command()
def log(identifier: RunArgument, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Print the output of a run, also while it runs."""
    with factory_session(factory) as session:
        run = session.management.runs.get(session.may, identifier)
        run_files = session.management.run_files
        output = run_files.output_of(session.may, run, LOG_BYTES_MAX)
        if json:
            _print_output_as_json(run, output, _packages_directory(session.settings))
            return
        if output is not None and output.size is not None:
            is_whole = output.complete_on_host is None
            _print_output(
                run_files.read(session.may, run, OUTPUT_FILE) if is_whole else iter((output.content,)),
            )
            if not is_whole:
                print_error(
                    f"These are the last {len(output.content):,} of {output.size:,} bytes. The whole output is on the "
                    f"host {output.complete_on_host}."
                )
            return
    # Only the end was recorded with the run's result.
    if run.output_tail:
        print_line(shown_lines(run.output_tail))
    elif run.state.is_final:
        print_error(f"No output of run {run_id(run.id)} is stored.")
    elif not run.attempt:
        print_error(f"Run {run_id(run.id)} has not started. `hookmill run queue` shows why it waits.")
    elif run_files.has_storage:
        print_error(f"Run {run_id(run.id)} has no output yet.")
    else:
        print_error(
            f"The output of run {run_id(run.id)} is not on this host. Its end is stored when the attempt has ended."
        )


def _print_output_as_json(run: Run, output: RunOutput | None, packages_directory: Path) -> None:
    from hookmill.runs.package import directory_of

    is_here = output is not None and output.is_on_this_host
    file_path = str(directory_of(packages_directory, run.id) / OUTPUT_FILE) if is_here else None
    print_json(plain(RunOutputView.of(run.id, output)) | {"file": file_path})


def _print_output(chunks: Iterator[bytes]) -> None:
    """Print the output byte for byte, or without control characters if standard output is a terminal."""
    if not on_terminal():
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    # The output may repeat text of a sender, whose control characters a terminal would execute.
    decoder = getincrementaldecoder("utf-8")("backslashreplace")
    for chunk in chain(chunks, [b""]):
        sys.stdout.write(shown_lines(decoder.decode(chunk, final=not chunk)))


@commands.command()
def cancel(
    identifier: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run's id, run_….", show_default=False)
    ] = None,
    automation: Annotated[
        str | None, typer.Option(metavar="AUTOMATION", help="Unfinished runs of this automation (name or id).")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="WEBHOOK", help="Unfinished runs for this webhook (name or uid).")
    ] = None,
    state: Annotated[UnfinishedState | None, typer.Option(help="Runs in this state.")] = None,
    all_runs: Annotated[bool, typer.Option("--all", help="All unfinished runs of the factory.")] = False,
    yes: options.Yes = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Cancel a run, or all that meet every condition. Running ones are stopped, and end with their process."""
    if identifier is None:
        run_state = RunState(state) if state is not None else None
        _cancel_many(factory, json, yes, webhook=webhook, automation=automation, state=run_state, all_runs=all_runs)
        return
    if automation is not None or webhook is not None or state is not None or all_runs:
        raise typer.BadParameter("give a run or conditions, not both")
    with factory_session(factory) as session:
        run = session.management.runs.cancel(session.may, identifier)
    if json:
        print_json(RunView.of(run))
        return
    if run.state is RunState.CANCELLED:
        print_line(f"Run {run_id(run.id)} is cancelled.")
        return
    if run.state.is_final:
        # The report of an agent platform was accepted before.
        print_line(f"Run {run_id(run.id)} has ended with the report of its platform. Its state is {run.state.value}.")
        return
    show_command = command_line(f"run show {run_id(run.id)}", factory)
    print_line(f"Run {run_id(run.id)} is being cancelled. To see its state: {show_command}")


def _cancel_many(
    factory: str,
    json: bool,
    yes: bool,
    *,
    webhook: str | None,
    automation: str | None,
    state: RunState | None,
    all_runs: bool,
) -> None:
    if not (webhook is not None or automation is not None or state is not None or all_runs):
        raise typer.BadParameter("give a run, or at least one of --automation, --webhook, --state and --all")
    inputs.require_yes_with_json(json, yes)
    with factory_session(factory) as session:
        runs = session.management.runs
        if not yes:
            number = runs.count_to_cancel(
                session.may, webhook=webhook, automation=automation, state=state, all_runs=all_runs
            )
            if number:
                confirm(f"Cancel {count(number, 'run')}?")
        result = runs.cancel_many(session.may, webhook=webhook, automation=automation, state=state, all_runs=all_runs)
    if json:
        print_json(CancelledRunsView.of(result))
        return
    if not result.cancelled and not result.stopping:
        print_line("No unfinished runs match. Nothing was changed.")
        return
    print_line(f"{result.cancelled:,} cancelled, {result.stopping:,} being cancelled.")
    if result.stopping:
        print_line(f"To see what is still running: {command_line('run queue', factory)}")


@commands.command("export")
def export_runs(
    webhook: options.OnlyWebhook = None,
    output: options.OutputFile = None,
    factory: options.FactoryName = "default",
) -> None:
    """Export every run as JSON lines, oldest first."""
    with factory_session(factory) as session:

        def page_after(last: Run | None) -> Sequence[Run]:
            return session.management.runs.oldest(session.may, webhook=webhook, after=last.id if last else None)

        pages = ([RunView.of(run) for run in page] for page in export.all_pages(page_after))
        export.write(pages, output, "run")


def print_runs(runs: Sequence[RunJson]) -> None:
    print_table(
        [
            Column("CREATED (UTC)", no_wrap=True),
            Column("RUN", no_wrap=True, moves_below_if_narrow=True),
            Column("STATE", no_wrap=True),
            Column("AUTOMATION"),
        ],
        [(utc(run["created_at"]), run["run_id"], _state_text(run), _automation_text(run)) for run in runs],
    )


def _json(run: Run) -> RunJson:
    json: RunJson = plain(RunView.of(run))
    return json


def _state_text(run: RunJson) -> str:
    if run["finished_at"] is not None:
        return run["state"]
    if run["cancel_requested_at"] is not None:
        return f"{run['state']}, being cancelled"
    return run["state"] if run["hold"] is None else f"{run['state']} ({run['hold']})"


def _origin_fields(run: Run) -> list[tuple[str, str]]:
    match started_by := run.started_by:
        case ByDelivery():
            replay_note = f" (replay {run.replay_number} of it)" if run.replay_number else ""
            return [
                ("Delivery", f"{delivery_id(started_by.delivery_key)}{replay_note}"),
                ("Webhook", f"{shown(started_by.webhook_name)} ({started_by.webhook_uid})"),
            ]
        case BySchedule():
            return [
                ("Schedule", f"{shown(started_by.name)} ({started_by.timezone})"),
                ("Scheduled", utc_with_zone(started_by.scheduled_at)),
            ]
        case ByPerson():
            return [("Started by", f"{shown(started_by.name)}, by hand")]
        case _:
            assert_never(started_by)


def _automation_text(run: RunJson) -> str:
    if run["started_by"] == "delivery":
        return f"{run['automation']} (replay {run['replay']})" if run["replay"] else run["automation"]
    origin = f"schedule {run['schedule']}" if run["schedule"] is not None else "by hand"
    return f"{run['automation']} ({origin})"


def _packages_directory(settings: Settings) -> Path:
    return (settings.data_dir / "runs").absolute()
