"""`hookmill keys`: the master keys, which seal every secret at rest. They are named by their ids, and never shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from hookmill.cli import options
from hookmill.cli.output import Column, as_json, complain, count, how_to_call, line, table
from hookmill.cli.session import settings_in_force
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.app.keys import MasterKeyList
    from hookmill.settings import Settings
    from hookmill.store.keys.key_file import KeyFile
    from hookmill.store.keys.rotation import RotationResult

commands = typer.Typer(no_args_is_help=True, help="Master keys, which seal the secrets at rest.")

ROWS_NAMED = 20


@commands.command("show")
def show(json: options.AsJson = False) -> None:
    """Show the keys by their ids. Which one seals, and how many rows each has sealed."""
    settings = settings_in_force()

    from hookmill import app

    store = app.open_store(settings)
    try:
        found = app.keys.list_keys(settings, store.database)
    finally:
        store.close()
    states = _states(found)
    if json:
        described = [{"id": key_id, "state": state, "rows": rows} for key_id, state, rows in states]
        as_json({"keys": described, "rotating": found.is_rotating, "file": _path(found.file)})
        return
    table(
        [Column("KEY", whole=True), Column("STATE", whole=True), Column("ROWS", whole=True, right=True)],
        [(key_id, state, f"{rows:,}") for key_id, state, rows in states],
    )
    if found.is_rotating:
        line(f"A rotation is unfinished. To finish it: {how_to_call()} keys rotate")


@commands.command("add")
def add(json: options.AsJson = False) -> None:
    """Put a new key into master.key, for the next rotation. A service on several machines needs it."""
    settings = settings_in_force()

    from hookmill import app

    store = app.open_store(settings)
    try:
        new, file, is_new = app.keys.add(settings, store.database)
    finally:
        store.close()
    if json:
        as_json({"id": new.id, "file": _path(file), "added": is_new})
        return
    line(f"Master key {new.id} {'is now' if is_new else 'is already'} in {shown(str(file.path))}, and not used yet.")
    line("Copy the file to every machine that runs Hookmill with this database; nothing has to be restarted. Then:")
    line(f"  {how_to_call()} keys rotate")


@commands.command("rotate")
def rotate(yes: options.Yes = False, json: options.AsJson = False) -> None:
    """Seal every secret with a new key, under the running service. What was cut off is finished by the next call."""
    settings = settings_in_force()

    from hookmill import app

    store = app.open_store(settings)
    try:
        with _progress() as seen:
            rotated = app.keys.rotate(
                settings,
                store.database,
                app.management(settings, store),
                confirm_new_key=lambda: _ask(settings, yes),
                report_progress=seen,
            )
    finally:
        store.close()
    _print_rotated(rotated, app.keys.key_file(settings), json)


def _states(found: MasterKeyList) -> list[tuple[str, str, int]]:
    """Id, state and rows of each key: those at hand, newest first, then those that only rows know of."""
    place = found.available.index(found.sealing)
    states = []
    for key_id in dict.fromkeys([*found.available, *found.rows]):
        if key_id == found.sealing:
            state = "seals"
        elif key_id not in found.available:
            state = "missing"
        else:
            state = "waits" if found.available.index(key_id) < place else "opens"
        states.append((key_id, state, found.rows.get(key_id, 0)))
    return states


def _ask(settings: Settings, yes: bool) -> None:
    """On PostgreSQL other machines may have key files of their own."""
    if yes or not settings.on_postgres:
        return
    question = (
        f"A new key will be in {settings.data_dir.absolute() / 'master.key'} alone. "
        "Does every Hookmill process that uses this database read that file?"
    )
    try:
        agreed = typer.confirm(shown(question), err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        complain(
            "Nothing was changed. If other machines have key files of their own, run `hookmill keys add` first, and "
            "copy the file to them. If all read this one, add --yes."
        )
        raise typer.Exit(1)


def _print_rotated(rotated: RotationResult, file: KeyFile | None, json: bool) -> None:
    if json:
        as_json(
            {
                "key": rotated.key_id,
                "began": rotated.began,
                "sealed_again": rotated.sealed_again,
                "unreadable": list(rotated.unreadable),
                "retired": list(rotated.retired),
                "retired_file": str(file.retired_path.absolute()) if file is not None and rotated.retired else None,
            }
        )
    else:
        for said in _said(rotated, file):
            line(said)
    if rotated.unreadable:
        named = [f"  {row}" for row in rotated.unreadable[:ROWS_NAMED]]
        if len(rotated.unreadable) > ROWS_NAMED:
            named.append(f"  and {len(rotated.unreadable) - ROWS_NAMED} more")
        complain(
            "\n".join(
                [
                    "No key at hand opens these rows. They were unusable before, and were left as they are:",
                    *named,
                    "Restore them from a backup, or give their secrets new values with `hookmill webhook rotate`.",
                ]
            )
        )


def _said(rotated: RotationResult, file: KeyFile | None) -> Iterator[str]:
    if rotated.began:
        yield f"Master key {rotated.key_id} now seals every secret. Sealed again: {count(rotated.sealed_again, 'row')}."
    else:
        yield (
            f"Master key {rotated.key_id} was in use already; what was left to do is done. "
            f"Sealed again: {count(rotated.sealed_again, 'row')}."
        )
    if not rotated.retired:
        return
    old = ", ".join(rotated.retired)
    if file is None:
        yield f"HOOKMILL_MASTER_KEY_PREVIOUS ({old}) is no longer needed: take it away."
        yield "Backups from before still need it, so keep it with them."
    else:
        yield f"The key before it ({old}) is no longer used, and stands in {shown(str(file.retired_path))}."
        yield "Backups from before still need it: keep that file with them, then delete it here."


def _path(file: KeyFile | None) -> str | None:
    return str(file.path.absolute()) if file is not None else None


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's standard error, once there is something to show."""
    if not sys.stderr.isatty():
        yield lambda _rows, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    progress = Progress(console=Console(stderr=True), transient=True)
    task = progress.add_task("sealing", total=None)

    def seen(rows: int, total: int) -> None:
        # A bar that is drawn would overwrite a question.
        progress.start()
        progress.update(task, advance=rows, total=total)

    try:
        yield seen
    finally:
        progress.stop()
