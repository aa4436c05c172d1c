"""`hookmill backup` and `hookmill restore`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookmill.cli import inputs, options, progress
from hookmill.cli.output import (
    count,
    on_terminal,
    print_error,
    print_fields,
    print_json,
    print_line,
    program,
    utc,
)
from hookmill.cli.session import read_settings_or_exit
from hookmill.domain.errors import Invalid
from hookmill.domain.moment import iso, iso_or_none
from hookmill.domain.text import shown
from hookmill.presentation.byte_size import size_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hookmill.app.backup import BackupResult
    from hookmill.app.restore import CheckResult, RestoreResult
    from hookmill.domain.secret import SecretValue
    from hookmill.runs.package_copies import CopiedPackages
    from hookmill.settings import Settings
    from hookmill.store.backup.records import BackupSnapshot, Header

STANDARD_OUTPUT = "-"


def backup(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The new file; - for standard output.", show_default=False)
    ],
    with_key: Annotated[
        bool,
        typer.Option("--with-key", help="Include the master key, encrypted with a passphrase from standard input."),
    ] = False,
    with_run_packages: Annotated[
        bool, typer.Option("--with-run-packages", help="Include the packages of runs that are on this host.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    json: options.AsJson = False,
) -> None:
    """Write everything into one file, while the service runs."""
    settings = read_settings_or_exit()
    if file == STANDARD_OUTPUT and json:
        raise typer.BadParameter("standard output can't have both the backup and JSON", param_hint="--json")
    if file == STANDARD_OUTPUT and on_terminal():
        raise typer.BadParameter("standard output is a terminal. Redirect it, or name a file", param_hint="FILE")

    from hookmill.app.backup import back_up, state_after_failure
    from hookmill.app.snapshot_limits import SnapshotStopped

    target = Path(file) if file != STANDARD_OUTPUT else None
    key_passphrase = _read_passphrase(is_new=True) if with_key else None
    try:
        with progress.phases() as report:
            result = back_up(
                settings,
                target,
                replaces=force,
                key_passphrase=key_passphrase,
                with_packages=with_run_packages,
                report=report,
            )
    except KeyboardInterrupt:
        raise SnapshotStopped(f"The backup was interrupted. {state_after_failure(target)}") from None
    _print_backup(result, file, json)


def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup; - for standard input.", show_default=False)],
    check: Annotated[
        bool, typer.Option("--check", help="Only check that the backup is complete and unaltered.")
    ] = False,
    json: options.AsJson = False,
) -> None:
    """Restore a backup into an empty database. Everything is restored, or nothing."""
    settings = read_settings_or_exit()

    from hookmill.app import restore as app_restore

    name = "The backup on standard input" if file == inputs.STANDARD_INPUT else f"The backup {shown(file)}"
    with inputs.opened(file, "The backup") as opened:
        if check:
            _print_check(app_restore.check(settings, opened, name), json)
            return
        with progress.phases() as report:
            try:
                result = app_restore.restore(
                    settings,
                    opened,
                    name,
                    ask_passphrase=lambda: _passphrase_beside(file),
                    report=report,
                )
            except KeyboardInterrupt:
                raise Invalid(f"The restore was interrupted. {app_restore.NOTHING_CHANGED}") from None
    _print_restore(result, settings, file, json)


def _passphrase_beside(file: str) -> SecretValue:
    if file == inputs.STANDARD_INPUT:
        raise Invalid(
            "Only the backup has its master key, and standard input can't have both the backup and the passphrase. "
            "Write the backup to a file first, and name the file. Nothing was changed."
        )
    return _read_passphrase(is_new=False)


def _read_passphrase(*, is_new: bool) -> SecretValue:
    from hookmill.store.keys.passphrase import usable_passphrase

    if sys.stdin.isatty():
        return usable_passphrase(
            typer.prompt("Passphrase", hide_input=True, err=True, confirmation_prompt=is_new and "Once more")
        )
    text = inputs.read_text(inputs.STANDARD_INPUT, "The passphrase on standard input", inputs.SECRET_BYTES_MAX)
    return usable_passphrase(text.removesuffix("\n").removesuffix("\r"))


def _print_backup(result: BackupResult, file: str, json: bool) -> None:
    """Print the result. If the backup goes to standard output, the result goes to standard error."""
    if json:
        print_json(_backup_fields(result, file))
        return
    write = print_error if file == STANDARD_OUTPUT else print_line
    snapshot = result.snapshot
    write(
        f"Backed up {count(snapshot.rows, 'row')} of {count(snapshot.nonempty_tables, 'table')} to "
        f"{shown(_place(file))} ({size_text(result.bytes_written)}) in {result.seconds:.1f} s."
    )
    if snapshot.newest_delivery_at is not None:
        write(f"It has the deliveries until {utc(snapshot.newest_delivery_at)} UTC.")
    if (packages := result.packages) is not None:
        write(
            f"It has {count(packages.packages, 'package')} with {count(packages.files, 'file')} "
            f"({size_text(packages.file_bytes)})"
            + (
                f", without {count(packages.omitted_files, 'file')} that are too large."
                if packages.omitted_files
                else "."
            )
        )
    if result.has_keys:
        write("It has the master key, encrypted with the passphrase. Nobody can decrypt it without the passphrase.")
    else:
        write(f"It does not have the master key {result.sealing_key}. Store that key apart from it.")
    if file != STANDARD_OUTPUT:
        write(f"To check it: {program()} restore --check {shown(file)}")


def _place(file: str) -> str:
    return "standard output" if file == STANDARD_OUTPUT else file


def _backup_fields(result: BackupResult, file: str) -> dict[str, Any]:
    return {
        "file": str(Path(file).absolute()),
        "bytes": result.bytes_written,
        "sha256": result.sha256,
        "taken_at": iso(result.snapshot.taken_at),
        "newest_delivery_at": iso_or_none(result.snapshot.newest_delivery_at),
        "rows": result.snapshot.rows,
        "key": result.sealing_key,
        "has_key": result.has_keys,
        "run_packages": _package_fields(result.packages) if result.packages is not None else None,
        "seconds": round(result.seconds, 3),
    }


def _package_fields(packages: CopiedPackages) -> dict[str, int]:
    return {
        "packages": packages.packages,
        "files": packages.files,
        "bytes": packages.file_bytes,
        "omitted_files": packages.omitted_files,
    }


def _print_check(result: CheckResult, json: bool) -> None:
    header, snapshot, summary = result.header, result.snapshot, result.summary
    if json:
        print_json(
            {
                **_content_fields(header, snapshot),
                "sha256": result.sha256,
                "proven": result.is_proven,
                "key": header.sealing_key,
                "has_key": header.has_keys,
                "tables": [
                    {"name": table.name, "rows": table.rows, "sha256": table.sha256} for table in summary.tables
                ],
                "run_packages": summary.packages if header.has_packages else None,
            }
        )
        return
    print_line(f"The backup is complete and {'unaltered' if result.is_proven else 'undamaged'}.")
    print_line()
    source = _SOURCES.get(header.source, header.source)
    print_fields(
        [
            ("Taken", f"{utc(snapshot.taken_at)} UTC, by Hookmill {header.version} on {source}"),
            ("Deliveries", f"until {utc(snapshot.newest_delivery_at)} UTC" if snapshot.newest_delivery_at else "none"),
            ("Rows", f"{snapshot.rows:,}"),
            ("Schema", header.schema),
            (
                "Master key",
                header.sealing_key + (", included with a passphrase" if header.has_keys else ", not included"),
            ),
            (
                "Packages of runs",
                f"{summary.packages:,}, with {count(summary.files, 'file')}" if header.has_packages else "not included",
            ),
            ("SHA-256", result.sha256),
        ]
    )
    if not result.is_proven:
        print_line()
        print_line("The master key of the backup is not here. Without it, an alteration on purpose can't be detected.")


_SOURCES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


def _content_fields(header: Header, snapshot: BackupSnapshot) -> dict[str, Any]:
    return {
        "version": header.version,
        "schema": header.schema,
        "source": header.source,
        "taken_at": iso(snapshot.taken_at),
        "newest_delivery_at": iso_or_none(snapshot.newest_delivery_at),
        "rows": snapshot.rows,
    }


def _print_restore(result: RestoreResult, settings: Settings, file: str, json: bool) -> None:
    loaded, adopted = result.loaded, result.adopted
    if json:
        print_json(
            {
                **_content_fields(result.header, loaded.snapshot),
                "data_dir": str(settings.data_dir.absolute()),
                "requeued_runs": adopted.requeued_runs,
                "ended_runs": adopted.ended_runs,
                "unfinished_runs": adopted.unfinished_runs,
                "unsent_messages": adopted.unsent_messages,
                "unsent_results": adopted.unsent_results,
                "run_packages": result.packages.packages if result.header.has_packages else None,
                "kept_run_packages": result.kept_packages,
                "key_file": str(result.key_file) if result.key_file is not None else None,
                "seconds": round(result.seconds, 3),
            }
        )
        return
    snapshot = loaded.snapshot
    print_line(
        f"Restored {count(snapshot.rows, 'row')} of {count(snapshot.nonempty_tables, 'table')} from "
        f"{'standard input' if file == inputs.STANDARD_INPUT else shown(file)} in {result.seconds:.1f} s. The database "
        "has the same rows as the backup."
    )
    for text in _restore_lines(result):
        print_line(text)
    print_line()
    print_line("What to do next:")
    if settings.performs_runs:
        print_line("1. Stop the original installation, if it still runs: both would perform the same runs. Or set")
        print_line("   performs_runs to false here.")
    else:
        print_line("1. While the original installation runs, keep performs_runs false, and start no worker here.")
    print_line(f"2. Check what was restored: {program()} verify")
    print_line(f"3. Start the service: {program()} serve")


def _restore_lines(result: RestoreResult) -> Iterable[str]:
    loaded, adopted = result.loaded, result.adopted
    until = loaded.snapshot.newest_delivery_at
    yield (
        f"The backup was taken at {utc(loaded.snapshot.taken_at)} UTC"
        + (f", and has the deliveries until {utc(until)} UTC." if until is not None else ", and has no deliveries.")
    )
    if adopted.unfinished_runs:
        begun = f" Of these, {count(adopted.requeued_runs, 'run')} had begun." if adopted.requeued_runs else ""
        yield f"{count(adopted.unfinished_runs, 'unfinished run')} will start when the service performs runs.{begun}"
    if adopted.unsent_messages:
        yield (
            f"{count(adopted.unsent_messages, 'message')} about alarms waited in the backup. The copy does not send "
            f"what waited, because the original may have done so. To see the alarms: {program()} alarm list --open"
        )
    if adopted.unsent_results:
        yield (
            f"{count(adopted.unsent_results, 'message')} about results of runs waited in the backup. The copy does not "
            "send them, because the original may have done so."
        )
    if result.header.has_packages:
        kept = f" {count(result.kept_packages, 'package')} already existed, and stayed." if result.kept_packages else ""
        yield f"{count(result.packages.packages, 'package')} of runs were restored.{kept}"
    if result.key_file is not None:
        yield f"The master key was written to {shown(str(result.key_file))}."
