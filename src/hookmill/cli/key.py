"""`hookmill key`: API keys, which programs use the HTTP API with. The master keys are another command, `keys`."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hookmill.cli import given, options
from hookmill.cli.output import Column, as_json, call, confirmed, fields, line, table, utc
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
    help="API keys, for programs that use the HTTP API. The master keys, which seal secrets, are `hookmill keys`.",
)

DAY_US: Final = 86_400_000_000


@commands.command()
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What uses it, for people to know it by.", show_default=False)
    ],
    role: Annotated[
        Role, typer.Option(help="viewer looks, manager changes things too, admin may do everything in the team.")
    ],
    factory: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The one factory it opens; default, unless given. An admin's opens all."),
    ] = None,
    expires_in_days: Annotated[
        int | None, typer.Option(min=1, max=3650, metavar="N", help="Let it expire. Without this it never does.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Create an API key. Its token is printed now, and never again."""
    if factory is None and role is not Role.ADMIN:
        factory = "default"
    expires_at = time.time_ns() // 1000 + expires_in_days * DAY_US if expires_in_days is not None else None
    with team_session() as here:
        made = here.management.keys.create(here.may, name, role, factory=factory, expires_at=expires_at)
        base = here.settings.public_url()
    token = made.token.reveal()
    if json:
        as_json(KeyWithTokenView.once(made))
        return
    until = f"until {utc(expires_at)} UTC" if expires_at is not None else "until it is revoked"
    line(f"API key {shown(made.key.name)} is ready. It opens {_opens(made.key)}, {until}.")
    line()
    fields([("ID", made.key.id), ("Token", token)])
    line()
    line("Keep the token now: it is not shown again. To try it:")
    line()
    line(shlex.join(["curl", "-H", f"Authorization: Bearer {token}", f"{base}/api/v1/me"]))


@commands.command("list")
def list_keys(json: options.AsJson = False) -> None:
    """List the API keys, newest first. Revoked and expired ones too."""
    with team_session() as here:
        found = here.management.keys.all(here.may)
    if json:
        as_json({"keys": [KeyView.of(key) for key in found]})
        return
    if not found:
        line(f"There are no API keys yet. Create one: {call('key create NAME --role viewer')}")
        return
    now = time.time_ns() // 1000
    table(
        [
            Column("KEY", whole=True),
            Column("NAME", stacked=True),
            Column("OPENS"),
            Column("STATE", whole=True),
            Column("LAST USED", whole=True),
        ],
        [(key.id, key.name, _opens(key), _state(key, now), utc(key.last_used_at)[:10]) for key in found],
    )


@commands.command()
def revoke(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Its id, key_…, or a name that no other has.", show_default=False)
    ],
    yes: options.Yes = False,
    json: options.AsJson = False,
) -> None:
    """End an API key for ever. Programs that use it get 401 from now on."""
    given.agreed_beforehand(json, yes)
    with team_session() as here:
        meant = _meant(here.management.keys.all(here.may), key)
        # One that is unknown, or revoked before, is refused anyway: nobody should have to answer for that.
        if meant is not None and meant.revoked_at is None and not yes:
            confirmed(f"Revoke API key {meant.name} ({meant.id})? Programs that use it get 401 for ever.")
        revoked = here.management.keys.revoke(here.may, meant.id if meant is not None else key)
    if json:
        as_json(KeyView.of(revoked))
        return
    line(f"API key {shown(revoked.name)} ({revoked.id}) is revoked, and opens nothing any more.")


def _meant(every: Sequence[ApiKey], named: str) -> ApiKey | None:
    """The key with this id, or the one with this name. Raises `Conflict` where several that are not revoked have it."""
    if (known := next((key for key in every if key.id == named), None)) is not None:
        return known
    of_that_name = [key for key in every if key.name == named]
    standing = [key for key in of_that_name if key.revoked_at is None]
    if len(standing) > 1:
        ids = ", ".join(key.id for key in standing)
        raise Conflict(f"{len(standing)} keys are named {named!r}. Give the id of the one that you mean: {ids}.")
    return next(iter([*standing, *of_that_name]), None)


def _opens(key: ApiKey) -> str:
    if key.factory_name is None:
        return "everything, as admin"
    return f"factory {shown(key.factory_name)}, as {key.role.value}"


def _state(key: ApiKey, now: int) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "good"
    day = utc(key.expires_at)[:10]
    return f"until {day}" if key.is_good(now) else f"expired {day}"
