"""Operations on API keys. A key's token is shown when it is created, and only its digest is stored."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from hookmill.domain.api_key import ApiKey
from hookmill.domain.errors import Conflict, Invalid, NotFound
from hookmill.domain.moment import is_in_calendar
from hookmill.domain.name import usable_name
from hookmill.domain.permission import MayAdminister, Role
from hookmill.domain.secret import SecretValue, generate_value
from hookmill.management.access import TOKEN_PREFIX, token_digest
from hookmill.management.installation import Operations, random_id
from hookmill.management.lookup import factory_named
from hookmill.store import api_keys
from hookmill.store.database import Transaction


@dataclass(frozen=True, slots=True)
class KeyWithToken:
    """A new key with its token, which is shown only once."""

    key: ApiKey
    token: SecretValue


class Keys(Operations):
    def create(
        self,
        may: MayAdminister,
        name: str,
        role: Role,
        *,
        factory: str | None = None,
        expires_at: int | None = None,
    ) -> KeyWithToken:
        """Create a key. A key for a viewer or manager needs `factory`, the factory's name; an admin's key has none.

        `expires_at` is in µs since 1970. Raises `Invalid` if the role and factory don't fit or the time is invalid, and
        `NotFound` for an unknown factory.
        """
        name = usable_name("key", name)
        if role is Role.ADMIN and factory is not None:
            raise Invalid("An admin's key is for the whole team. Omit the factory.", pointer="/factory")
        if role is not Role.ADMIN and factory is None:
            raise Invalid(f"A {role.value}'s key is for one factory. Name the factory.", pointer="/factory")
        if expires_at is not None and expires_at <= self._installation.now():
            raise Invalid("The key would already be expired. Choose a time in the future.", pointer="/expires_at")
        if expires_at is not None and not is_in_calendar(expires_at):
            raise Invalid(
                "The key would expire after the year 9999. If it should never expire, omit the time.",
                pointer="/expires_at",
            )
        token = SecretValue(TOKEN_PREFIX + generate_value(os.urandom(32)).reveal())
        with self._installation.changing(may, needs_disk_space=True) as change:
            key_factory = factory_named(change.tx, may, factory) if factory is not None else None
            key = ApiKey(
                id=random_id("key"),
                team_id=may.team_id,
                factory_id=key_factory.id if key_factory is not None else None,
                factory_name=factory,
                role=role,
                name=name,
                created_at=change.now,
                expires_at=expires_at,
                revoked_at=None,
                last_used_at=None,
            )
            api_keys.add(change.tx, key, token_digest(token.reveal()))
            change.record("create", "key", key.id, name, role=role.value, factory=factory, expires_at=expires_at)
        return KeyWithToken(key, token)

    def all(self, may: MayAdminister) -> Sequence[ApiKey]:
        """All keys, newest first, including revoked and expired ones."""
        with self._installation.reading() as tx:
            return api_keys.of_team(tx, may.team_id)

    def revoke(self, may: MayAdminister, key_id: str) -> ApiKey:
        """Revoke the key immediately. Raises `NotFound`, and `Conflict` if it is already revoked."""
        with self._installation.changing(may) as change:
            key = self._key(change.tx, may, key_id)
            if key.revoked_at is not None:
                raise Conflict(f"Key {key.name!r} ({key.id}) is already revoked.")
            api_keys.revoke(change.tx, key.id, change.now)
            change.record("revoke", "key", key.id, key.name)
            return self._key(change.tx, may, key_id)

    def _key(self, tx: Transaction, may: MayAdminister, key_id: str) -> ApiKey:
        key = api_keys.by_id(tx, may.team_id, key_id)
        if key is None:
            raise NotFound(f"There is no key {key_id[:100]!r}. `hookmill key list` shows them.")
        return key
