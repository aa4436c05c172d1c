"""Operations on the team's members, and on their roles in its factories."""

import re
from collections.abc import Sequence
from typing import Final

from hookmill.domain.errors import Conflict, Invalid, NotFound
from hookmill.domain.member import Member
from hookmill.domain.name import usable_name
from hookmill.domain.permission import MayAdminister, Role
from hookmill.management.installation import Operations, random_id
from hookmill.management.lookup import factory_named
from hookmill.store import members
from hookmill.store.database import Transaction

# Rejects only what can't be an address. Only a sent message could show that an address works.
_ADDRESS: Final = re.compile(r"[^@\s\x00-\x20\x7f]{1,64}@[^@\s\x00-\x20\x7f]{1,190}\Z")


class Members(Operations):
    def add(self, may: MayAdminister, email: str, name: str, *, is_admin: bool = False) -> Member:
        """Add a member, with no role in a factory yet. Raises `Invalid`, and `Conflict` if a member has the address."""
        email = usable_address(email)
        name = usable_name("member", name)
        with self._installation.changing(may, needs_disk_space=True) as change:
            if members.by_email(change.tx, may.team_id, email) is not None:
                raise Conflict(f"{email} is already a member.")
            member = Member(
                id=random_id("mbr"),
                team_id=may.team_id,
                email=email,
                name=name,
                is_admin=is_admin,
                created_at=change.now,
            )
            members.add(change.tx, member)
            change.record("add", "member", member.id, email, is_admin=is_admin)
        return member

    def all(self, may: MayAdminister) -> Sequence[Member]:
        with self._installation.reading() as tx:
            return members.of_team(tx, may.team_id)

    def get(self, may: MayAdminister, id_or_email: str) -> Member:
        """The member with this id or address. Raises `NotFound`."""
        with self._installation.reading() as tx:
            return member_of(tx, may, id_or_email)

    def set_role(self, may: MayAdminister, id_or_email: str, factory_name: str, role: Role | None) -> Member:
        """Set the member's role in one factory; None removes it.

        Raises `NotFound`, `Invalid` for admin, and `Conflict` if groups at the provider decide the member's roles.
        """
        if role is Role.ADMIN:
            raise Invalid(
                "Admin is not a role in a factory, but in the whole team. Make the member an admin instead.",
                pointer="/role",
            )
        with self._installation.changing(may) as change:
            member = member_of(change.tx, may, id_or_email)
            self._refuse_assigned_roles(member)
            factory = factory_named(change.tx, may, factory_name)
            members.set_role(change.tx, member.id, factory.id, role)
            role_name = role.value if role is not None else None
            change.record("set_role", "member", member.id, member.email, factory=factory.name, role=role_name)
            return member_of(change.tx, may, member.id)

    def set_admin(self, may: MayAdminister, id_or_email: str, is_admin: bool) -> Member:
        """Make the member an admin, or remove that role.

        Raises `Conflict` if the team would have no admin, or if groups at the provider decide the member's roles.
        """
        with self._installation.changing(may) as change:
            member = member_of(change.tx, may, id_or_email)
            if member.is_admin == is_admin:
                change.skip_audit()
                return member
            self._refuse_assigned_roles(member)
            if not is_admin:
                self._refuse_last_admin(change.tx, may, member)
            members.set_admin(change.tx, member.id, is_admin)
            change.record("set_admin", "member", member.id, member.email, is_admin=is_admin)
            return member_of(change.tx, may, member.id)

    def remove(self, may: MayAdminister, id_or_email: str) -> Member:
        """Remove the member, whose sessions end. Raises `Conflict` for the team's only admin."""
        with self._installation.changing(may) as change:
            member = member_of(change.tx, may, id_or_email)
            self._refuse_last_admin(change.tx, may, member)
            members.remove(change.tx, member.id, change.now)
            change.record("remove", "member", member.id, member.email)
        return member

    def _refuse_assigned_roles(self, member: Member) -> None:
        rules = self._installation.config.external_sign_in
        if rules is not None and rules.assigns_roles_of(member.identity):
            raise Conflict(
                f"{member.email} signs in with {rules.provider_name}, whose groups decide the roles. Nothing was "
                "changed. Change the groups there, or the settings oidc_roles and oidc_admin_groups."
            )

    def _refuse_last_admin(self, tx: Transaction, may: MayAdminister, member: Member) -> None:
        admin_ids = [admin.id for admin in members.of_team(tx, may.team_id) if admin.is_admin]
        if admin_ids == [member.id]:
            raise Conflict(f"{member.email} is the team's only admin. Make another member an admin first.")


def member_of(tx: Transaction, may: MayAdminister, id_or_email: str) -> Member:
    """The team's member with this id or address. Raises `NotFound`."""
    member = members.by_id(tx, may.team_id, id_or_email) or members.by_email(
        tx, may.team_id, id_or_email.strip().lower()
    )
    if member is None:
        raise NotFound(f"There is no member {id_or_email[:100]!r}. `hookmill member list` shows them.")
    return member


def usable_address(email: str) -> str:
    """The e-mail address, trimmed and in lower case. Raises `Invalid` for what can't be one."""
    trimmed = email.strip().lower()
    if not _ADDRESS.match(trimmed) or not trimmed.isprintable():
        raise Invalid(f"{email[:100]!r} is not an e-mail address. Write one such as ada@example.com.", pointer="/email")
    return trimmed
