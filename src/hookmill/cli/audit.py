"""`hookmill audit`: the audit log, newest entry first: who changed what, when, and from where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookmill.cli import options
from hookmill.cli.output import Column, command_line, json_line, print_json, print_line, print_table, utc
from hookmill.cli.session import factory_session, team_session
from hookmill.domain.errors import Invalid
from hookmill.domain.ids import audit_entry_id
from hookmill.domain.text import shown
from hookmill.presentation.audit import AuditEntryView

if TYPE_CHECKING:
    from hookmill.domain.audit import AuditEntry

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
    before_key = _entry_key(before) if before is not None else None
    entries: Sequence[AuditEntry]
    if team:
        with team_session() as session:
            entries = session.management.audit.of_team(session.may, before=before_key, limit=limit)
    else:
        with factory_session(factory) as session:
            entries = session.management.audit.of_factory(session.may, before=before_key, limit=limit)
    if json:
        print_json({"items": [AuditEntryView.of(entry) for entry in entries]})
        return
    if not entries:
        print_line("There are no older entries." if before is not None else "The audit log has no entries yet.")
        return
    _print_entries(entries, shows_factory=team)
    if len(entries) == limit:
        same_options = {
            "limit": limit if limit != options.PAGE_ROWS else None,
            "before": audit_entry_id(entries[-1].key),
        }
        print_line(
            f"Older entries: {command_line('audit list' + (' --team' if team else ''), factory, **same_options)}"
        )


def _print_entries(entries: Sequence[AuditEntry], *, shows_factory: bool) -> None:
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
                utc(entry.at),
                f"{entry.actor_kind} {entry.actor_name}",
                f"{entry.channel} from {entry.client}" if entry.client is not None else entry.channel,
                entry.action,
                *([entry.factory_name or "-"] if shows_factory else []),
                entry.subject_name,
                _details_text(entry),
            )
            for entry in entries
        ],
    )


def _details_text(entry: AuditEntry) -> str:
    """The details that are neither empty nor null."""
    return ", ".join(
        f"{name} {_detail_text(name, value)}"
        for name, value in entry.details.items()
        if value is not None and value != []
    )


def _detail_text(name: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("_at"):
        return utc(value)
    if isinstance(value, list):
        return " ".join(_detail_text(name, item) for item in value)
    return value if isinstance(value, str) else json_line(value)


def _entry_key(entry_id: str) -> bytes:
    if not re.fullmatch(r"aud_[0-9a-f]{32}", entry_id):
        raise Invalid(
            f"{shown(entry_id[:80])!r} is not an entry's id, such as aud_0192f0c1…. `audit list --json` shows the ids."
        )
    return bytes.fromhex(entry_id.removeprefix("aud_"))
