"""`hookmill alarm`: problems that the service detects by itself, newest alarm first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from hookmill.cli import alarm_destination, inputs, options
from hookmill.cli.connection import connected
from hookmill.cli.output import (
    Column,
    command_line,
    print_fields,
    print_json,
    print_line,
    print_table,
    utc,
    utc_with_zone,
)
from hookmill.domain.moment import iso
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.client.types import AlarmSnoozeJson

commands = typer.Typer(no_args_is_help=True, help="Alarms, which the service raises by itself.")
commands.add_typer(alarm_destination.commands, name="destination")

AlarmArgument: TypeAlias = Annotated[str, typer.Argument(metavar="ALARM", help="The alarm's id.", show_default=False)]


@commands.command("list")
def list_alarms(
    open_only: Annotated[bool, typer.Option("--open", help="Only open alarms, including snoozed ones.")] = False,
    installation: options.OfInstallation = False,
    limit: options.Limit = options.PAGE_ROWS,
    before: Annotated[
        str | None, typer.Option(metavar="ALARM", help="Only alarms older than this one: the next page.")
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """List alarms, newest first."""
    inputs.require_id(before, "alm")
    is_open = True if open_only else None
    with connected() as client:
        if installation:
            alarms = list(client.list_installation_alarms(open=is_open, limit=limit, cursor=before))
        else:
            alarms = list(client.list_alarms(factory, open=is_open, limit=limit, cursor=before))
    if json:
        print_json({"items": alarms})
        return
    if not alarms:
        print_line("There are no older alarms." if before is not None else "There are no alarms.")
        return
    print_table(
        [
            Column("RAISED (UTC)", no_wrap=True),
            Column("STATE", no_wrap=True),
            Column("KIND", no_wrap=True),
            Column("SUBJECT"),
            Column("ID", no_wrap=True, moves_below_if_narrow=True),
        ],
        [(utc(alarm["raised_at"]), alarm["state"], alarm["kind"], alarm["subject"], alarm["id"]) for alarm in alarms],
    )
    if len(alarms) == limit:
        command = "alarm list" + (" --open" if open_only else "") + (" --installation" if installation else "")
        same_options = {
            "limit": limit if limit != options.PAGE_ROWS else None,
            "before": alarms[-1]["id"],
        }
        print_line(f"Older alarms: {command_line(command, factory, **same_options)}")


@commands.command()
def show(
    alarm: AlarmArgument,
    installation: options.OfInstallation = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Show one alarm, and what to do."""
    with connected() as client:
        details = client.show_installation_alarm(alarm) if installation else client.show_alarm(factory, alarm)
    if json:
        print_json(details)
        return
    is_snoozed = details["state"] == "snoozed"
    print_fields(
        [
            ("Alarm", details["title"]),
            ("Kind", details["kind"]),
            ("Subject", shown(details["subject"])),
            ("State", f"snoozed until {utc_with_zone(details['snoozed_until'])}" if is_snoozed else details["state"]),
            ("Raised", utc_with_zone(details["raised_at"])),
            ("Resolved", utc_with_zone(details["resolved_at"])),
            ("Summary", shown(details["summary"])),
            ("What to do", details["action"]),
        ]
    )


@commands.command()
def snooze(
    alarm: AlarmArgument,
    hours: Annotated[int | None, typer.Option(metavar="N", help="Send no messages for N hours, at most 720.")] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help='Send no messages until this time (UTC), such as "2030-11-21 09:12".'),
    ] = None,
    installation: options.OfInstallation = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Send no messages about an open alarm for some time."""
    inputs.require_exactly_one(hours=hours, until=until)
    until_us = inputs.parse_time(until, "--until")
    body: AlarmSnoozeJson = {"hours": hours, "until": iso(until_us) if until_us is not None else None}
    with connected() as client:
        if installation:
            snoozed = client.snooze_installation_alarm(alarm, **body)
        else:
            snoozed = client.snooze_alarm(factory, alarm, **body)
    if json:
        print_json(snoozed)
        return
    print_line(f"Alarm {alarm} is snoozed until {utc_with_zone(snoozed['snoozed_until'])}.")


@commands.command()
def wake(
    alarm: AlarmArgument,
    installation: options.OfInstallation = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """End the snooze of an open alarm."""
    with connected() as client:
        woken = client.wake_installation_alarm(alarm) if installation else client.wake_alarm(factory, alarm)
    if json:
        print_json(woken)
        return
    print_line(f"Alarm {alarm} is not snoozed.")
