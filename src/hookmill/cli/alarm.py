"""`hookmill alarm`: problems that the service detects by itself, newest alarm first."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from hookmill.cli import inputs, options
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
from hookmill.cli.session import factory_or_team_session
from hookmill.domain.ids import alarm_id, alarm_key
from hookmill.domain.text import shown
from hookmill.presentation.alarm import AlarmView, alarm_state_text

commands = typer.Typer(no_args_is_help=True, help="Alarms, which the service raises by itself.")

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
    before_key = alarm_key(before) if before is not None else None
    with factory_or_team_session(factory, of_team=installation) as session:
        alarms = session.management.alarms.newest(
            session.may, is_open=True if open_only else None, before=before_key, limit=limit
        )
        now = session.management.alarms.now()
    if json:
        print_json({"items": [AlarmView.of(alarm, now) for alarm in alarms]})
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
        [
            (utc(alarm.raised_at), alarm.state(now).value, alarm.kind.value, alarm.subject.name, alarm_id(alarm.key))
            for alarm in alarms
        ],
    )
    if len(alarms) == limit:
        command = "alarm list" + (" --open" if open_only else "") + (" --installation" if installation else "")
        same_options = {
            "limit": limit if limit != options.PAGE_ROWS else None,
            "before": alarm_id(alarms[-1].key),
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
    with factory_or_team_session(factory, of_team=installation) as session:
        shown_alarm = session.management.alarms.get(session.may, alarm)
        now = session.management.alarms.now()
    if json:
        print_json(AlarmView.of(shown_alarm, now))
        return
    print_fields(
        [
            ("Alarm", shown_alarm.rule.title),
            ("Kind", shown_alarm.kind.value),
            ("Subject", shown(shown_alarm.subject.name)),
            ("State", alarm_state_text(shown_alarm, now)),
            ("Raised", utc_with_zone(shown_alarm.raised_at)),
            ("Resolved", utc_with_zone(shown_alarm.resolved_at)),
            ("Summary", shown(shown_alarm.summary)),
            ("What to do", shown_alarm.rule.action),
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
    with factory_or_team_session(factory, of_team=installation) as session:
        snoozed = session.management.alarms.snooze(
            session.may, alarm, hours=hours, until=inputs.parse_time(until, "--until")
        )
        now = session.management.alarms.now()
    if json:
        print_json(AlarmView.of(snoozed, now))
        return
    print_line(f"Alarm {alarm} is snoozed until {utc_with_zone(snoozed.snoozed_until)}.")


@commands.command()
def wake(
    alarm: AlarmArgument,
    installation: options.OfInstallation = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """End the snooze of an open alarm."""
    with factory_or_team_session(factory, of_team=installation) as session:
        woken = session.management.alarms.wake(session.may, alarm)
        now = session.management.alarms.now()
    if json:
        print_json(AlarmView.of(woken, now))
        return
    print_line(f"Alarm {alarm} is not snoozed.")
