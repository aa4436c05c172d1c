"""`hookmill webhook`: the URLs that senders post to, and their authentication."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from hookmill.cli import inputs, options
from hookmill.cli.connection import connected
from hookmill.cli.option_groups import with_option_groups
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
from hookmill.cli.secret import print_unsynced, unsynced
from hookmill.domain import spec
from hookmill.domain.errors import NotFound
from hookmill.domain.text import shown
from hookmill.domain.webhook import TOKEN_PLACEHOLDER, AuthMode, WebhookSpec, command_argument

if TYPE_CHECKING:
    from hookmill.client import Client
    from hookmill.client.types import AutomationInListJson, WebhookJson, WebhookWithSecretJson

commands = typer.Typer(no_args_is_help=True, help="Webhooks: the URLs that senders post to.")

WebhookArgument = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="The webhook's name or uid.", show_default=False)
]


_FIELDS, _ = spec.schemas(WebhookSpec, ref_template="{name}")


def _option(field: str, *names: str, metavar: str | None = None) -> Any:
    """The option for a field of `WebhookSpec`."""
    remark = " May be repeated." if _FIELDS[field].get("type") == "array" else ""
    return typer.Option(*names, metavar=metavar, help=_FIELDS[field]["description"] + remark)


@dataclass(frozen=True, kw_only=True)
class WebhookOptions:
    """The options for the fields of `WebhookSpec`, except for the name."""

    auth_mode: Annotated[AuthMode | None, _option("auth_mode", "--mode")] = None
    signature_scheme: Annotated[str | None, _option("signature_scheme", "--scheme", metavar="NAME")] = None
    signature_options: Annotated[str | None, _option("signature_options", "--signature", metavar="JSON")] = None
    answers_handshakes: Annotated[bool | None, _option("answers_handshakes", "--handshakes/--no-handshakes")] = None
    secret_name: Annotated[str | None, _option("secret_name", metavar="NAME")] = None
    delivery_id_header: Annotated[str | None, _option("delivery_id_header", metavar="HEADER")] = None
    event_header: Annotated[str | None, _option("event_header", metavar="HEADER")] = None
    allowed_networks: Annotated[
        list[str] | None, _option("allowed_networks", "--allowed-network", metavar="NETWORK")
    ] = None
    expect_every: Annotated[str | None, _option("expect_every", metavar="TIME")] = None
    enabled: Annotated[bool | None, _option("enabled", "--enabled/--disabled")] = None

    def fields(self) -> dict[str, Any]:
        """The fields whose options were given."""
        given = {name: value for name, value in vars(self).items() if value not in (None, [])}
        if "signature_options" in given:
            given["signature_options"] = inputs.parse_json(given["signature_options"], "--signature")
        return given


@commands.command()
@with_option_groups
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help=_FIELDS["name"]["description"], show_default=False)],
    webhook_options: WebhookOptions,
    secret_from_stdin: options.SecretFromStdin = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Create a webhook. A generated secret is printed only once."""
    fields = webhook_options.fields()
    secret = inputs.read_new_secret() if secret_from_stdin else None
    with connected() as client:
        webhook = client.create_webhook(factory, name=name, **fields, secret=secret)
    _print_warnings(webhook)
    if json:
        print_json(webhook)
        return
    if not webhook["has_secret"]:
        _print_without_secret(webhook, factory)
        return
    state = "ready" if webhook["enabled"] else "created, but disabled: senders get 404"
    print_line(f"Webhook {shown(webhook['name'])} is {state}.")
    print_line()
    if webhook["secret"] is not None:
        _print_with_secret(webhook, webhook["secret"])
    else:
        _print_with_hidden_secret(webhook, is_supplied=secret is not None)
        print_line(f"To send a sample: {command_line(f'send {_argument(webhook)}', factory)}")
    _print_how_to_enable(webhook, factory)


@commands.command("list")
def list_webhooks(
    deleted: Annotated[bool, typer.Option("--deleted", help="Include deleted webhooks.")] = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """List the factory's webhooks."""
    with connected() as client:
        webhooks = list(client.list_webhooks(factory, deleted=deleted))
    if json:
        print_json({"items": webhooks})
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
        [(webhook["name"], webhook["uid"], webhook["auth_mode"], _state_text(webhook)) for webhook in webhooks],
    )


@commands.command()
def show(name_or_uid: WebhookArgument, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show one webhook, and which automations select it."""
    with connected() as client:
        webhook = _find(client, factory, name_or_uid)
        automations = [each for each in client.list_automations(factory) if webhook["uid"] in _selected_by(each)]
    _print_warnings(webhook)
    if json:
        print_json({**webhook, "automations": [automation["name"] for automation in automations]})
        return
    own_lines = {"name", "auth_mode", "secret_name", "enabled"}
    fields = [name for name in WebhookSpec.__struct_fields__ if name not in own_lines and _value(webhook, name)]
    print_fields(
        [
            ("Webhook", shown(webhook["name"])),
            ("UID", webhook["uid"]),
            ("State", _state_text(webhook)),
            ("Mode", webhook["auth_mode"]),
            ("URL", webhook["url"]),
            ("Secret", f"{webhook['secret_name']} ({_secret_state(webhook, factory)})"),
            *_field_texts(webhook, fields),
            ("Created", utc_with_zone(webhook["created_at"])),
            ("Automations", ", ".join(map(_automation_label, automations)) or "none selects it"),
        ]
    )


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
@with_option_groups
def change(
    name_or_uid: WebhookArgument,
    webhook_options: WebhookOptions,
    name: Annotated[str | None, _option("name", metavar="NEW")] = None,
    reset: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Reset a field to its default, such as event_header. May be repeated."),
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Change a webhook. The fields that you leave out stay."""
    given = webhook_options.fields() | ({"name": name} if name is not None else {})
    changes = given | dict.fromkeys(reset or ())
    if not changes or given.keys() & set(reset or ()):
        raise typer.BadParameter("give the new value of at least one field, or reset it, but not both")
    with connected() as client:
        webhook = client.change_webhook(factory, _find(client, factory, name_or_uid)["uid"], **changes)
    _print_warnings(webhook)
    if json:
        print_json(webhook)
        return
    print_line(f"Webhook {shown(webhook['name'])} ({webhook['uid']}) is changed.")
    print_fields(_field_texts(webhook, changes))


@commands.command()
def sync(name_or_uid: WebhookArgument, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Use the newest value of the team secret. The previous value stops working immediately."""
    with connected() as client:
        before = _find(client, factory, name_or_uid)
        webhook = client.sync_webhook(factory, before["uid"])
    if json:
        print_json(webhook)
        return
    name, secret_name = shown(webhook["name"]), webhook["secret_name"]
    if before["secret_is_current"]:
        print_line(f"Webhook {name} already uses the newest value of team secret {secret_name}.")
        return
    print_line(f"Webhook {name} now uses only the newest value of team secret {secret_name}.")
    _print_how_to_enable(webhook, factory)


@commands.command()
def rotate(
    name_or_uid: WebhookArgument,
    secret_from_stdin: options.SecretFromStdin = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Replace the secret. The old one stops working immediately. A generated secret is printed only once."""
    secret = inputs.read_new_secret() if secret_from_stdin else None
    with connected() as client:
        before = _find(client, factory, name_or_uid)
        webhook = client.rotate_webhook(factory, before["uid"], secret=secret)
        others_to_sync = unsynced(client.list_webhooks(factory), webhook["secret_name"])
    if json:
        print_json(webhook)
        return
    if before["has_secret"]:
        print_line(f"Webhook {shown(webhook['name'])} has a new secret. The old one no longer works.")
    else:
        print_line(f"Webhook {shown(webhook['name'])} now has its secret.")
    if webhook["secret"] is not None:
        print_line()
        _print_with_secret(webhook, webhook["secret"])
    _print_how_to_enable(webhook, factory)
    if others_to_sync:
        print_line(f"Other webhooks use team secret {webhook['secret_name']} too.")
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
    with connected() as client:
        webhook = _find(client, factory, name_or_uid)
        if not yes and webhook["state"] != "deleted":
            confirm(f"Delete webhook {webhook['name']} ({webhook['uid']})? Its URL stops working permanently.")
        client.delete_webhook(factory, webhook["uid"])
        webhook = client.show_webhook(factory, webhook["uid"])
    if json:
        print_json(webhook)
        return
    print_line(f"Webhook {shown(webhook['name'])} ({webhook['uid']}) is deleted. Senders get 404.")


def _find(client: Client, factory: str, name_or_uid: str) -> WebhookJson:
    """The webhook with this uid, or the one with this name that is not deleted. Raises `NotFound`."""
    webhooks = client.list_webhooks(factory, deleted=name_or_uid.startswith("wh_"))
    for webhook in webhooks:
        if name_or_uid == webhook["uid"] or (name_or_uid == webhook["name"] and webhook["state"] != "deleted"):
            return webhook
    raise NotFound(
        f"Factory {factory!r} has no webhook {name_or_uid[:100]!r}. `hookmill webhook list` shows them, and with "
        "--deleted also those that were deleted."
    )


def _argument(webhook: WebhookJson | WebhookWithSecretJson) -> str:
    """The webhook as the argument of a command."""
    return command_argument(webhook["name"], webhook["uid"])


def _value(webhook: WebhookJson, name: str) -> Any:
    return webhook[name]  # type: ignore[literal-required]  # a field of the spec


def _field_texts(webhook: WebhookJson, fields: Container[str]) -> list[tuple[str, str]]:
    """The labels and values of these fields of `WebhookSpec`, in its order."""
    return [
        (spec.title(_FIELDS, name), _field_text(_value(webhook, name)))
        for name in WebhookSpec.__struct_fields__
        if name in fields
    ]


def _field_text(value: Any) -> str:
    match value:
        case None | []:
            return "not set"
        case list():
            return ", ".join(value)
        case str():
            return shown(value)
        case _:
            return dumps(value)


def _print_warnings(webhook: WebhookJson | WebhookWithSecretJson) -> None:
    for warning in webhook["warnings"]:
        print_error(f"Warning: {warning}")


def _set_enabled(name_or_uid: str, factory: str, json: bool, *, enabled: bool) -> None:
    with connected() as client:
        webhook = client.change_webhook(factory, _find(client, factory, name_or_uid)["uid"], enabled=enabled)
    if json:
        print_json(webhook)
        return
    if not enabled:
        effect = "Senders get 404. Its log and automations stay."
    elif webhook["secret_is_current"]:
        effect = f"Deliveries with the newest value of {webhook['secret_name']} are accepted."
    else:
        sync_command = command_line(f"webhook sync {_argument(webhook)}", factory)
        effect = f"It uses an older value of {webhook['secret_name']}. To use the newest: {sync_command}"
    print_line(f"Webhook {shown(webhook['name'])} ({webhook['uid']}) is {webhook['state']}. {effect}")


def _print_how_to_enable(webhook: WebhookJson | WebhookWithSecretJson, factory: str) -> None:
    if not webhook["enabled"]:
        print_line(f"To accept deliveries: {command_line(f'webhook enable {_argument(webhook)}', factory)}")


def _print_with_secret(webhook: WebhookWithSecretJson, secret: str) -> None:
    """Print the secret and the complete URL, which are shown only once."""
    from hookmill.domain.sample import curl_line

    print_fields([("UID", webhook["uid"]), ("URL", webhook["url"]), ("Secret", secret)])
    print_line()
    print_line(f"Save the secret now: it is not shown again. It is stored as team secret {webhook['secret_name']}.")
    if (sample := curl_line(AuthMode(webhook["auth_mode"]), webhook["url"], secret)) is not None:
        print_line("A sample delivery:" if webhook["enabled"] else "A sample delivery, after you enable the webhook:")
        print_line()
        print_line(sample)


def _print_with_hidden_secret(webhook: WebhookWithSecretJson, *, is_supplied: bool) -> None:
    """Print a webhook whose secret was supplied or existed before. The secret is not shown."""
    origin = "the supplied one, stored as team secret" if is_supplied else "the value of team secret"
    secret = f"{origin} {webhook['secret_name']} (not shown)"
    print_fields([("UID", webhook["uid"]), ("URL", webhook["url"]), ("Secret", secret)])
    print_line()
    match webhook["auth_mode"]:
        case "token":
            print_line("Senders send the secret in a header of each delivery: Authorization: Bearer SECRET.")
        case "url_token":
            print_line(f"Senders post to the URL with the secret in place of {TOKEN_PLACEHOLDER}.")
        case "signature":
            print_line("Senders sign each delivery with the secret.")
        case mode:
            assert_never(mode)


def _print_without_secret(webhook: WebhookWithSecretJson, factory: str) -> None:
    """Print a webhook that waits for its secret: the provider makes it, and needs the URL first."""
    print_line(f"Webhook {shown(webhook['name'])} is created, but disabled until it has the provider's secret.")
    print_line()
    print_fields([("UID", webhook["uid"]), ("URL", webhook["url"])])
    print_line()
    scheme_command = command_line(f"scheme show {webhook['signature_scheme']}")
    print_line(f"How to set up the provider: {scheme_command}")
    print_line(
        "Give the URL to the provider. Then supply its signing secret (at a prompt or from a pipe), "
        "and enable the webhook:"
    )
    print_line()
    print_line(f"  {command_line(f'webhook rotate {_argument(webhook)} --secret-from-stdin', factory)}")
    print_line(f"  {command_line(f'webhook enable {_argument(webhook)}', factory)}")


def _secret_state(webhook: WebhookJson, factory: str) -> str:
    if not webhook["secret_is_current"]:
        return f"it has a newer value; to use it: {command_line(f'webhook sync {_argument(webhook)}', factory)}"
    if not webhook["has_secret"]:
        rotate_command = command_line(f"webhook rotate {webhook['uid']} --secret-from-stdin", factory)
        return f"no value yet; to supply the provider's secret: {rotate_command}"
    return "never shown; rotate replaces it"


def _state_text(webhook: WebhookJson) -> str:
    if webhook["state"] == "deleted":
        return "deleted"
    if not webhook["has_secret"]:
        return f"{webhook['state']}, waiting for the provider's secret"
    if webhook["secret_is_current"]:
        return webhook["state"]
    return f"{webhook['state']}, with an older value of its secret"


def _selected_by(automation: AutomationInListJson) -> set[str]:
    """The uids of the webhooks that the automation selects."""
    triggers: list[Any] = automation["triggers"]
    return {uid for trigger in triggers for uid in trigger.get("filter", {}).get("webhook_ids", ())}


def _automation_label(automation: AutomationInListJson) -> str:
    return shown(automation["name"]) if automation["enabled"] else f"{shown(automation['name'])} (disabled)"
