"""`hookmill member`: the members of the team and their roles."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hookmill.cli import inputs, options
from hookmill.cli.connection import connected
from hookmill.cli.output import Column, command_line, confirm, print_json, print_line, print_table
from hookmill.domain.errors import NotFound
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.client import Client
    from hookmill.client.types import MemberJson

commands = typer.Typer(no_args_is_help=True, help="Members of the team and their roles.")

MemberArgument = Annotated[
    str, typer.Argument(metavar="EMAIL", help="The member's email address or id.", show_default=False)
]


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
    with connected() as client:
        member = client.add_member(email=email, name=name, is_admin=admin)
    if json:
        print_json(member)
        return
    address = shlex.quote(member["email"])
    if member["is_admin"]:
        print_line(f"{_name_and_email(member)} is now an admin of the team, who may do everything in every factory.")
    else:
        role_command = command_line(f"member role {address} viewer")
        print_line(f"{_name_and_email(member)} is now a member without a role. To give them a role in a factory:")
        print_line(f"  {role_command}  # or manager; --factory NAME for another factory")
    print_line("To let them sign in to the dashboard:")
    print_line(f"  {command_line(f'member link {address}')}")


@commands.command("list")
def list_members(json: options.AsJson = False) -> None:
    """List the members and their roles."""
    with connected() as client:
        members = list(client.list_members())
    if json:
        print_json({"items": members})
        return
    if not members:
        print_line(f"The team has no members yet. Add one: {command_line('member add EMAIL --name NAME')}")
        return
    print_table(
        [Column("EMAIL"), Column("NAME"), Column("SIGN-IN"), Column("ROLES")],
        [
            (member["email"], member["name"], member["sign_in_method"] or "none", _roles_text(member))
            for member in members
        ],
    )


@commands.command("role")
def set_role(
    email_or_id: MemberArgument,
    role: Annotated[
        Literal["viewer", "manager", "none"],
        typer.Argument(metavar="ROLE", help="The role; none removes it.", show_default=False),
    ],
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Set a member's role in one factory. A viewer may read, a manager may also change."""
    with connected() as client:
        member_id = _find_member(client, email_or_id)["member_id"]
        if role == "none":
            member = client.take_role(member_id, factory)
        else:
            member = client.give_role(member_id, factory, role=role)
    if json:
        print_json(member)
        return
    role_text = f"a {role} in" if role != "none" else "without a role in"
    admin_note = " As an admin, they may still do everything." if member["is_admin"] else ""
    print_line(f"{_name_and_email(member)} is now {role_text} factory {shown(factory)}.{admin_note}")


@commands.command("admin")
def set_admin(
    email_or_id: MemberArgument,
    state: Annotated[
        Literal["on", "off"], typer.Argument(help="on makes them an admin, off ends it.", show_default=False)
    ],
    json: options.AsJson = False,
) -> None:
    """Make a member an admin of the team, or end that. An admin may do everything."""
    with connected() as client:
        member_id = _find_member(client, email_or_id)["member_id"]
        member = client.change_member(member_id, is_admin=state == "on")
    if json:
        print_json(member)
        return
    if member["is_admin"]:
        print_line(f"{_name_and_email(member)} is an admin, who may do everything in every factory.")
        return
    print_line(f"{_name_and_email(member)} is not an admin. Their roles: {_roles_text(member)}.")


@commands.command()
def link(email_or_id: MemberArgument, json: options.AsJson = False) -> None:
    """Print a link with which a member signs in and sets a password. It is for the dashboard, and is shown once."""
    with connected() as client:
        member = _find_member(client, email_or_id)
        sign_in_link = client.create_sign_in_link(member["member_id"])
    if json:
        print_json(sign_in_link)
        return
    print_line(
        f"Send this link to {_name_and_email(member)}. It works once, for a day, and replaces the previous link:"
    )
    print_line()
    print_line(sign_in_link["url"])


@commands.command()
def remove(email_or_id: MemberArgument, yes: options.Yes = False, json: options.AsJson = False) -> None:
    """Remove a member from the team. They lose all access immediately."""
    inputs.require_yes_with_json(json, yes)
    with connected() as client:
        member = _find_member(client, email_or_id)
        if not yes:
            confirm(f"Remove {member['name']} ({member['email']}) from the team?")
        client.remove_member(member["member_id"])
    if json:
        print_json({**member, "removed": True})
        return
    print_line(f"{_name_and_email(member)} is removed from the team, and has no access.")


def _find_member(client: Client, email_or_id: str) -> MemberJson:
    """The member with this id or address. Raises `NotFound`."""
    email = email_or_id.strip().lower()
    for member in client.list_members():
        if email_or_id == member["member_id"] or email == member["email"]:
            return member
    raise NotFound(f"There is no member {email_or_id[:100]!r}. `hookmill member list` shows them.")


def _name_and_email(member: MemberJson) -> str:
    return f"{shown(member['name'])} ({shown(member['email'])})"


def _roles_text(member: MemberJson) -> str:
    if member["is_admin"]:
        return "admin of the team"
    return ", ".join(f"{shown(factory)}: {role}" for factory, role in member["roles"].items()) or "none"
