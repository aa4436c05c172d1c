"""An API key as JSON. Its token is shown once, when the key is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from hookmill.domain.moment import iso, iso_or_none
from hookmill.domain.permission import Role
from hookmill.presentation.view import Timestamp, View

if TYPE_CHECKING:
    from hookmill.domain.api_key import ApiKey
    from hookmill.management import KeyWithToken


class KeyView(View, frozen=True):
    """An API key without its token, which is never shown again."""

    key_id: str
    name: str
    role: Role
    factory: Annotated[str | None, Meta(description="Null for an admin's key, which is valid for the whole team.")]
    created_at: Timestamp
    expires_at: Timestamp | None
    revoked_at: Timestamp | None
    last_used_at: Annotated[Timestamp | None, Meta(description="To the minute.")]

    @classmethod
    def of(cls, key: ApiKey) -> Self:
        return cls(
            key_id=key.id,
            name=key.name,
            role=key.role,
            factory=key.factory_name,
            created_at=iso(key.created_at),
            expires_at=iso_or_none(key.expires_at),
            revoked_at=iso_or_none(key.revoked_at),
            last_used_at=iso_or_none(key.last_used_at),
        )


class KeyWithTokenView(KeyView, frozen=True):
    """An API key with its token, which is shown only once."""

    token: str
    api_url: Annotated[str, Meta(description="The URL of the API, for which the token is.")]

    @classmethod
    def showing_secret(cls, key_with_token: KeyWithToken, public_url: str) -> Self:
        return KeyView.of(key_with_token.key).extended(
            cls, token=key_with_token.token.reveal(), api_url=f"{public_url}/api/v1"
        )
