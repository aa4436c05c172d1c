"""`hookmill alarm destination`: where alarms are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

from hookmill.cli import inputs, options
from hookmill.cli.connection import connected
from hookmill.cli.output import Column, command_line, confirm, print_fields, print_json, print_line, print_table, utc
from hookmill.client.types import DestinationKindJson
from hookmill.domain.alarm import AlarmKind
from hookmill.domain.errors import NotFound
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.client import Client
    from hookmill.client.types import AlarmDestinationCreationJson, AlarmDestinationJson, AlarmDestinationWithSecretJson

commands = typer.Typer(no_args_is_help=True, help="Where alarms are sent.")

DestinationArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="DESTINATION", help="The destination's id, ald_….", show_default=False)
]


@commands.command()
def add(
    kind: Annotated[
        DestinationKindJson,
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
    body: AlarmDestinationCreationJson = {
        "kind": kind,
        "to": to,
        "url": inputs.read_secret() if url_from_stdin else None,
        "alarm_kinds": [cast(Any, kind.value) for kind in alarm or ()],
        "includes_factories": include_factories,
    }
    with connected() as client:
        # Before, because an error after it would lose the signing secret.
        if installation:
            open_alarms = client.list_installation_alarms(open=True, limit=1)
        else:
            open_alarms = client.list_alarms(factory, open=True, limit=1)
        has_open_alarms = any(True for _ in open_alarms)
        if installation:
            destination = client.create_installation_alarm_destination(**body)
        else:
            destination = client.create_alarm_destination(factory, **body)
    if json:
        print_json(destination)
        return
    destination_id, signing_secret = destination["destination_id"], destination["signing_secret"]
    print_line(f"Alarms are now sent to {shown(destination['target'])} ({_kinds_text(destination)}).")
    print_line()
    print_fields([("ID", destination_id), *([("Secret", signing_secret)] if signing_secret is not None else [])])
    print_line()
    if signing_secret is not None:
        print_line("Save the secret now: it is not shown again. The receiver verifies signatures with it.")
    print_line(f"To send a test: {_command(f'alarm destination test {destination_id}', factory, installation)}")
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
    with connected() as client:
        destinations = _all_destinations(client, factory, installation)
    if json:
        print_json({"items": destinations})
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
                destination["destination_id"],
                destination["kind"],
                destination["target"],
                _kinds_text(destination),
                _state_text(destination),
                utc(destination["last_sent_at"]),
            )
            for destination in destinations
        ],
    )
    for destination in destinations:
        if destination["last_problem"] is not None:
            print_line(f"{destination['destination_id']}: {shown(destination['last_problem'])}")


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
    with connected() as client:
        details = _find_destination(client, destination, factory, installation)
        target = f"{shown(details['target'])} ({destination})"
        if not yes:
            confirm(f"Remove alarm destination {target}?")
        if installation:
            client.delete_installation_alarm_destination(destination)
        else:
            client.delete_alarm_destination(factory, destination)
    if json:
        print_json({**details, "deleted": True})
        return
    print_line(f"Alarms are no longer sent to {target}.")


@commands.command("test")
def send_test(
    destination: DestinationArgument,
    installation: options.OfInstallation = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Send a test to a destination of alarms, and print the result."""
    with connected() as client:
        target = _find_destination(client, destination, factory, installation)["target"]
        if installation:
            result = client.test_installation_alarm_destination(destination)
        else:
            result = client.test_alarm_destination(factory, destination)
    if json:
        print_json(result)
    elif result["problem"] is None:
        print_line(f"{shown(target)} accepted the test.")
    else:
        print_line(f"The test was not sent. {shown(result['problem'])}")
    if result["problem"] is not None:
        raise typer.Exit(1)


def _all_destinations(client: Client, factory: str, installation: bool) -> list[AlarmDestinationJson]:
    destinations = (
        client.list_installation_alarm_destinations() if installation else client.list_alarm_destinations(factory)
    )
    return list(destinations)


def _find_destination(client: Client, destination_id: str, factory: str, installation: bool) -> AlarmDestinationJson:
    """Raises `NotFound`."""
    for destination in _all_destinations(client, factory, installation):
        if destination["destination_id"] == destination_id:
            return destination
    raise NotFound(
        f"There is no alarm destination {destination_id[:100]!r} here. `hookmill alarm destination list` shows them, "
        "and with --installation those of the installation."
    )


def _command(text: str, factory: str, installation: bool) -> str:
    return f"{command_line(text)} --installation" if installation else command_line(text, factory)


def _kinds_text(destination: AlarmDestinationJson | AlarmDestinationWithSecretJson) -> str:
    kinds = ", ".join(destination["alarm_kinds"]) or "all kinds"
    return f"{kinds}, of all factories too" if destination["includes_factories"] else kinds


def _state_text(destination: AlarmDestinationJson) -> str:
    parts = [f"{destination['waiting']} waiting"] if destination["waiting"] else []
    if destination["failed"]:
        parts.append(f"{destination['failed']} given up")
    return ", ".join(parts) or "ok"
