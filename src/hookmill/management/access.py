"""Authenticates callers and grants permissions. Each operation requires a permission as its first argument."""

import os
import pwd
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

from hookmill.domain.api_key import ApiKey
from hookmill.domain.errors import NotFound, StoreUnavailable
from hookmill.domain.factory import Factory
from hookmill.domain.ids import TeamId
from hookmill.domain.permission import Actor, ActorKind, Caller, Channel, MayAdminister, MayManage, MayView, Role
from hookmill.management.installation import Operations
from hookmill.store import api_keys, factories

TOKEN_PREFIX: Final = "hmk_"
"""The prefix of each API key's token, by which people and secret scanners recognize it."""
LAST_USED_PRECISION_US: Final = 60_000_000
"""A key's last use is stored again after this time, in µs. Storing each use would cost more than the request."""


class Access(Operations):
    def operator(self, factory_name: str, *, channel: Channel = Channel.CLI) -> MayManage:
        """Permission to manage this factory, for the operator, who has the store and its master key.

        Raises `NotFound` for an unknown factory.
        """
        return MayManage(
            actor=operator_actor(channel), factory=self._factory_or_list_of_names(factory_name), is_admin=True
        )

    def operator_of_team(self, *, channel: Channel = Channel.CLI) -> MayAdminister:
        """Permission for the operator on the whole team. Raises `NotFound` before the first start."""
        return MayAdminister(actor=operator_actor(channel), team_id=self._only_team())

    def operator_caller(self, user_id: int) -> Caller:
        """The operator, who uses the API on the host with this account. Raises `NotFound` before the first start."""
        return Caller(actor=operator_actor(Channel.CLI, user_id), team_id=self._only_team(), is_admin=True, roles={})

    def caller_with_token(self, token: str, *, client: str | None, channel: Channel = Channel.API) -> Caller | None:
        """The caller with this token of an API key; None if the key is unknown, revoked or expired.

        `client`: the client's address, for the audit log.
        """
        if not token.startswith(TOKEN_PREFIX):
            return None
        now = self._installation.now()
        with self._installation.reading() as tx:
            key = api_keys.by_digest(tx, token_digest(token))
        if key is None or not key.is_valid(now):
            return None
        if key.last_used_at is None or key.last_used_at + LAST_USED_PRECISION_US < now:
            # A full disk must not make requests fail that only read, so the time of use is then not stored.
            with suppress(StoreUnavailable), self._installation.writing_without_permission_check() as tx:
                api_keys.mark_used(tx, key.id, now)
        return _caller(key, client, channel)

    def permission_to_view(self, caller: Caller, factory_name: str) -> MayView:
        """Permission to view the factory. Raises `NotFound` if it is unknown, or the caller may not view it."""
        return caller.permission_to_view(self._factory_for(caller, factory_name), factory_name)

    def permission_to_manage(self, caller: Caller, factory_name: str) -> MayManage:
        """Permission to change the factory. Raises like `permission_to_view`, and `Forbidden` for a viewer."""
        return caller.permission_to_manage(self._factory_for(caller, factory_name), factory_name)

    def permission_to_administer(self, caller: Caller) -> MayAdminister:
        """Permission for the whole team. Raises `Forbidden` unless the caller is an admin."""
        return caller.permission_to_administer()

    def visible_factories(self, caller: Caller) -> Sequence[Factory]:
        """The factories that the caller may view."""
        with self._installation.reading() as tx:
            return [factory for factory in factories.all_factories(tx) if caller.may_know_of(factory)]

    def _only_team(self) -> TeamId:
        with self._installation.reading() as tx:
            team = factories.only_team(tx)
        if team is None:
            raise NotFound("The installation is not set up yet. Start `hookmill serve` once.")
        return team

    def _factory_for(self, caller: Caller, name: str) -> Factory | None:
        """The factory with this name. For an admin, who may know all names, the error lists them."""
        if caller.is_admin:
            return self._factory_or_list_of_names(name)
        with self._installation.reading() as tx:
            return factories.factory_named(tx, name)

    def _factory_or_list_of_names(self, name: str) -> Factory:
        with self._installation.reading() as tx:
            factory = factories.factory_named(tx, name)
            if factory is None:
                names = ", ".join(factory.name for factory in factories.all_factories(tx)) or "none yet"
                raise NotFound(f"No factory is named {name[:100]!r}. The factories are: {names}.")
            return factory


def token_digest(token: str) -> bytes:
    """The stored form of the token of an API key, a session or a sign-in link."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _caller(key: ApiKey, client: str | None, channel: Channel) -> Caller:
    return Caller(
        actor=Actor(kind=ActorKind.KEY, id=key.id, name=key.name, channel=channel, client=client),
        team_id=key.team_id,
        is_admin=key.role is Role.ADMIN,
        roles={key.factory_id: key.role} if key.factory_id is not None else {},
    )


def operator_actor(channel: Channel, user_id: int | None = None) -> Actor:
    """The operator, by the name of this account. `user_id` None: the account that runs this process."""
    # A container's user may have no name.
    name = "operator"
    with suppress(KeyError, OSError):
        name = pwd.getpwuid(os.geteuid() if user_id is None else user_id).pw_name
    return Actor(kind=ActorKind.OPERATOR, id=name, name=name, channel=channel)
