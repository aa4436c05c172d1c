"""`hookmill audit`: the audit log, newest entry first: who changed what, when, and from where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookmill.cli import inputs, options
from hookmill.cli.connection import connected
from hookmill.cli.output import Column, command_line, json_line, print_json, print_line, print_table, utc

if TYPE_CHECKING:
    from hookmill.client.types import AuditEntryJson

commands = typer.Typer(no_args_is_help=True, help="The audit log: who changed what, when, and from where.")


@commands.callback()
def _audit() -> None:
    """Keep `list` a subcommand: typer runs the only command of a group without its name."""


@commands.command("list")
def list_entries(
    team: Annotated[
        bool, typer.Option("--team", help="All factories, and what belongs to none, such as members and keys.")
    ] = False,
    limit: options.Limit = options.PAGE_ROWS,
    before: Annotated[
        str | None, typer.Option(metavar="ENTRY", help="Only entries older than this one: the next page.")
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """List all changes, newest first. Entries are never deleted."""
    inputs.require_id(before, "aud")
    with connected() as client:
        if team:
            entries = list(client.list_team_audit_log(limit=limit, cursor=before))
        else:
            entries = list(client.list_audit_log(factory, limit=limit, cursor=before))
    if json:
        print_json({"items": entries})
        return
    if not entries:
        print_line("There are no older entries." if before is not None else "The audit log has no entries yet.")
        return
    _print_entries(entries, shows_factory=team)
    if len(entries) == limit:
        same_options = {
            "limit": limit if limit != options.PAGE_ROWS else None,
            "before": entries[-1]["entry_id"],
        }
        print_line(
            f"Older entries: {command_line('audit list' + (' --team' if team else ''), factory, **same_options)}"
        )


def _print_entries(entries: Sequence[AuditEntryJson], *, shows_factory: bool) -> None:
    print_table(
        [
            Column("WHEN (UTC)", no_wrap=True),
            Column("WHO"),
            Column("THROUGH"),
            Column("ACTION", no_wrap=True, moves_below_if_narrow=True),
            *([Column("FACTORY")] if shows_factory else []),
            Column("SUBJECT"),
            Column("DETAILS"),
        ],
        [
            (
                utc(entry["at"]),
                f"{entry['actor']['kind']} {entry['actor']['name']}",
                f"{entry['channel']} from {entry['client']}" if entry["client"] is not None else entry["channel"],
                entry["action"],
                *([entry["factory"] or "-"] if shows_factory else []),
                entry["subject"]["name"],
                _details_text(entry),
            )
            for entry in entries
        ],
    )


def _details_text(entry: AuditEntryJson) -> str:
    """The details that are neither empty nor null."""
    return ", ".join(
        f"{name} {_detail_text(name, value)}"
        for name, value in entry["details"].items()
        if value is not None and value != []
    )


def _detail_text(name: str, value: Any) -> str:
    if isinstance(value, str) and name.endswith("_at"):
        return utc(value)
    if isinstance(value, list):
        return " ".join(_detail_text(name, item) for item in value)
    return value if isinstance(value, str) else json_line(value)
