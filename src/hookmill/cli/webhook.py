"""`hookmill webhook`: the URLs that senders post to, and the secrets that they prove themselves with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookmill.cli import given, options
from hookmill.cli.curl import curl_line
from hookmill.cli.output import Column, as_json, confirmed, fields, how_to_call, iso, line, shown, table, utc
from hookmill.cli.session import session
from hookmill.domain.webhook import AuthMode, Webhook, WebhookState

if TYPE_CHECKING:
    from hookmill.domain.automation import Automation
    from hookmill.management import Management, WebhookWithSecret

commands = typer.Typer(no_args_is_help=True, help="Webhooks: the URLs that senders post to.")

Name = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its name or uid.", show_default=False)]


@commands.command()
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What it is called, in this factory.", show_default=False)
    ],
    mode: Annotated[AuthMode, typer.Option(help="How senders prove themselves.")] = AuthMode.TOKEN,
    scheme: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With mode signature: the provider. `hookmill scheme list` shows them."),
    ] = None,
    signature: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="With scheme hmac: how the sender signs. `hookmill scheme show hmac` says."),
    ] = None,
    handshakes: Annotated[
        bool, typer.Option("--handshakes", help="With mode signature: answer the provider's signed challenges.")
    ] = False,
    secret_from_stdin: options.SecretFromStdin = False,
    secret_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The team secret that holds the secret: an existing one, or a new name."),
    ] = None,
    delivery_id_header: Annotated[
        str | None, typer.Option(metavar="HEADER", help="The request header in which the sender puts its event id.")
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Create a webhook. Its complete URL and its secret are printed now, and never again."""
    secret = given.secret_from_standard_input() if secret_from_stdin else None
    with session(factory) as here:
        made = here.management.create_webhook(
            here.factory,
            name,
            auth_mode=mode,
            signature_scheme=scheme,
            signature_options=given.json_in(signature, "--signature") if signature is not None else None,
            answers_handshakes=handshakes,
            secret=secret,
            secret_name=secret_name,
            delivery_id_header=delivery_id_header,
        )
        if made.secret is None and not json:
            _print_without_secret(made)
            return
        _print_with_secret(here.management, made, f"Webhook {shown(made.webhook.name)} is ready.", json)


@commands.command("list")
def list_webhooks(
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted ones too.")] = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """List the factory's webhooks."""
    with session(factory) as here:
        found = here.management.webhooks(here.factory, with_deleted=deleted)
        if json:
            as_json({"webhooks": [webhook_fields(here.management, webhook) for webhook in found]})
            return
    if not found:
        line(f"Factory {shown(factory)} has no webhooks yet. Create one: {how_to_call()} webhook create NAME")
        return
    table(
        [
            Column("NAME"),
            Column("UID", whole=True, stacked=True),
            Column("MODE", whole=True),
            Column("STATE", whole=True),
        ],
        [(webhook.name, webhook.uid, webhook.auth_mode.value, _state(webhook)) for webhook in found],
    )


@commands.command()
def show(name: Name, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show one webhook, and which automations select it."""
    with session(factory) as here:
        webhook = here.management.webhook(here.factory, name)
        selecting = [
            automation
            for automation in here.management.automations(here.factory)
            if webhook.uid in automation.selected_webhooks()
        ]
        described = webhook_fields(here.management, webhook)
    if json:
        as_json(described | {"automations": [automation.name for automation in selecting]})
        return
    pairs = [
        ("Webhook", shown(webhook.name)),
        ("uid", webhook.uid),
        ("State", _state(webhook)),
        ("Mode", webhook.auth_mode.value),
        ("URL", described["url"]),
        ("Secret", f"{webhook.secret_name} ({_of_secret(webhook)})"),
    ]
    if webhook.signature_scheme is not None:
        pairs.append(("Scheme", webhook.signature_scheme))
        pairs.append(("Handshakes", "answered" if webhook.answers_handshakes else "not answered"))
    if webhook.delivery_id_header is not None:
        pairs.append(("Event id in", webhook.delivery_id_header))
    pairs.append(("Created", utc(webhook.created_at)))
    pairs.append(("Automations", ", ".join(_named(automation) for automation in selecting) or "none selects it"))
    fields(pairs)


@commands.command()
def enable(name: Name, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Accept deliveries again."""
    _set_enabled(name, factory, json, enabled=True)


@commands.command()
def disable(name: Name, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Stop accepting deliveries. Senders get 404 from now on."""
    _set_enabled(name, factory, json, enabled=False)


@commands.command()
def rotate(
    name: Name,
    secret_from_stdin: options.SecretFromStdin = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Replace the secret. The old one stops working at once; the new one is printed now, and never again."""
    secret = given.secret_from_standard_input() if secret_from_stdin else None
    with session(factory) as here:
        had_one = here.management.webhook(here.factory, name).has_secret
        rotated = here.management.rotate_webhook(here.factory, name, secret)
        webhook = rotated.webhook
        said = f"Webhook {shown(webhook.name)} has a new secret. The old one works no more."
        if not had_one:
            said = f"Webhook {shown(webhook.name)} has its secret now."
            if webhook.state is WebhookState.DISABLED:
                said += f" To accept deliveries: {how_to_call()} webhook enable {webhook.uid}"
        if secret is not None and not json:
            # Whoever gave it knows it, and a terminal remembers what it has shown.
            line(said)
            return
        _print_with_secret(here.management, rotated, said, json)


@commands.command()
def delete(
    name: Name,
    yes: options.Yes = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Delete a webhook. Its URL answers 404 for ever; its log stays until retention takes it."""
    if json and not yes:
        raise typer.BadParameter("--json can't ask for confirmation; give --yes as well")
    with session(factory) as here:
        webhook = here.management.webhook(here.factory, name)
        if not yes and webhook.state is not WebhookState.DELETED:
            confirmed(f"Delete webhook {webhook.name} ({webhook.uid})? Its URL dies for ever.")
        webhook = here.management.delete_webhook(here.factory, webhook.uid)
        described = webhook_fields(here.management, webhook)
    if json:
        as_json(described)
        return
    line(f"Webhook {shown(webhook.name)} ({webhook.uid}) is deleted. Senders get 404.")


def _set_enabled(name: str, factory: str, json: bool, *, enabled: bool) -> None:
    with session(factory) as here:
        webhook = here.management.set_webhook_enabled(here.factory, name, enabled)
        described = webhook_fields(here.management, webhook)
    if json:
        as_json(described)
        return
    effect = "Deliveries are accepted." if enabled else "Senders get 404; its log and automations stay."
    line(f"Webhook {shown(webhook.name)} ({webhook.uid}) is {webhook.state.value}. {effect}")


def _print_with_secret(management: Management, made: WebhookWithSecret, said: str, json: bool) -> None:
    """The one moment when the secret and the complete URL are shown."""
    if json:
        described = webhook_fields(management, made.webhook)
        as_json(described | {"url": made.url, "secret": made.reveal() if made.secret is not None else None})
        return
    line(said)
    line()
    fields([("uid", made.webhook.uid), ("URL", made.url), ("Secret", made.reveal())])
    line()
    line(f"Keep the secret now: it is not shown again. It is stored as team secret {made.webhook.secret_name}.")
    if (sample := curl_line(made)) is not None:
        line("A sample delivery:")
        line()
        line(sample)


def _print_without_secret(made: WebhookWithSecret) -> None:
    """Only the provider can make the secret, and it wants the URL first."""
    webhook = made.webhook
    line(f"Webhook {shown(webhook.name)} is created, and disabled until it has the provider's secret.")
    line()
    fields([("uid", webhook.uid), ("URL", made.url)])
    line()
    line(f"How to set the provider up: {how_to_call()} scheme show {webhook.signature_scheme}")
    line("Give it the URL, hand its signing secret over here (it is asked for, or piped in), and then enable:")
    line()
    line(f"  {how_to_call()} webhook rotate {webhook.uid} --secret-from-stdin")
    line(f"  {how_to_call()} webhook enable {webhook.uid}")


def _of_secret(webhook: Webhook) -> str:
    if not webhook.has_secret:
        return "no value yet: supply the provider's with webhook rotate --secret-from-stdin"
    return "never shown; rotate it for a new one"


def _state(webhook: Webhook) -> str:
    if not webhook.has_secret:
        return f"{webhook.state.value}, waiting for the provider's secret"
    if webhook.secret_is_current:
        return webhook.state.value
    return f"{webhook.state.value}, secret changed and not yet synced"


def _named(automation: Automation) -> str:
    return shown(automation.name) if automation.enabled else f"{shown(automation.name)} (disabled)"


def webhook_fields(management: Management, webhook: Webhook) -> dict[str, Any]:
    """A webhook as JSON says it: the contract's names where it has them."""
    return {
        "uid": webhook.uid,
        "name": webhook.name,
        "authMode": webhook.auth_mode.value,
        "secretName": webhook.secret_name,
        "signatureScheme": webhook.signature_scheme,
        "signature_options": webhook.signature_options,
        "answers_handshakes": webhook.answers_handshakes,
        "deliveryIdHeader": webhook.delivery_id_header,
        "enabled": webhook.state is WebhookState.ENABLED,
        "state": webhook.state.value,
        "url": management.url(webhook),
        "has_secret": webhook.has_secret,
        "secret_is_current": webhook.secret_is_current,
        "created_at": iso(webhook.created_at),
    }
