"""Who is asking, and may they? Answered once for each request; the answer is a value that the operations ask for."""

import getpass
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

from hookmill.domain.api_key import ApiKey
from hookmill.domain.errors import NotFound, StoreUnavailable
from hookmill.domain.factory import Factory
from hookmill.domain.permission import Actor, ActorKind, Caller, Channel, MayAdminister, MayManage, MayView, Role
from hookmill.management.installation import Installation
from hookmill.store import api_keys, factories

TOKEN_PREFIX: Final = "hmk_"
"""What an API key's token begins with, so that people and scanners know one when they see it."""
USED_TO_US: Final = 60_000_000
"""How exactly a key's last use is kept: writing it down at each request would cost more than the request."""


class Access:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def operator(self, factory_name: str, *, channel: Channel = Channel.CLI) -> MayManage:
        """Whoever can open the store and has its master key may do everything. Raises `NotFound`."""
        with self._at.reading() as tx:
            factory = factories.factory_named(tx, factory_name)
            if factory is None:
                known = ", ".join(factory.name for factory in factories.all_factories(tx)) or "none yet"
                raise NotFound(f"No factory is named {factory_name[:100]!r}. There are: {known}.")
        return MayManage(actor=_operator(channel), factory=factory, is_admin=True)

    def operator_of_team(self, *, channel: Channel = Channel.CLI) -> MayAdminister:
        """As `operator`, for what concerns the whole team. Raises `NotFound` before the first start."""
        with self._at.reading() as tx:
            team = factories.the_team(tx)
        if team is None:
            raise NotFound("Nothing is set up here yet. Start `hookmill serve` once.")
        return MayAdminister(actor=_operator(channel), team_id=team)

    def by_key(self, token: str, *, client: str | None, channel: Channel = Channel.API) -> Caller | None:
        """Whose API key this is; None for one that is unknown, revoked or expired."""
        if not token.startswith(TOKEN_PREFIX):
            return None
        now = self._at.now()
        with self._at.reading() as tx:
            key = api_keys.by_digest(tx, token_digest(token))
        if key is None or not key.is_good(now):
            return None
        if key.last_used_at is None or key.last_used_at + USED_TO_US < now:
            # A disk that is full keeps nobody from looking.
            with suppress(StoreUnavailable), self._at.noting() as tx:
                api_keys.mark_used(tx, key.id, now)
        return _caller(key, client, channel)

    def may_view(self, caller: Caller, factory_name: str) -> MayView:
        """Raises `NotFound` for a factory that the caller may not know of."""
        return caller.to_view(self._named(factory_name), factory_name)

    def may_manage(self, caller: Caller, factory_name: str) -> MayManage:
        """Raises `NotFound` as `may_view`, and `Forbidden` for too low a role."""
        return caller.to_manage(self._named(factory_name), factory_name)

    def may_administer(self, caller: Caller) -> MayAdminister:
        """Raises `Forbidden` for too low a role."""
        return caller.to_administer()

    def factories(self, caller: Caller) -> Sequence[Factory]:
        """The factories that the caller may know of."""
        with self._at.reading() as tx:
            return [factory for factory in factories.all_factories(tx) if caller.may_know_of(factory)]

    def _named(self, name: str) -> Factory | None:
        with self._at.reading() as tx:
            return factories.factory_named(tx, name)


def token_digest(token: str) -> bytes:
    """What is kept of an API key's token."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _caller(key: ApiKey, client: str | None, channel: Channel) -> Caller:
    return Caller(
        actor=Actor(kind=ActorKind.KEY, id=key.id, name=key.name, channel=channel, client=client),
        team_id=key.team_id,
        is_admin=key.role is Role.ADMIN,
        roles={key.factory_id: key.role} if key.factory_id is not None else {},
    )


def _operator(channel: Channel) -> Actor:
    # A container's user may have a number and no name.
    name = "operator"
    with suppress(KeyError, OSError):
        name = getpass.getuser()
    return Actor(kind=ActorKind.OPERATOR, id=name, name=name, channel=channel)
