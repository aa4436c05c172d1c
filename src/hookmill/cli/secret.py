"""`hookmill secret`: the team's secrets. Their values go in, or are shown once when they are generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hookmill.cli import given, options
from hookmill.cli.output import Column, as_json, call, confirmed, fields, line, table, utc
from hookmill.cli.session import session
from hookmill.domain.text import shown
from hookmill.domain.webhook import WebhookState
from hookmill.presentation.secret import SecretView, SecretWithValueView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.cli.session import Session
    from hookmill.domain.webhook import Webhook
    from hookmill.management import TeamSecret

commands = typer.Typer(no_args_is_help=True, help="Team secrets: what senders prove themselves with.")

Name = Annotated[str, typer.Argument(metavar="SECRET", help="Its name.", show_default=False)]


@commands.command()
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A letter, then letters, digits and _.", show_default=False)
    ],
    from_stdin: options.FromStdin = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Create a team secret. A value that is generated is printed now, and never again."""
    value = given.secret_from_standard_input() if from_stdin else None
    with session(factory) as here:
        kept = here.management.secrets.create(here.may, name, value)
        made = here.management.secrets.get(here.may, name)
        by_files = here.may.factory.defined_by_files
    generated = kept.reveal() if value is None else None
    if json:
        as_json(SecretWithValueView.once(made, generated))
        return
    line(f"Team secret {made.name} is created.")
    _print_generated(generated)
    if by_files:
        line(f"For a webhook, in its file: secretName: {made.name}")
        return
    line(f"For a new webhook: {call('webhook create NAME', factory, secret_name=made.name)}")
    line(f"Or, in its definition file: secretName: {made.name}")


@commands.command("list")
def list_secrets(factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """List the team's secrets, without their values, and who uses them."""
    with session(factory) as here:
        found = here.management.secrets.all(here.may)
    if json:
        as_json({"secrets": [SecretView.of(secret) for secret in found]})
        return
    if not found:
        line(f"There are no team secrets yet. A webhook brings its own, or: {call('secret create NAME', factory)}")
        return
    table(
        [Column("NAME"), Column("CHANGED (UTC)", whole=True), Column("USED BY")],
        [(secret.name, _changed(secret), _used_by(secret)) for secret in found],
    )


@commands.command()
def show(name: Name, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show who uses a team secret. Its value is never shown."""
    with session(factory) as here:
        secret = here.management.secrets.get(here.may, name)
        waiting = unsynced(here, name)
    if json:
        as_json(plain(SecretView.of(secret)) | {"not_synced": [webhook.name for webhook in waiting]})
        return
    fields(
        [
            ("Secret", secret.name),
            ("Value", "never shown" if secret.has_value else "none yet"),
            ("Created", utc(secret.created_at)),
            ("Changed", _changed(secret)),
            ("Used by", _used_by(secret)),
        ]
    )
    print_unsynced(waiting, factory)


@commands.command()
def replace(
    name: Name,
    from_stdin: options.FromStdin = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Give a team secret a new value. Each webhook keeps to the old one until its next sync."""
    value = given.secret_from_standard_input() if from_stdin else None
    with session(factory) as here:
        kept = here.management.secrets.replace(here.may, name, value)
        secret = here.management.secrets.get(here.may, name)
        waiting = unsynced(here, name)
    generated = kept.reveal() if value is None else None
    if json:
        not_synced = {"not_synced": [webhook.name for webhook in waiting]}
        as_json(plain(SecretWithValueView.once(secret, generated)) | not_synced)
        return
    line(f"Team secret {secret.name} has a new value.")
    _print_generated(generated)
    print_unsynced(waiting, factory)
    if secret.used_elsewhere:
        line("Webhooks of other factories use it too, and keep to the old value until they are synced.")


@commands.command()
def delete(
    name: Name,
    yes: options.Yes = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Delete a team secret that no webhook uses, with its value."""
    given.agreed_beforehand(json, yes)
    with session(factory) as here:
        secret = here.management.secrets.get(here.may, name)
        # One that is in use is refused anyway, and nobody should have to answer for that.
        if not (yes or secret.used_by or secret.used_elsewhere):
            confirmed(f"Delete team secret {secret.name}? Its value is kept nowhere else.")
        here.management.secrets.delete(here.may, name)
    if json:
        as_json(plain(SecretView.of(secret)) | {"deleted": True})
        return
    line(f"Team secret {secret.name} is deleted.")


def unsynced(here: Session, secret_name: str) -> list[Webhook]:
    """The factory's webhooks that use another value of the team secret than its newest."""
    every = here.management.webhooks.all(here.may)
    return [webhook for webhook in every if webhook.secret_name == secret_name and not webhook.secret_is_current]


def print_unsynced(waiting: Sequence[Webhook], factory: str) -> None:
    """Which webhooks have yet to take the new value, and how they do."""
    if not waiting:
        return
    line("Still with the old value, until each is synced:")
    for webhook in waiting:
        off = "" if webhook.state is WebhookState.ENABLED else f", {webhook.state.value}"
        line(f"  {call(f'webhook sync {webhook.uid}', factory)}  # {shown(webhook.name)}{off}")


def _print_generated(generated: str | None) -> None:
    # Whoever gave a value knows it, and a terminal remembers what it has shown.
    if generated is None:
        return
    line()
    fields([("Value", generated)])
    line()
    line("Keep it now: it is not shown again.")


def _changed(secret: TeamSecret) -> str:
    return utc(secret.changed_at) if secret.has_value else "no value yet"


def _used_by(secret: TeamSecret) -> str:
    users = [shown(name) for name in secret.used_by]
    if secret.used_elsewhere:
        users.append("webhooks of other factories")
    return ", ".join(users) or "nothing"
