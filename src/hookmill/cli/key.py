"""`hookmill key`: API keys of programs that use the HTTP API. Master keys have another command, `keys`."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated, Final, Literal

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
from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.moment import iso
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookmill.client.types import KeyJson

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
    role: Annotated[
        Literal["viewer", "manager", "admin"],
        typer.Option(help="viewer: read; manager: read and change; admin: everything in the team."),
    ],
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
    if factory is None and role != "admin":
        factory = "default"
    expires_at = iso(time.time_ns() // 1000 + expires_in_days * DAY_US) if expires_in_days is not None else None
    with connected() as client:
        key = client.create_key(name=name, role=role, factory=factory, expires_at=expires_at)
    token = key["token"]
    if json:
        print_json(key)
        return
    until = f"until {utc_with_zone(expires_at)}" if expires_at is not None else "until it is revoked"
    print_line(f"API key {shown(key['name'])} is ready. It gives access to {_scope_text(key)}, {until}.")
    print_line()
    print_fields([("ID", key["key_id"]), ("Token", token)])
    print_line()
    print_line("Save the token now: it is not shown again. To try it:")
    print_line()
    print_line(shlex.join(["curl", "-H", f"Authorization: Bearer {token}", f"{key['api_url']}/me"]))


@commands.command("list")
def list_keys(json: options.AsJson = False) -> None:
    """List the API keys, newest first, with revoked and expired ones."""
    with connected() as client:
        keys = list(client.list_keys())
    if json:
        print_json({"items": keys})
        return
    if not keys:
        print_line(f"There are no API keys yet. Create one: {command_line('key create NAME --role viewer')}")
        return
    now = iso(time.time_ns() // 1000)
    print_table(
        [
            Column("KEY", no_wrap=True),
            Column("NAME", moves_below_if_narrow=True),
            Column("ACCESS"),
            Column("STATE", no_wrap=True),
            Column("LAST USED", no_wrap=True),
        ],
        [
            (key["key_id"], key["name"], _scope_text(key), _state_text(key, now), utc(key["last_used_at"])[:10])
            for key in keys
        ],
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
    with connected() as client:
        key = _find_key(list(client.list_keys()), name_or_id)
        # For a revoked key, the command is refused in any case, so no question is asked.
        if key["revoked_at"] is None and not yes:
            confirm(f"Revoke API key {key['name']} ({key['key_id']})? Its requests get 401 permanently.")
        revoked = client.revoke_key(key["key_id"])
    if json:
        print_json(revoked)
        return
    print_line(f"API key {shown(revoked['name'])} ({revoked['key_id']}) is revoked. Its requests get 401.")


def _find_key(keys: Sequence[KeyJson], name_or_id: str) -> KeyJson:
    """The key with this id or name; an active key before revoked ones.

    Raises `NotFound`, and `Conflict` if several active keys have the name.
    """
    if (key := next((key for key in keys if key["key_id"] == name_or_id), None)) is not None:
        return key
    same_name = [key for key in keys if key["name"] == name_or_id]
    active = [key for key in same_name if key["revoked_at"] is None]
    if len(active) > 1:
        ids = ", ".join(key["key_id"] for key in active)
        raise Conflict(f"{len(active)} keys are named {name_or_id!r}. Give the id of one of them: {ids}.")
    if not same_name:
        raise NotFound(f"There is no key {name_or_id[:100]!r}. `hookmill key list` shows them.")
    return (active or same_name)[0]


def _scope_text(key: KeyJson) -> str:
    if key["factory"] is None:
        return "all factories, as admin"
    return f"factory {shown(key['factory'])}, as {key['role']}"


def _state_text(key: KeyJson, now: str) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    if key["expires_at"] is None:
        return "active"
    day = utc(key["expires_at"])[:10]
    return f"until {day}" if now < key["expires_at"] else f"expired {day}"
