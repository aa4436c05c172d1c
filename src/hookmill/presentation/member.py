"""A member of the team as JSON, and how a member signs in, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from hookmill.domain.external_identity import SignInMethod
from hookmill.domain.moment import iso
from hookmill.domain.permission import Role
from hookmill.presentation.view import Timestamp, View

if TYPE_CHECKING:
    from hookmill.domain.external_identity import ExternalSignIn
    from hookmill.domain.member import Member
    from hookmill.domain.secret import SecretValue


class MemberView(View, frozen=True):
    member_id: str
    email: str
    name: str
    is_admin: bool
    roles: Annotated[dict[str, Role], Meta(description="The role in each factory, by its name.")]
    created_at: Timestamp
    sign_in_method: Annotated[
        SignInMethod | None, Meta(description="Null before the member has chosen a password or connected an identity.")
    ]
    oidc_issuer: Annotated[str | None, Meta(description="The issuer of the member's identity at OpenID Connect.")]
    oidc_subject: Annotated[str | None, Meta(description="The subject of this identity.")]

    @classmethod
    def of(cls, member: Member) -> Self:
        return cls(
            member_id=member.id,
            email=member.email,
            name=member.name,
            is_admin=member.is_admin,
            roles=dict(sorted(member.roles.items())),
            created_at=iso(member.created_at),
            sign_in_method=member.sign_in_method,
            oidc_issuer=member.identity.issuer if member.identity is not None else None,
            oidc_subject=member.identity.subject if member.identity is not None else None,
        )


class SignInLinkView(View, frozen=True):
    """A link with which a member signs in to the dashboard once, within a day."""

    member_id: str
    url: Annotated[str, Meta(description="Shown only once.")]


def sign_in_url(public_url: str, token: SecretValue) -> str:
    """The link: the dashboard's URL with the token."""
    return f"{public_url}/welcome/{token.reveal()}"


def sign_in_text(member: Member, rules: ExternalSignIn | None) -> str:
    """What the member signs in with. `rules`: those of the installation's provider, if it has one."""
    if member.identity is not None:
        return rules.provider_name if rules is not None and rules.is_issuer_of(member.identity) else "another issuer"
    return "a password" if member.has_password else "nothing yet"
