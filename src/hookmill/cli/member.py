"""`hookmill member`: the team's people, and what each of them may do."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hookmill.cli import given, options
from hookmill.cli.output import Column, as_json, call, confirmed, line, table
from hookmill.cli.session import team_session
from hookmill.domain.permission import Role
from hookmill.domain.text import shown
from hookmill.presentation.member import MemberView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.domain.member import Member
    from hookmill.domain.secret import SecretValue

commands = typer.Typer(no_args_is_help=True, help="Members: the team's people, and what each may do.")

Who = Annotated[str, typer.Argument(metavar="EMAIL", help="Their address, or the member's id.", show_default=False)]


class RoleOrNone(StrEnum):
    VIEWER = "viewer"
    MANAGER = "manager"
    NONE = "none"


class OnOrOff(StrEnum):
    ON = "on"
    OFF = "off"


@commands.command()
def add(
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="Their address.", show_default=False)],
    name: Annotated[str, typer.Option(metavar="NAME", help="What they are called.", show_default=False)],
    admin: Annotated[bool, typer.Option("--admin", help="They may do everything, in every factory.")] = False,
    json: options.AsJson = False,
) -> None:
    """Add somebody to the team. Nothing is sent to them."""
    with team_session() as here:
        member = here.management.members.add(here.may, email, name, is_admin=admin)
    if json:
        as_json(MemberView.of(member))
        return
    if member.is_admin:
        line(f"{_called(member)} is a member now, and an admin: they may do everything, in every factory.")
    else:
        line(f"{_called(member)} is a member now, with no role yet. To give one in a factory:")
        line(
            f"  {call(f'member role {shlex.quote(member.email)} viewer')}  # or manager; --factory NAME for another one"
        )
    line("To let them sign in to the dashboard:")
    line(f"  {call(f'member link {shlex.quote(member.email)}')}")


@commands.command("list")
def list_members(json: options.AsJson = False) -> None:
    """List the team's people and their roles."""
    with team_session() as here:
        found = here.management.members.all(here.may)
    if json:
        as_json({"members": [MemberView.of(member) for member in found]})
        return
    if not found:
        line(f"The team has no members yet. Add one: {call('member add EMAIL --name NAME')}")
        return
    table(
        [Column("EMAIL"), Column("NAME"), Column("MAY")],
        [(member.email, member.name, _may(member)) for member in found],
    )


@commands.command("role")
def set_role(
    email: Who,
    role: Annotated[RoleOrNone, typer.Argument(help="none takes it away.", show_default=False)],
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Set somebody's role in one factory. A viewer looks, a manager changes things too."""
    wanted = Role(role.value) if role is not RoleOrNone.NONE else None
    with team_session() as here:
        member = here.management.members.set_role(here.may, email, factory, wanted)
    if json:
        as_json(MemberView.of(member))
        return
    what = f"{_article(wanted)} in" if wanted is not None else "without a role in"
    still = " They are an admin, who may do everything anyway." if member.is_admin else ""
    line(f"{_called(member)} is now {what} factory {shown(factory)}.{still}")


@commands.command("admin")
def set_admin(
    email: Who,
    state: Annotated[OnOrOff, typer.Argument(help="Whether they are one.", show_default=False)],
    json: options.AsJson = False,
) -> None:
    """Make somebody an admin of the team, or end that. An admin may do everything."""
    with team_session() as here:
        member = here.management.members.set_admin(here.may, email, state is OnOrOff.ON)
    if json:
        as_json(MemberView.of(member))
        return
    if member.is_admin:
        line(f"{_called(member)} is an admin: they may do everything, in every factory.")
        return
    line(f"{_called(member)} is no admin. They may: {_may(member)}.")


@commands.command()
def link(email: Who, json: options.AsJson = False) -> None:
    """Make a link for choosing a password for the dashboard. Their first, or a new one; it is shown once."""
    with team_session() as here:
        member = here.management.members.get(here.may, email)
        url = sign_in_url(here.settings.public_url(), here.management.sessions.link_for(here.may, member.id))
    if json:
        as_json({"member_id": member.id, "url": url})
        return
    line(f"Hand this to {_called(member)}. It works once, for a day, and replaces the one before:")
    line()
    line(url)


@commands.command()
def remove(email: Who, yes: options.Yes = False, json: options.AsJson = False) -> None:
    """Remove somebody from the team. They may do nothing from now on."""
    given.agreed_beforehand(json, yes)
    with team_session() as here:
        member = here.management.members.get(here.may, email)
        if not yes:
            confirmed(f"Remove {member.name} ({member.email}) from the team?")
        member = here.management.members.remove(here.may, member.id)
    if json:
        as_json(plain(MemberView.of(member)) | {"removed": True})
        return
    line(f"{_called(member)} is removed, and may do nothing any more.")


def sign_in_url(public_url: str, token: SecretValue) -> str:
    """Where the dashboard takes a link's token."""
    return f"{public_url}/welcome/{token.reveal()}"


def _called(member: Member) -> str:
    return f"{shown(member.name)} ({shown(member.email)})"


def _may(member: Member) -> str:
    if member.is_admin:
        return "everything: admin of the team"
    return ", ".join(f"{shown(factory)}: {role.value}" for factory, role in sorted(member.roles.items())) or "nothing"


def _article(role: Role) -> str:
    return f"{'an' if role is Role.ADMIN else 'a'} {role.value}"
