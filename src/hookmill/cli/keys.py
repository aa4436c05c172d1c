"""`hookmill keys`: the master keys, which encrypt every stored secret. Output has their ids, never the keys."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from hookmill.cli import options
from hookmill.cli.output import Column, count, print_error, print_json, print_line, print_table, program
from hookmill.cli.session import read_settings_or_exit
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.app.keys import MasterKeyList
    from hookmill.settings import Settings
    from hookmill.store.keys.key_file import KeyFile
    from hookmill.store.keys.rotation import RotationResult

commands = typer.Typer(
    no_args_is_help=True, help="Master keys, which encrypt secrets. For API keys see `hookmill key`."
)

ROWS_SHOWN_MAX = 20


@commands.command("show")
def show(json: options.AsJson = False) -> None:
    """Show the ids of the keys. Also shows which key encrypts new secrets, and how many rows each has encrypted."""
    settings = read_settings_or_exit()

    from hookmill import app

    store = app.open_store(settings)
    try:
        key_list = app.keys.list_keys(settings, store.database)
    finally:
        store.close()
    keys_with_states = _keys_with_states(key_list)
    if json:
        key_fields = [{"id": key_id, "state": state, "rows": rows} for key_id, state, rows in keys_with_states]
        print_json({"keys": key_fields, "rotating": key_list.is_rotating, "file": _path_text(key_list.file)})
        return
    print_table(
        [Column("KEY", no_wrap=True), Column("STATE", no_wrap=True), Column("ROWS", no_wrap=True, align_right=True)],
        [(key_id, state, f"{rows:,}") for key_id, state, rows in keys_with_states],
    )
    if key_list.is_rotating:
        print_line(f"A rotation is unfinished. To finish it: {program()} keys rotate")


@commands.command("add")
def add(json: options.AsJson = False) -> None:
    """Add a new key to master.key for the next rotation. Needed for a service on several machines."""
    settings = read_settings_or_exit()

    from hookmill import app

    store = app.open_store(settings)
    try:
        next_key, file, is_new = app.keys.add(settings, store.database)
    finally:
        store.close()
    if json:
        print_json({"id": next_key.id, "file": _path_text(file), "added": is_new})
        return
    where = f"{'now' if is_new else 'already'} in {shown(str(file.path))}"
    print_line(f"Master key {next_key.id} is {where}. It is not used yet.")
    print_line("Copy the file to every machine that runs Hookmill with this database. No restart is needed. Then run:")
    print_line(f"  {program()} keys rotate")


@commands.command("rotate")
def rotate(yes: options.Yes = False, json: options.AsJson = False) -> None:
    """Seal every secret with a new key while the service runs. Finishes an interrupted rotation."""
    settings = read_settings_or_exit()

    from hookmill import app

    store = app.open_store(settings)
    try:
        with _progress_bar() as report_rows:
            result = app.keys.rotate(
                settings,
                store.database,
                app.build_management(settings, store),
                confirm_new_key=lambda: _confirm_new_key(settings, yes),
                report_progress=report_rows,
            )
    finally:
        store.close()
    _print_result(result, app.keys.key_file(settings), json)


def _keys_with_states(key_list: MasterKeyList) -> list[tuple[str, str, int]]:
    """Id, state and rows of each key: first the available keys, newest first, then the missing ones."""
    sealing_position = key_list.available_ids.index(key_list.sealing_id)
    keys_with_states = []
    for key_id in dict.fromkeys([*key_list.available_ids, *key_list.rows_by_id]):
        if key_id == key_list.sealing_id:
            state = "encrypts"
        elif key_id not in key_list.available_ids:
            state = "missing"
        else:
            # A newer key waits for the next rotation. An older key only decrypts rows that it encrypted.
            state = "waits" if key_list.available_ids.index(key_id) < sealing_position else "decrypts"
        keys_with_states.append((key_id, state, key_list.rows_by_id.get(key_id, 0)))
    return keys_with_states


def _confirm_new_key(settings: Settings, yes: bool) -> None:
    """Ask before a new key on PostgreSQL: other machines may have their own key files."""
    if yes or not settings.on_postgres:
        return
    question = (
        f"A new key will be only in {settings.data_dir.absolute() / 'master.key'}. "
        "Does every Hookmill process that uses this database read that file?"
    )
    try:
        is_yes = typer.confirm(shown(question), err=True)
    except typer.Abort:
        is_yes = False
    if not is_yes:
        print_error(
            "Nothing was changed. If other machines have their own key files, first run `hookmill keys add` and "
            "copy the file to them. If all processes read this file, add --yes."
        )
        raise typer.Exit(1)


def _print_result(result: RotationResult, file: KeyFile | None, json: bool) -> None:
    if json:
        print_json(
            {
                "key": result.key_id,
                "began": result.has_begun_rotation,
                "encrypted_again": result.resealed_rows,
                "unreadable": list(result.unreadable_rows),
                "retired": list(result.retired_key_ids),
                "retired_file": str(file.retired_path.absolute())
                if file is not None and result.retired_key_ids
                else None,
            }
        )
    else:
        for text in _rotation_lines(result, file):
            print_line(text)
    if result.unreadable_rows:
        rows = [f"  {row}" for row in result.unreadable_rows[:ROWS_SHOWN_MAX]]
        if len(result.unreadable_rows) > ROWS_SHOWN_MAX:
            rows.append(f"  and {len(result.unreadable_rows) - ROWS_SHOWN_MAX} more")
        print_error(
            "\n".join(
                [
                    "No available key decrypts these rows. They were unusable before, and are unchanged:",
                    *rows,
                    "Restore them from a backup, or set new secrets with `hookmill webhook rotate`.",
                ]
            )
        )


def _rotation_lines(result: RotationResult, file: KeyFile | None) -> Iterator[str]:
    if result.has_begun_rotation:
        yield (
            f"Master key {result.key_id} now encrypts every secret. Re-encrypted: {count(result.resealed_rows, 'row')}."
        )
    else:
        yield (
            f"Master key {result.key_id} was already in use. Its rotation is finished. "
            f"Re-encrypted: {count(result.resealed_rows, 'row')}."
        )
    if not result.retired_key_ids:
        return
    retired_ids = ", ".join(result.retired_key_ids)
    if file is None:
        yield f"HOOKMILL_MASTER_KEY_PREVIOUS ({retired_ids}) is no longer needed: unset it."
        yield "Older backups still need this key: keep it with them."
    else:
        yield f"The previous key ({retired_ids}) is no longer used. It was moved to {shown(str(file.retired_path))}."
        yield "Older backups still need it: store that file with them, then delete it here."


def _path_text(file: KeyFile | None) -> str | None:
    return str(file.path.absolute()) if file is not None else None


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal's standard error. Yields a function that gets the number of further checked rows.

    Its second argument is the total number of rows.
    """
    if not sys.stderr.isatty():
        yield lambda _rows, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    progress = Progress(console=Console(stderr=True), transient=True)
    task = progress.add_task("encrypting", total=None)

    def report_rows(rows: int, total: int) -> None:
        # The bar starts only now, because a running bar would overwrite the question whether to create a key.
        progress.start()
        progress.update(task, advance=rows, total=total)

    try:
        yield report_rows
    finally:
        progress.stop()
