"""A member of the team as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from hookmill.domain.moment import iso
from hookmill.domain.permission import Role
from hookmill.presentation.view import Timestamp, View

if TYPE_CHECKING:
    from hookmill.domain.member import Member


class MemberView(View, frozen=True):
    member_id: str
    email: str
    name: str
    is_admin: bool
    roles: Annotated[dict[str, Role], Meta(description="The role in each factory, by its name.")]
    created_at: Timestamp

    @classmethod
    def of(cls, member: Member) -> Self:
        return cls(
            member_id=member.id,
            email=member.email,
            name=member.name,
            is_admin=member.is_admin,
            roles=dict(sorted(member.roles.items())),
            created_at=iso(member.created_at),
        )
