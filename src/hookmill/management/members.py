"""Operations on the team's people, and the roles that they hold in its factories."""

import re
from collections.abc import Sequence
from typing import Final

from hookmill.domain.errors import Conflict, Invalid, NotFound
from hookmill.domain.member import Member
from hookmill.domain.permission import MayAdminister, Role
from hookmill.domain.webhook import usable_name
from hookmill.management.installation import Installation, random_name
from hookmill.store import factories, members
from hookmill.store.database import Transaction

# Whether an address works shows when something is sent to it; this only keeps out what can't be one.
_ADDRESS: Final = re.compile(r"[^@\s\x00-\x20\x7f]{1,64}@[^@\s\x00-\x20\x7f]{1,190}\Z")


class Members:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def add(self, may: MayAdminister, email: str, name: str, *, is_admin: bool = False) -> Member:
        """Somebody new in the team, with no role yet. Raises `Conflict` for an address that is there already."""
        email = usable_address(email)
        name = usable_name("member", name)
        with self._at.changing(may) as change:
            if members.by_email(change.tx, may.team_id, email) is not None:
                raise Conflict(f"{email} is a member already.")
            member = Member(
                id=random_name("mbr"),
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
        with self._at.reading() as tx:
            return members.present(tx, may.team_id)

    def get(self, may: MayAdminister, named: str) -> Member:
        """The member with this id or address. Raises `NotFound`."""
        with self._at.reading() as tx:
            return self._member(tx, may, named)

    def set_role(self, may: MayAdminister, named: str, factory_name: str, role: Role | None) -> Member:
        """Their role in one factory from now on; None takes it away. Raises `NotFound`, and `Invalid` for admin."""
        if role is Role.ADMIN:
            raise Invalid("Admin is no role in one factory: it is over the whole team.", pointer="/role")
        with self._at.changing(may) as change:
            member = self._member(change.tx, may, named)
            factory = factories.factory_named(change.tx, factory_name)
            if factory is None or factory.team_id != may.team_id:
                raise NotFound(f"There is no factory {factory_name[:100]!r}.")
            members.set_role(change.tx, member.id, factory.id, role)
            said = role.value if role is not None else None
            change.record("set_role", "member", member.id, member.email, factory=factory.name, role=said)
            return self._member(change.tx, may, member.id)

    def set_admin(self, may: MayAdminister, named: str, is_admin: bool) -> Member:
        """Raises `Conflict` when the team would be left without an admin."""
        with self._at.changing(may) as change:
            member = self._member(change.tx, may, named)
            if member.is_admin == is_admin:
                change.nothing()
                return member
            if not is_admin:
                self._refuse_the_last_admin(change.tx, may, member)
            members.set_admin(change.tx, member.id, is_admin)
            change.record("set_admin", "member", member.id, member.email, is_admin=is_admin)
            return self._member(change.tx, may, member.id)

    def remove(self, may: MayAdminister, named: str) -> Member:
        """They may do nothing from the moment this returns. Raises `Conflict` for the last admin."""
        with self._at.changing(may) as change:
            member = self._member(change.tx, may, named)
            self._refuse_the_last_admin(change.tx, may, member)
            members.remove(change.tx, member.id, change.now)
            change.record("remove", "member", member.id, member.email)
        return member

    def _member(self, tx: Transaction, may: MayAdminister, named: str) -> Member:
        member = members.by_id(tx, may.team_id, named) or members.by_email(tx, may.team_id, named.strip().lower())
        if member is None:
            raise NotFound(f"There is no member {named[:100]!r}. `hookmill member list` shows them.")
        return member

    def _refuse_the_last_admin(self, tx: Transaction, may: MayAdminister, member: Member) -> None:
        admins = [each for each in members.present(tx, may.team_id) if each.is_admin]
        if [each.id for each in admins] == [member.id]:
            raise Conflict(f"{member.email} is the team's only admin. Make somebody else an admin first.")


def usable_address(email: str) -> str:
    """The e-mail address, trimmed and in lower case. Raises `Invalid` for what can't be one."""
    trimmed = email.strip().lower()
    if not _ADDRESS.match(trimmed) or not trimmed.isprintable():
        raise Invalid(f"{email[:100]!r} is not an e-mail address. It looks like ada@example.com.", pointer="/email")
    return trimmed
