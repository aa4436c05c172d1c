"""`hookmill secret`: the team's secrets. A value is printed only once, and only if it was generated."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hookmill.cli import inputs, options
from hookmill.cli.connection import connected
from hookmill.cli.output import (
    Column,
    command_line,
    confirm,
    print_fields,
    print_json,
    print_line,
    print_table,
    utc,
    utc_with_zone,
)
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.client.types import SecretJson, WebhookJson

commands = typer.Typer(no_args_is_help=True, help="Team secrets, for webhooks and runs.")

SecretArgument = Annotated[str, typer.Argument(metavar="SECRET", help="The secret's name.", show_default=False)]

_NO_VALUE: Final = "no value yet"


@commands.command()
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name: a letter, then letters, digits and _.", show_default=False)
    ],
    from_stdin: options.FromStdin = False,
    for_runs: Annotated[
        bool, typer.Option("--for-runs", help="The secret is for runs of this factory, and not for webhooks.")
    ] = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Create a team secret. A generated value is printed only once."""
    value = inputs.read_new_secret() if from_stdin else None
    with connected() as client:
        defined_by_files = client.show_factory(factory)["defined_by_files"]
        secret = client.create_secret(factory, name=name, value=value, for_runs=for_runs)
    if json:
        print_json(secret)
        return
    print_line(f"Team secret {name} is created.")
    _print_generated(secret["value"])
    if for_runs:
        if not defined_by_files:
            change_command = command_line("automation change AUTOMATION", factory, secret=name)
            print_line(f"To hand it to runs: {change_command}")
        print_line(f"In an automation's file, write: secrets: [{name}]")
        return
    if defined_by_files:
        print_line(f"To use it, write in a webhook's file: secretName: {name}")
        return
    print_line(f"To use it for a new webhook: {command_line('webhook create NAME', factory, secret_name=name)}")
    print_line(f"Or write in a definition file: secretName: {name}")


@commands.command("list")
def list_secrets(factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """List the team's secrets. Shows the webhooks and automations that use them, but no values."""
    with connected() as client:
        secrets = list(client.list_secrets(factory))
    if json:
        print_json({"items": secrets})
        return
    if not secrets:
        create_command = command_line("secret create NAME", factory)
        print_line(f"There are no team secrets yet. A new webhook creates its own, or: {create_command}")
        return
    print_table(
        [Column("NAME"), Column("FOR"), Column("CHANGED (UTC)", no_wrap=True), Column("USED BY")],
        [(secret["name"], _purpose_text(secret), _changed_text(secret), _used_by_text(secret)) for secret in secrets],
    )


@commands.command()
def show(name: SecretArgument, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show which webhooks and automations use a team secret. Its value is never shown."""
    with connected() as client:
        secret = client.show_secret(factory, name)
        webhooks_to_sync = unsynced(client.list_webhooks(factory), name)
    if json:
        print_json({**secret, "not_synced": [webhook["name"] for webhook in webhooks_to_sync]})
        return
    print_fields(
        [
            ("Secret", name),
            ("For", _purpose_text(secret)),
            ("Value", "never shown" if secret["has_value"] else "none yet"),
            ("Created", utc_with_zone(secret["created_at"])),
            ("Changed", utc_with_zone(secret["changed_at"]) if secret["has_value"] else _NO_VALUE),
            ("Used by", _used_by_text(secret)),
        ]
    )
    print_unsynced(webhooks_to_sync, factory)


@commands.command()
def replace(
    name: SecretArgument,
    from_stdin: options.FromStdin = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Set a new value of a team secret. Webhooks use it after a sync, runs from their next attempt."""
    value = inputs.read_new_secret() if from_stdin else None
    with connected() as client:
        secret = client.replace_secret(factory, name, value=value)
        webhooks_to_sync = unsynced(client.list_webhooks(factory), name)
    if json:
        print_json({**secret, "not_synced": [webhook["name"] for webhook in webhooks_to_sync]})
        return
    print_line(f"Team secret {name} has a new value.")
    _print_generated(secret["value"])
    print_unsynced(webhooks_to_sync, factory)
    if secret["used_elsewhere"]:
        print_line("Webhooks of other factories use it too. Each keeps the old value until it is synced.")


@commands.command()
def delete(
    name: SecretArgument,
    yes: options.Yes = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Delete a team secret and its value. No webhook may use it."""
    inputs.require_yes_with_json(json, yes)
    with connected() as client:
        secret = client.show_secret(factory, name)
        # If the secret is in use, the deletion is refused in any case, so no question is asked.
        if not (yes or secret["used_by"] or secret["used_elsewhere"]):
            failing = [shown(automation) for automation in secret["used_by_automations"]]
            consequence = f" Runs of {', '.join(failing)} fail without it." if failing else ""
            confirm(f"Delete team secret {name}? Its value can't be restored.{consequence}")
        client.delete_secret(factory, name)
    if json:
        print_json({**secret, "deleted": True})
        return
    print_line(f"Team secret {name} is deleted.")


def unsynced(webhooks: Iterable[WebhookJson], secret_name: str) -> list[WebhookJson]:
    """The webhooks that use an older value of the team secret."""
    return [
        webhook for webhook in webhooks if webhook["secret_name"] == secret_name and not webhook["secret_is_current"]
    ]


def print_unsynced(webhooks: Sequence[WebhookJson], factory: str) -> None:
    """Print which webhooks use the old value, and the commands that sync them."""
    if not webhooks:
        return
    print_line("These webhooks keep the old value until you sync each of them:")
    for webhook in webhooks:
        name, state = webhook["name"], "" if webhook["enabled"] else f", {webhook['state']}"
        is_plain = shlex.quote(name) == name and name[0].isalnum() and not name.startswith("wh_")
        sync_command = command_line(f"webhook sync {name if is_plain else webhook['uid']}", factory)
        print_line(f"  {sync_command}  # {shown(name)}{state}")


def _print_generated(generated_value: str | None) -> None:
    # A supplied value is not printed: a terminal keeps its output.
    if generated_value is None:
        return
    print_line()
    print_fields([("Value", generated_value)])
    print_line()
    print_line("Save it now: it is not shown again.")


def _purpose_text(secret: SecretJson) -> str:
    if not secret["for_runs"]:
        return "webhooks"
    return "runs" if secret["created_here"] else "runs of another factory"


def _changed_text(secret: SecretJson) -> str:
    return utc(secret["changed_at"]) if secret["has_value"] else _NO_VALUE


def _used_by_text(secret: SecretJson) -> str:
    users = [shown(name) for name in (*secret["used_by"], *secret["used_by_automations"])]
    if secret["used_elsewhere"]:
        users.append("webhooks of other factories")
    return ", ".join(users) or "nothing"
