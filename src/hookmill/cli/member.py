"""`hookmill member`: the members of the team and their roles."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hookmill.cli import inputs, options
from hookmill.cli.output import Column, command_line, confirm, print_json, print_line, print_table
from hookmill.cli.session import team_session
from hookmill.domain.permission import Role
from hookmill.domain.text import shown
from hookmill.presentation.member import MemberView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.domain.member import Member
    from hookmill.domain.secret import SecretValue

commands = typer.Typer(no_args_is_help=True, help="Members of the team and their roles.")

MemberArgument = Annotated[
    str, typer.Argument(metavar="EMAIL", help="The member's email address or id.", show_default=False)
]


class RoleOrNone(StrEnum):
    VIEWER = "viewer"
    MANAGER = "manager"
    NONE = "none"


class OnOrOff(StrEnum):
    ON = "on"
    OFF = "off"


@commands.command()
def add(
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="The email address.", show_default=False)],
    name: Annotated[str, typer.Option(metavar="NAME", help="The person's name.", show_default=False)],
    admin: Annotated[
        bool, typer.Option("--admin", help="Make them an admin, who may do everything in every factory.")
    ] = False,
    json: options.AsJson = False,
) -> None:
    """Add a member to the team. Sends nothing to them."""
    with team_session() as session:
        member = session.management.members.add(session.may, email, name, is_admin=admin)
    if json:
        print_json(MemberView.of(member))
        return
    if member.is_admin:
        print_line(f"{_name_and_email(member)} is now an admin of the team, who may do everything in every factory.")
    else:
        role_command = command_line(f"member role {shlex.quote(member.email)} viewer")
        print_line(f"{_name_and_email(member)} is now a member without a role. To give them a role in a factory:")
        print_line(f"  {role_command}  # or manager; --factory NAME for another factory")
    print_line("To let them sign in to the dashboard:")
    print_line(f"  {command_line(f'member link {shlex.quote(member.email)}')}")


@commands.command("list")
def list_members(json: options.AsJson = False) -> None:
    """List the members and their roles."""
    with team_session() as session:
        members = session.management.members.all(session.may)
    if json:
        print_json({"items": [MemberView.of(member) for member in members]})
        return
    if not members:
        print_line(f"The team has no members yet. Add one: {command_line('member add EMAIL --name NAME')}")
        return
    print_table(
        [Column("EMAIL"), Column("NAME"), Column("SIGN-IN"), Column("ROLES")],
        [(member.email, member.name, member.sign_in_method or "none", _roles_text(member)) for member in members],
    )


@commands.command("role")
def set_role(
    email_or_id: MemberArgument,
    role: Annotated[RoleOrNone, typer.Argument(metavar="ROLE", help="The role; none removes it.", show_default=False)],
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Set a member's role in one factory. A viewer may read, a manager may also change."""
    new_role = Role(role.value) if role is not RoleOrNone.NONE else None
    with team_session() as session:
        member = session.management.members.set_role(session.may, email_or_id, factory, new_role)
    if json:
        print_json(MemberView.of(member))
        return
    role_text = f"{_role_with_article(new_role)} in" if new_role is not None else "without a role in"
    admin_note = " As an admin, they may still do everything." if member.is_admin else ""
    print_line(f"{_name_and_email(member)} is now {role_text} factory {shown(factory)}.{admin_note}")


@commands.command("admin")
def set_admin(
    email_or_id: MemberArgument,
    state: Annotated[OnOrOff, typer.Argument(help="on makes them an admin, off ends it.", show_default=False)],
    json: options.AsJson = False,
) -> None:
    """Make a member an admin of the team, or end that. An admin may do everything."""
    with team_session() as session:
        member = session.management.members.set_admin(session.may, email_or_id, state is OnOrOff.ON)
    if json:
        print_json(MemberView.of(member))
        return
    if member.is_admin:
        print_line(f"{_name_and_email(member)} is an admin, who may do everything in every factory.")
        return
    print_line(f"{_name_and_email(member)} is not an admin. Their roles: {_roles_text(member)}.")


@commands.command()
def link(email_or_id: MemberArgument, json: options.AsJson = False) -> None:
    """Print a link with which a member signs in and sets a password. It is for the dashboard, and is shown once."""
    with team_session() as session:
        member = session.management.members.get(session.may, email_or_id)
        url = sign_in_url(
            session.settings.public_url(), session.management.sessions.create_link(session.may, member.id)
        )
    if json:
        print_json({"member_id": member.id, "url": url})
        return
    print_line(
        f"Send this link to {_name_and_email(member)}. It works once, for a day, and replaces the previous link:"
    )
    print_line()
    print_line(url)


@commands.command()
def remove(email_or_id: MemberArgument, yes: options.Yes = False, json: options.AsJson = False) -> None:
    """Remove a member from the team. They lose all access immediately."""
    inputs.require_yes_with_json(json, yes)
    with team_session() as session:
        member = session.management.members.get(session.may, email_or_id)
        if not yes:
            confirm(f"Remove {member.name} ({member.email}) from the team?")
        member = session.management.members.remove(session.may, member.id)
    if json:
        print_json(plain(MemberView.of(member)) | {"removed": True})
        return
    print_line(f"{_name_and_email(member)} is removed from the team, and has no access.")


def sign_in_url(public_url: str, token: SecretValue) -> str:
    """The link: the dashboard's URL with the token."""
    return f"{public_url}/welcome/{token.reveal()}"


def _name_and_email(member: Member) -> str:
    return f"{shown(member.name)} ({shown(member.email)})"


def _roles_text(member: Member) -> str:
    if member.is_admin:
        return "admin of the team"
    return ", ".join(f"{shown(factory)}: {role.value}" for factory, role in sorted(member.roles.items())) or "none"


def _role_with_article(role: Role) -> str:
    return f"{'an' if role is Role.ADMIN else 'a'} {role.value}"
