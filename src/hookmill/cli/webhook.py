"""`hookmill webhook`: the URLs that senders post to, and their authentication."""

from __future__ import annotations

from collections.abc import Container, Mapping
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, assert_never

import typer

from hookmill.cli import inputs, options
from hookmill.cli.output import (
    Column,
    command_line,
    confirm,
    print_error,
    print_fields,
    print_json,
    print_line,
    print_table,
    utc_with_zone,
)
from hookmill.cli.secret import print_unsynced, unsynced_webhooks
from hookmill.cli.session import FactorySession, factory_session
from hookmill.domain import spec
from hookmill.domain.networks import EVERY_CLIENT_IS_THE_PROXY
from hookmill.domain.sample import curl_line
from hookmill.domain.text import shown
from hookmill.domain.webhook import TOKEN_PLACEHOLDER, AuthMode, Webhook, WebhookSpec, WebhookState
from hookmill.presentation.view import plain
from hookmill.presentation.webhook import WebhookView, WebhookWithSecretView

if TYPE_CHECKING:
    from hookmill.domain.automation import Automation
    from hookmill.management import WebhookWithSecret

commands = typer.Typer(no_args_is_help=True, help="Webhooks: the URLs that senders post to.")

WebhookArgument = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="The webhook's name or uid.", show_default=False)
]


_FIELDS, _ = spec.schemas(WebhookSpec, ref_template="{name}")


def _option(field: str, *names: str, metavar: str | None = None) -> Any:
    """The option for a field of `WebhookSpec`."""
    remark = " May be repeated." if _FIELDS[field].get("type") == "array" else ""
    return typer.Option(*names, metavar=metavar, help=_FIELDS[field]["description"] + remark)


Mode: TypeAlias = Annotated[AuthMode | None, _option("auth_mode", "--mode")]
SchemeName: TypeAlias = Annotated[str | None, _option("signature_scheme", "--scheme", metavar="NAME")]
Signature: TypeAlias = Annotated[str | None, _option("signature_options", "--signature", metavar="JSON")]
Handshakes: TypeAlias = Annotated[bool | None, _option("answers_handshakes", "--handshakes/--no-handshakes")]
SecretName: TypeAlias = Annotated[str | None, _option("secret_name", metavar="NAME")]
DeliveryIdHeader: TypeAlias = Annotated[str | None, _option("delivery_id_header", metavar="HEADER")]
EventHeader: TypeAlias = Annotated[str | None, _option("event_header", metavar="HEADER")]
AllowedNetworks: TypeAlias = Annotated[
    list[str] | None, _option("allowed_networks", "--allowed-network", metavar="NETWORK")
]
ExpectEvery: TypeAlias = Annotated[str | None, _option("expect_every", metavar="TIME")]
Enabled: TypeAlias = Annotated[bool | None, _option("enabled", "--enabled/--disabled")]


@commands.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help=_FIELDS["name"]["description"], show_default=False)],
    auth_mode: Mode = AuthMode.TOKEN,
    signature_scheme: SchemeName = None,
    signature_options: Signature = None,
    answers_handshakes: Handshakes = None,
    secret_from_stdin: options.SecretFromStdin = False,
    secret_name: SecretName = None,
    delivery_id_header: DeliveryIdHeader = None,
    event_header: EventHeader = None,
    allowed_networks: AllowedNetworks = None,
    expect_every: ExpectEvery = None,
    enabled: Enabled = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Create a webhook. A generated secret is printed only once."""
    source = _given_fields(locals())
    secret = inputs.read_new_secret() if secret_from_stdin else None
    with factory_session(factory) as session:
        created = session.management.webhooks.create(session.may, source, secret)
        view = WebhookWithSecretView.showing_secret(session.management, created, is_generated=secret is None)
        _warn_of_hidden_clients(session, created.webhook)
        url = session.management.webhooks.url(created.webhook)
    webhook = created.webhook
    if json:
        print_json(view)
        return
    if not webhook.has_secret:
        _print_without_secret(created, factory)
        return
    state = "ready" if webhook.state is WebhookState.ENABLED else "created, but disabled: senders get 404"
    print_line(f"Webhook {shown(webhook.name)} is {state}.")
    print_line()
    if secret is None and created.secret is not None:
        _print_with_secret(created)
    else:
        _print_with_hidden_secret(webhook, url, is_supplied=secret is not None)
        print_line(f"To send a sample: {command_line(f'send {webhook.command_argument}', factory)}")
    if webhook.state is WebhookState.DISABLED:
        print_line(f"To accept deliveries: {command_line(f'webhook enable {webhook.command_argument}', factory)}")


@commands.command("list")
def list_webhooks(
    deleted: Annotated[bool, typer.Option("--deleted", help="Include deleted webhooks.")] = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """List the factory's webhooks."""
    with factory_session(factory) as session:
        webhooks = session.management.webhooks.all(session.may, with_deleted=deleted)
        if json:
            print_json({"items": [WebhookView.of(session.management, webhook) for webhook in webhooks]})
            return
    if not webhooks:
        print_line(
            f"Factory {shown(factory)} has no webhooks yet. Create one: {command_line('webhook create NAME', factory)}"
        )
        return
    print_table(
        [
            Column("NAME"),
            Column("UID", no_wrap=True, moves_below_if_narrow=True),
            Column("MODE", no_wrap=True),
            Column("STATE", no_wrap=True),
        ],
        [(webhook.name, webhook.uid, webhook.auth_mode.value, _state_text(webhook)) for webhook in webhooks],
    )


@commands.command()
def show(name_or_uid: WebhookArgument, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show one webhook, and which automations select it."""
    with factory_session(factory) as session:
        webhook = session.management.webhooks.get(session.may, name_or_uid)
        selecting_automations = [
            automation
            for automation in session.management.automations.all(session.may)
            if webhook.uid in automation.selected_webhook_uids()
        ]
        view = WebhookView.of(session.management, webhook)
        _warn_of_hidden_clients(session, webhook)
    if json:
        print_json(plain(view) | {"automations": [automation.name for automation in selecting_automations]})
        return
    pairs = [
        ("Webhook", shown(webhook.name)),
        ("UID", webhook.uid),
        ("State", _state_text(webhook)),
        ("Mode", webhook.auth_mode.value),
        ("URL", view.url),
        ("Secret", f"{webhook.secret_name} ({_secret_state(webhook, factory)})"),
    ]
    pairs += _field_texts(webhook, webhook.spec.as_json().keys() - {"name", "auth_mode", "secret_name", "enabled"})
    pairs.append(("Created", utc_with_zone(webhook.created_at)))
    pairs.append(
        (
            "Automations",
            ", ".join(_automation_label(automation) for automation in selecting_automations) or "none selects it",
        )
    )
    print_fields(pairs)


@commands.command()
def enable(
    name_or_uid: WebhookArgument, factory: options.FactoryName = "default", json: options.AsJson = False
) -> None:
    """Enable a webhook. It accepts deliveries again."""
    _set_enabled(name_or_uid, factory, json, enabled=True)


@commands.command()
def disable(
    name_or_uid: WebhookArgument, factory: options.FactoryName = "default", json: options.AsJson = False
) -> None:
    """Disable a webhook. Senders get 404 from now on."""
    _set_enabled(name_or_uid, factory, json, enabled=False)


@commands.command()
def change(
    name_or_uid: WebhookArgument,
    name: Annotated[str | None, _option("name", metavar="NEW")] = None,
    auth_mode: Mode = None,
    signature_scheme: SchemeName = None,
    signature_options: Signature = None,
    answers_handshakes: Handshakes = None,
    secret_name: SecretName = None,
    delivery_id_header: DeliveryIdHeader = None,
    event_header: EventHeader = None,
    allowed_networks: AllowedNetworks = None,
    expect_every: ExpectEvery = None,
    enabled: Enabled = None,
    reset: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Reset a field to its default, such as event_header. May be repeated."),
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Change a webhook. The fields that you leave out stay."""
    given = _given_fields(locals())
    changes = given | dict.fromkeys(reset or ())
    if not changes or given.keys() & set(reset or ()):
        raise typer.BadParameter("give the new value of at least one field, or reset it, but not both")
    with factory_session(factory) as session:
        webhook = session.management.webhooks.change(session.may, name_or_uid, changes)
        view = WebhookView.of(session.management, webhook)
        _warn_of_hidden_clients(session, webhook)
    if json:
        print_json(view)
        return
    print_line(f"Webhook {shown(webhook.name)} ({webhook.uid}) is changed.")
    print_fields(_field_texts(webhook, changes))


@commands.command()
def sync(name_or_uid: WebhookArgument, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Use the newest value of the team secret. The previous value stops working immediately."""
    with factory_session(factory) as session:
        before = session.management.webhooks.get(session.may, name_or_uid)
        webhook = session.management.webhooks.sync(session.may, before.uid)
        view = WebhookView.of(session.management, webhook)
    if json:
        print_json(view)
        return
    if before.secret_is_current:
        print_line(f"Webhook {shown(webhook.name)} already uses the newest value of team secret {webhook.secret_name}.")
        return
    print_line(f"Webhook {shown(webhook.name)} now uses only the newest value of team secret {webhook.secret_name}.")
    if webhook.state is WebhookState.DISABLED:
        print_line(f"To accept deliveries: {command_line(f'webhook enable {webhook.command_argument}', factory)}")


@commands.command()
def rotate(
    name_or_uid: WebhookArgument,
    secret_from_stdin: options.SecretFromStdin = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Replace the secret. The old one stops working immediately. A generated secret is printed only once."""
    secret = inputs.read_new_secret() if secret_from_stdin else None
    with factory_session(factory) as session:
        had_secret = session.management.webhooks.get(session.may, name_or_uid).has_secret
        rotated = session.management.webhooks.rotate(session.may, name_or_uid, secret)
        view = WebhookWithSecretView.showing_secret(session.management, rotated, is_generated=secret is None)
        others_to_sync = unsynced_webhooks(session, rotated.webhook.secret_name)
    webhook = rotated.webhook
    if json:
        print_json(view)
        return
    if had_secret:
        print_line(f"Webhook {shown(webhook.name)} has a new secret. The old one no longer works.")
    else:
        print_line(f"Webhook {shown(webhook.name)} now has its secret.")
    if secret is None:
        print_line()
        _print_with_secret(rotated)
    if webhook.state is WebhookState.DISABLED:
        print_line(f"To accept deliveries: {command_line(f'webhook enable {webhook.command_argument}', factory)}")
    if others_to_sync:
        print_line(f"Other webhooks use team secret {webhook.secret_name} too.")
        print_unsynced(others_to_sync, factory)


@commands.command()
def delete(
    name_or_uid: WebhookArgument,
    yes: options.Yes = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Delete a webhook. Its URL answers 404 permanently. Its log is removed after 7 days."""
    inputs.require_yes_with_json(json, yes)
    with factory_session(factory) as session:
        webhook = session.management.webhooks.get(session.may, name_or_uid)
        if not yes and webhook.state is not WebhookState.DELETED:
            confirm(f"Delete webhook {webhook.name} ({webhook.uid})? Its URL stops working permanently.")
        webhook = session.management.webhooks.delete(session.may, webhook.uid)
        view = WebhookView.of(session.management, webhook)
    if json:
        print_json(view)
        return
    print_line(f"Webhook {shown(webhook.name)} ({webhook.uid}) is deleted. Senders get 404.")


def _given_fields(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `WebhookSpec` among a command's parameters. A parameter without its option is None or empty."""
    fields = {
        name: parameters[name] for name in WebhookSpec.__struct_fields__ if parameters.get(name) not in (None, [])
    }
    if "signature_options" in fields:
        fields["signature_options"] = inputs.parse_json(fields["signature_options"], "--signature")
    return fields


def _field_texts(webhook: Webhook, fields: Container[str]) -> list[tuple[str, str]]:
    """The labels and values of these fields of `WebhookSpec`, in its order."""
    return [
        (spec.title(_FIELDS, name), _field_text(getattr(webhook, name)))
        for name in WebhookSpec.__struct_fields__
        if name in fields
    ]


def _field_text(value: Any) -> str:
    match value:
        case None | ():
            return "not set"
        case tuple():
            return ", ".join(value)
        case str():
            return shown(value)
        case _:
            return dumps(value)


def _warn_of_hidden_clients(session: FactorySession, webhook: Webhook) -> None:
    if webhook.allowed_networks and session.settings.lacks_trusted_proxies():
        print_error(f"Warning: {EVERY_CLIENT_IS_THE_PROXY}")


def _set_enabled(name_or_uid: str, factory: str, json: bool, *, enabled: bool) -> None:
    with factory_session(factory) as session:
        webhook = session.management.webhooks.set_enabled(session.may, name_or_uid, enabled)
        view = WebhookView.of(session.management, webhook)
    if json:
        print_json(view)
        return
    if not enabled:
        effect = "Senders get 404. Its log and automations stay."
    elif webhook.secret_is_current:
        effect = f"Deliveries with the newest value of {webhook.secret_name} are accepted."
    else:
        sync_command = command_line(f"webhook sync {webhook.command_argument}", factory)
        effect = f"It uses an older value of {webhook.secret_name}. To use the newest: {sync_command}"
    print_line(f"Webhook {shown(webhook.name)} ({webhook.uid}) is {webhook.state.value}. {effect}")


def _print_with_secret(result: WebhookWithSecret) -> None:
    """Print the secret and the complete URL, which are shown only once."""
    print_fields([("UID", result.webhook.uid), ("URL", result.url), ("Secret", result.reveal())])
    print_line()
    print_line(f"Save the secret now: it is not shown again. It is stored as team secret {result.webhook.secret_name}.")
    if (sample := curl_line(result.webhook.auth_mode, result.url, result.reveal())) is not None:
        is_enabled = result.webhook.state is WebhookState.ENABLED
        print_line("A sample delivery:" if is_enabled else "A sample delivery, after you enable the webhook:")
        print_line()
        print_line(sample)


def _print_with_hidden_secret(webhook: Webhook, url: str, *, is_supplied: bool) -> None:
    """Print a webhook whose secret was supplied or existed before. The secret is not shown."""
    origin = "the supplied one, stored as team secret" if is_supplied else "the value of team secret"
    print_fields([("UID", webhook.uid), ("URL", url), ("Secret", f"{origin} {webhook.secret_name} (not shown)")])
    print_line()
    match webhook.auth_mode:
        case AuthMode.TOKEN:
            print_line("Senders send the secret in a header of each delivery: Authorization: Bearer SECRET.")
        case AuthMode.URL_TOKEN:
            print_line(f"Senders post to the URL with the secret in place of {TOKEN_PLACEHOLDER}.")
        case AuthMode.SIGNATURE:
            print_line("Senders sign each delivery with the secret.")
        case _:
            assert_never(webhook.auth_mode)


def _print_without_secret(created: WebhookWithSecret, factory: str) -> None:
    """Print a webhook that waits for its secret: the provider makes it, and needs the URL first."""
    webhook = created.webhook
    print_line(f"Webhook {shown(webhook.name)} is created, but disabled until it has the provider's secret.")
    print_line()
    print_fields([("UID", webhook.uid), ("URL", created.url)])
    print_line()
    print_line(f"How to set up the provider: {command_line(f'scheme show {webhook.signature_scheme}')}")
    print_line(
        "Give the URL to the provider. Then supply its signing secret (at a prompt or from a pipe), "
        "and enable the webhook:"
    )
    print_line()
    print_line(f"  {command_line(f'webhook rotate {webhook.command_argument} --secret-from-stdin', factory)}")
    print_line(f"  {command_line(f'webhook enable {webhook.command_argument}', factory)}")


def _secret_state(webhook: Webhook, factory: str) -> str:
    if not webhook.secret_is_current:
        return f"it has a newer value; to use it: {command_line(f'webhook sync {webhook.command_argument}', factory)}"
    if not webhook.has_secret:
        rotate_command = command_line(f"webhook rotate {webhook.uid} --secret-from-stdin", factory)
        return f"no value yet; to supply the provider's secret: {rotate_command}"
    return "never shown; rotate replaces it"


def _state_text(webhook: Webhook) -> str:
    if webhook.state is WebhookState.DELETED:
        return webhook.state.value
    if not webhook.has_secret:
        return f"{webhook.state.value}, waiting for the provider's secret"
    if webhook.secret_is_current:
        return webhook.state.value
    return f"{webhook.state.value}, with an older value of its secret"


def _automation_label(automation: Automation) -> str:
    return shown(automation.name) if automation.enabled else f"{shown(automation.name)} (disabled)"
