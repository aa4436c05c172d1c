"""`hookmill move`: from SQLite to PostgreSQL."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hookmill.cli import inputs, options, progress
from hookmill.cli.output import confirm, count, print_json, print_line, program, utc
from hookmill.cli.session import read_settings_or_exit
from hookmill.domain.errors import Invalid
from hookmill.domain.moment import iso
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.app.move import MoveResult
    from hookmill.settings import Settings


def move(
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="The empty PostgreSQL database; - reads the URL from standard input."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Use the SQLite database again after it was moved.")] = False,
    yes: options.Yes = False,
    json: options.AsJson = False,
) -> None:
    """Copy a SQLite database to an empty PostgreSQL database."""
    inputs.require_exactly_one(to=to, undo=undo)
    settings = read_settings_or_exit()
    if to is None:
        _undo(settings, yes, json)
        return

    from hookmill.app.move import INTERRUPTED, refuse_password
    from hookmill.app.move import move as move_installation

    if to == inputs.STANDARD_INPUT:
        url = _read_url()
    else:
        refuse_password(to)
        url = to
    try:
        with progress.phases() as report:
            result = move_installation(settings, url, report)
    except KeyboardInterrupt:
        raise Invalid(INTERRUPTED) from None
    _print_result(settings, result, json)


def _read_url() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("URL", hide_input=True, err=True)).strip()
    url = inputs.read_text(inputs.STANDARD_INPUT, "The URL on standard input", inputs.SECRET_BYTES_MAX).strip()
    if not url:
        raise Invalid("There is no URL on standard input.")
    return url


def _print_result(settings: Settings, result: MoveResult, json: bool) -> None:
    if json:
        print_json(
            {
                "to": result.successor.url,
                "moved_at": iso(result.successor.moved_at),
                "rows": result.loaded.snapshot.rows,
                "tables": [
                    {"name": table.name, "rows": table.rows, "sha256": table.sha256}
                    for table in result.loaded.summary.tables
                ],
                "unfinished_runs": result.unfinished_runs,
                "seconds": round(result.seconds, 3),
                "data_dir": str(settings.data_dir.absolute()),
                "sqlite_file": str(result.path),
            }
        )
        return
    snapshot = result.loaded.snapshot
    print_line(
        f"Moved {count(snapshot.rows, 'row')} of {count(snapshot.nonempty_tables, 'table')} to "
        f"{shown(result.successor.url)} in {result.seconds:.1f} s. Both databases have the same rows."
    )
    if result.unfinished_runs:
        print_line(f"{count(result.unfinished_runs, 'run')} will continue when the service performs runs again.")
    print_line()
    print_line("What to do next:")
    print_line("1. Set database_url, or HOOKMILL_DATABASE_URL, to the URL of the PostgreSQL database.")
    kept = "runs' packages" if settings.master_key is not None else "the master key and runs' packages"
    print_line(f"2. Keep the data directory {settings.data_dir.absolute()}: it has {kept}.")
    print_line(f"3. Start the service: {program()} serve")
    print_line(
        f"4. When it works, retire the SQLite file: store {shown(str(result.path))} with the backups, then delete it."
    )
    print_line(f"Until then, to return to SQLite: {program()} move --undo")


def _undo(settings: Settings, yes: bool, json: bool) -> None:
    inputs.require_yes_with_json(json, yes)

    from hookmill.app.move import successor_of
    from hookmill.app.move import undo as undo_move

    if not yes:
        moved_to = successor_of(settings)
        confirm(
            f"The SQLite database lacks everything that {moved_to.url} has recorded since {utc(moved_to.moved_at)} "
            "UTC. If senders deliver these events again, they are accepted as new. Is every service on that database "
            "stopped, and shall the SQLite database be used again?"
        )
    moved_to = undo_move(settings)
    if json:
        print_json({"undone": True, "moved_to": moved_to.url, "moved_at": iso(moved_to.moved_at)})
        return
    print_line("The SQLite database can be used again. Unset database_url and HOOKMILL_DATABASE_URL.")
    print_line(f"{shown(moved_to.url)} is unchanged. To move again, create another empty database.")
