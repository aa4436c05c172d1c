"""`hookmill key`: API keys of programs that use the HTTP API. Master keys have another command, `keys`."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hookmill.cli import inputs, options
from hookmill.cli.output import Column, command_line, confirm, print_fields, print_json, print_line, print_table, utc
from hookmill.cli.session import team_session
from hookmill.domain.errors import Conflict
from hookmill.domain.permission import Role
from hookmill.domain.text import shown
from hookmill.presentation.key import KeyView, KeyWithTokenView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookmill.domain.api_key import ApiKey

commands = typer.Typer(
    no_args_is_help=True,
    help="API keys, for programs. For master keys see `hookmill keys`.",
)

DAY_US: Final = 86_400_000_000


@commands.command()
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name, such as the program that uses the key.", show_default=False)
    ],
    role: Annotated[Role, typer.Option(help="viewer: read; manager: read and change; admin: everything in the team.")],
    factory: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The key's factory; the default is default. An admin's key is for all factories."
        ),
    ] = None,
    expires_in_days: Annotated[
        int | None,
        typer.Option(min=1, max=3650, metavar="N", help="Days until the key expires. By default it never expires."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Create an API key. Its token is printed only once."""
    if factory is None and role is not Role.ADMIN:
        factory = "default"
    expires_at = time.time_ns() // 1000 + expires_in_days * DAY_US if expires_in_days is not None else None
    with team_session() as session:
        created = session.management.keys.create(session.may, name, role, factory=factory, expires_at=expires_at)
        base = session.settings.public_url()
    token = created.token.reveal()
    if json:
        print_json(KeyWithTokenView.showing_secret(created))
        return
    until = f"until {utc(expires_at)} UTC" if expires_at is not None else "until it is revoked"
    print_line(f"API key {shown(created.key.name)} is ready. It gives access to {_scope_text(created.key)}, {until}.")
    print_line()
    print_fields([("ID", created.key.id), ("Token", token)])
    print_line()
    print_line("Save the token now: it is not shown again. To try it:")
    print_line()
    print_line(shlex.join(["curl", "-H", f"Authorization: Bearer {token}", f"{base}/api/v1/me"]))


@commands.command("list")
def list_keys(json: options.AsJson = False) -> None:
    """List the API keys, newest first, with revoked and expired ones."""
    with team_session() as session:
        keys = session.management.keys.all(session.may)
    if json:
        print_json({"items": [KeyView.of(key) for key in keys]})
        return
    if not keys:
        print_line(f"There are no API keys yet. Create one: {command_line('key create NAME --role viewer')}")
        return
    now = time.time_ns() // 1000
    print_table(
        [
            Column("KEY", no_wrap=True),
            Column("NAME", moves_below_if_narrow=True),
            Column("ACCESS"),
            Column("STATE", no_wrap=True),
            Column("LAST USED", no_wrap=True),
        ],
        [(key.id, key.name, _scope_text(key), _state_text(key, now), utc(key.last_used_at)[:10]) for key in keys],
    )


@commands.command()
def revoke(
    name_or_id: Annotated[
        str, typer.Argument(metavar="KEY", help="The key's id, key_…, or its name if it is unique.", show_default=False)
    ],
    yes: options.Yes = False,
    json: options.AsJson = False,
) -> None:
    """Revoke an API key permanently. Its requests get 401 from now on."""
    inputs.require_yes_with_json(json, yes)
    with team_session() as session:
        key = _find_key(session.management.keys.all(session.may), name_or_id)
        # For an unknown or revoked key, the command is refused in any case, so no question is asked.
        if key is not None and key.revoked_at is None and not yes:
            confirm(f"Revoke API key {key.name} ({key.id})? Its requests get 401 permanently.")
        revoked = session.management.keys.revoke(session.may, key.id if key is not None else name_or_id)
    if json:
        print_json(KeyView.of(revoked))
        return
    print_line(f"API key {shown(revoked.name)} ({revoked.id}) is revoked. Its requests get 401.")


def _find_key(keys: Sequence[ApiKey], name_or_id: str) -> ApiKey | None:
    """The key with this id or name; an active key before revoked ones. Raises `Conflict` if several are active."""
    if (key := next((key for key in keys if key.id == name_or_id), None)) is not None:
        return key
    same_name = [key for key in keys if key.name == name_or_id]
    active = [key for key in same_name if key.revoked_at is None]
    if len(active) > 1:
        ids = ", ".join(key.id for key in active)
        raise Conflict(f"{len(active)} keys are named {name_or_id!r}. Give the id of one of them: {ids}.")
    return next(iter([*active, *same_name]), None)


def _scope_text(key: ApiKey) -> str:
    if key.factory_name is None:
        return "all factories, as admin"
    return f"factory {shown(key.factory_name)}, as {key.role.value}"


def _state_text(key: ApiKey, now: int) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "active"
    day = utc(key.expires_at)[:10]
    return f"until {day}" if key.is_valid(now) else f"expired {day}"
