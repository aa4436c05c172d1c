"""`hookmill alarm destination`: where alarms are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from hookmill.cli import inputs, options
from hookmill.cli.output import Column, command_line, confirm, print_fields, print_json, print_line, print_table, utc
from hookmill.cli.session import factory_or_team_session
from hookmill.domain.alarm import AlarmKind
from hookmill.domain.alarm_destination import DestinationKind
from hookmill.domain.text import shown
from hookmill.presentation.alarm_destination import (
    AlarmDestinationView,
    AlarmDestinationWithSecretView,
    DestinationTestView,
)
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.domain.alarm_destination import AlarmDestination

commands = typer.Typer(no_args_is_help=True, help="Where alarms are sent.")

DestinationArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="DESTINATION", help="The destination's id, ald_….", show_default=False)
]


@commands.command()
def add(
    kind: Annotated[
        DestinationKind,
        typer.Argument(metavar="KIND", help="email, slack (and compatible chats) or webhook.", show_default=False),
    ],
    to: Annotated[str | None, typer.Option(metavar="ADDRESS", help="The e-mail address.")] = None,
    url_from_stdin: Annotated[
        bool,
        typer.Option("--url-from-stdin", help="Read the URL, which is a secret, from standard input."),
    ] = False,
    alarm: Annotated[
        list[AlarmKind] | None,
        typer.Option(
            metavar="KIND",
            help=f"Only alarms of this kind: {', '.join(AlarmKind)}. May be repeated. Default: all.",
        ),
    ] = None,
    include_factories: Annotated[
        bool, typer.Option("--include-factories", help="With --installation: also the alarms of all factories.")
    ] = False,
    installation: options.OfInstallation = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Add a destination of alarms. The signing secret of a webhook is printed only once."""
    url = inputs.read_secret() if url_from_stdin else None
    with factory_or_team_session(factory, of_team=installation) as session:
        # Before, because an error after it would lose the signing secret.
        has_open_alarms = bool(session.management.alarms.newest(session.may, is_open=True, limit=1))
        created = session.management.alarm_destinations.create(
            session.may,
            kind,
            to=to,
            url=url,
            alarm_kinds=[each.value for each in alarm or ()],
            includes_factories=include_factories,
        )
    if json:
        print_json(AlarmDestinationWithSecretView.showing_secret(created))
        return
    destination = created.destination
    print_line(f"Alarms are now sent to {shown(destination.shown_target)} ({_kinds_text(destination)}).")
    print_line()
    fields = [("ID", destination.id)]
    if created.signing_secret is not None:
        fields.append(("Secret", created.signing_secret.reveal()))
    print_fields(fields)
    print_line()
    if created.signing_secret is not None:
        print_line("Save the secret now: it is not shown again. The receiver verifies signatures with it.")
    print_line(f"To send a test: {_command(f'alarm destination test {destination.id}', factory, installation)}")
    if has_open_alarms:
        print_line(
            "Alarms that were raised before are not sent. To list those that are open: "
            + _command("alarm list --open", factory, installation)
        )


@commands.command("list")
def list_destinations(
    installation: options.OfInstallation = False, factory: options.FactoryName = "default", json: options.AsJson = False
) -> None:
    """List destinations, and how many messages wait or were given up."""
    with factory_or_team_session(factory, of_team=installation) as session:
        destinations = session.management.alarm_destinations.all(session.may)
    if json:
        print_json({"items": [AlarmDestinationView.of(destination) for destination in destinations]})
        return
    if not destinations:
        example = _command("alarm destination add email --to ops@example.com", factory, installation)
        print_line(f"There are no alarm destinations here yet. Add one: {example}")
        return
    print_table(
        [
            Column("DESTINATION", no_wrap=True),
            Column("KIND", no_wrap=True),
            Column("TARGET", moves_below_if_narrow=True),
            Column("ALARMS"),
            Column("STATE"),
            Column("LAST SENT (UTC)", no_wrap=True),
        ],
        [
            (
                destination.id,
                destination.kind.value,
                destination.shown_target,
                _kinds_text(destination),
                _state_text(destination),
                utc(destination.last_sent_at),
            )
            for destination in destinations
        ],
    )
    for destination in destinations:
        if destination.last_problem is not None:
            print_line(f"{destination.id}: {shown(destination.last_problem)}")


@commands.command()
def remove(
    destination: DestinationArgument,
    yes: options.Yes = False,
    installation: options.OfInstallation = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Remove a destination, with the messages that wait for it."""
    inputs.require_yes_with_json(json, yes)
    with factory_or_team_session(factory, of_team=installation) as session:
        found = session.management.alarm_destinations.get(session.may, destination)
        if not yes:
            confirm(f"Remove alarm destination {shown(found.shown_target)} ({found.id})?")
        session.management.alarm_destinations.delete(session.may, found.id)
    if json:
        print_json(plain(AlarmDestinationView.of(found)) | {"deleted": True})
        return
    print_line(f"No more alarms are sent to {shown(found.shown_target)} ({found.id}).")


@commands.command("test")
def send_test(
    destination: DestinationArgument,
    installation: options.OfInstallation = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Send a test to a destination of alarms, and print the result."""
    with factory_or_team_session(factory, of_team=installation) as session:
        result = session.management.alarm_destinations.test(session.may, destination)
    if json:
        print_json(DestinationTestView.of(result))
    elif result.problem is None:
        print_line(f"{shown(result.destination.shown_target)} accepted the test.")
    else:
        print_line(f"The test was not sent. {shown(result.problem)}")
    if result.problem is not None:
        raise typer.Exit(1)


def _command(text: str, factory: str, installation: bool) -> str:
    return f"{command_line(text)} --installation" if installation else command_line(text, factory)


def _kinds_text(destination: AlarmDestination) -> str:
    kinds = ", ".join(kind.value for kind in destination.alarm_kinds) or "all kinds"
    return f"{kinds}, of all factories too" if destination.includes_factories else kinds


def _state_text(destination: AlarmDestination) -> str:
    parts = [f"{destination.waiting} waiting"] if destination.waiting else []
    if destination.failed:
        parts.append(f"{destination.failed} given up")
    return ", ".join(parts) or "ok"
