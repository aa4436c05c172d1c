"""`hookmill run`: what deliveries started, and how it went."""

from __future__ import annotations

import sys
from codecs import getincrementaldecoder
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hookmill.cli import export, options
from hookmill.cli.output import Column, as_json, call, complain, fields, line, on_terminal, table, utc
from hookmill.cli.session import session
from hookmill.domain.ids import delivery_id, run_id, run_key
from hookmill.domain.run import Run, RunState
from hookmill.domain.text import shown, shown_lines
from hookmill.presentation.run import RunView, RunWithOutputView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.settings import Settings

commands = typer.Typer(no_args_is_help=True, help="Runs: what deliveries started, and how it went.")

FILES_SHOWN: Final = 20
LOG_BYTES_MAX: Final = 1_048_576
"""How much of the output JSON holds: its last part."""

Id = Annotated[str, typer.Argument(metavar="RUN", help="Its id, run_….", show_default=False)]


@commands.command("list")
def list_runs(
    webhook: options.WebhookFilter = None,
    automation: Annotated[
        str | None, typer.Option(metavar="AUTOMATION", help="Only those of this automation (name or id).")
    ] = None,
    state: Annotated[RunState | None, typer.Option(help="Only those in this state.")] = None,
    limit: options.Limit = options.PAGE,
    before: Annotated[str | None, typer.Option(metavar="RUN", help="Only older ones than this: the next page.")] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """List runs, newest first."""
    with session(factory) as here:
        found = here.management.runs.newest(
            here.may,
            webhook=webhook,
            automation=automation,
            state=state,
            before=run_key(before) if before is not None else None,
            limit=limit,
        )
    if json:
        as_json({"runs": [RunView.of(run) for run in found]})
        return
    if not found:
        matching = " that match" if webhook or automation or state or before else " yet"
        line(f"There are no runs{matching}. A delivery starts one when an automation selects it.")
        return
    print_runs(found)
    if len(found) == limit:
        kept = {
            "webhook": webhook,
            "automation": automation,
            "state": state.value if state is not None else None,
            "limit": limit if limit != options.PAGE else None,
            "before": run_id(found[-1].id),
        }
        line(f"Older ones: {call('run list', factory, **kept)}")


@commands.command()
def show(run: Id, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show one run, and where its package is."""
    with session(factory) as here:
        found = here.management.runs.get(here.may, run)
        packages = _packages(here.settings)

    from hookmill.runs.package import directory_of, list_files

    directory = directory_of(packages, found)
    files, has_more = list_files(packages, found)
    if json:
        listed = [{"name": name, "size": size} for name, size in files]
        as_json(
            plain(RunWithOutputView.of(found)) | {"package": str(directory), "files": listed, "more_files": has_more}
        )
        return
    pairs = [
        ("Run", run_id(found.id)),
        ("State", _state(found)),
        ("Automation", f"{shown(found.automation_name)}, version {found.automation_version}"),
        ("Runner", found.runner),
        ("Delivery", delivery_id(found.delivery_id) + (f" (replay {found.replay} of it)" if found.replay else "")),
        ("Webhook", f"{shown(found.webhook_name)} ({found.webhook_uid})"),
        ("Attempt", str(found.attempt)),
        ("Created", utc(found.created_at)),
        ("Started", utc(found.started_at)),
        ("Finished", utc(found.finished_at)),
    ]
    if found.exit_status is not None:
        pairs.append(("Exit status", str(found.exit_status)))
    if found.reason is not None:
        pairs.append(("Reason", shown(found.reason)))
    pairs.append(("Package", str(directory) if files else f"{directory} (not there now)"))
    pairs += [("", f"{shown(name)} ({size:,} bytes)") for name, size in files[:FILES_SHOWN]]
    if len(files) > FILES_SHOWN:
        pairs.append(("", f"and {'more than ' if has_more else ''}{len(files) - FILES_SHOWN} more"))
    fields(pairs)


@commands.command()
def log(run: Id, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Print what a run's command printed. All that is kept of it, or else its last part."""
    with session(factory) as here:
        found = here.management.runs.get(here.may, run)
        packages = _packages(here.settings)

    from hookmill.runs.package import directory_of, open_file, read_chunks, read_tail
    from hookmill.runs.runners.guard import OUTPUT_FILE

    try:
        opened = open_file(packages, found, OUTPUT_FILE)
    except OSError:
        _print_kept(found, json)
        return
    if json:
        end, size = read_tail(opened, LOG_BYTES_MAX)
        file = str(directory_of(packages, found) / OUTPUT_FILE)
        _print_log(found, file, end.decode("utf-8", "backslashreplace"), size, is_cut=size > LOG_BYTES_MAX)
        return
    if not on_terminal():
        for piece in read_chunks(opened):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    # Whatever text a run repeats may come from a sender, and a terminal would obey it.
    decoder = getincrementaldecoder("utf-8")("backslashreplace")
    for piece in chain(read_chunks(opened), [b""]):
        sys.stdout.write(shown_lines(decoder.decode(piece, final=not piece)))


def _print_kept(run: Run, json: bool) -> None:
    """What the store has of the output of a run whose file is not here."""
    kept = run.output_tail
    if json:
        _print_log(run, None, kept, len((kept or "").encode("utf-8", "surrogatepass")), is_cut=False)
    elif kept:
        line(shown_lines(kept))
    else:
        complain(f"Run {run_id(run.id)} has printed nothing{'' if run.state.is_final else ' yet'}.")


def _print_log(run: Run, file: str | None, output: str | None, size: int, *, is_cut: bool) -> None:
    as_json({"run_id": run_id(run.id), "file": file, "output": output, "size": size, "is_cut": is_cut})


@commands.command()
def cancel(run: Id, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Cancel a run. A queued one ends at once, a running one as soon as its process has ended."""
    with session(factory) as here:
        found = here.management.runs.cancel(here.may, run)
    if json:
        as_json(RunView.of(found))
        return
    if found.state is RunState.CANCELLED:
        line(f"Run {run_id(found.id)} is cancelled.")
        return
    line(f"Run {run_id(found.id)} is told to stop. See: {call(f'run show {run_id(found.id)}', factory)}")


@commands.command("export")
def export_runs(
    webhook: options.WebhookFilter = None,
    output: options.OutputFile = None,
    factory: options.FactoryName = "default",
) -> None:
    """Export every run as JSON lines, oldest first."""
    with session(factory) as here:

        def page_after(last: Run | None) -> Sequence[Run]:
            return here.management.runs.oldest(here.may, webhook=webhook, after=last.id if last else None)

        pages = ([RunView.of(run) for run in page] for page in export.all_pages(page_after))
        export.write(pages, output, "run")


def print_runs(runs: Sequence[Run]) -> None:
    table(
        [
            Column("CREATED (UTC)", whole=True),
            Column("RUN", whole=True, stacked=True),
            Column("STATE", whole=True),
            Column("AUTOMATION"),
        ],
        [(utc(run.created_at), run_id(run.id), _state(run), _automation(run)) for run in runs],
    )


def _state(run: Run) -> str:
    if run.cancel_requested_at is not None and not run.state.is_final:
        return f"{run.state.value}, told to stop"
    return run.state.value


def _automation(run: Run) -> str:
    return f"{run.automation_name} (replay {run.replay})" if run.replay else run.automation_name


def _packages(settings: Settings) -> Path:
    return (settings.data_dir / "runs").absolute()
