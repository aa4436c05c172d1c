"""What every operation works with: one installation's store, its key and its clock; and how a change is made.

A change is one transaction. It holds the team while it looks and writes, and it ends with a line in the audit log.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hookmill.domain import ids
from hookmill.domain.errors import Conflict, Forbidden, Revoked
from hookmill.domain.ids import TeamId
from hookmill.domain.permission import ActorKind, Channel, MayAdminister, MayManage, Role
from hookmill.store import api_keys, audit, factories, sessions
from hookmill.store.database import Database, Transaction
from hookmill.store.keys.sealing import MasterKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationConfig:
    """What an operator decides for everybody in the installation."""

    public_url: str
    webhooks_per_factory: int
    runner_names: tuple[str, ...]
    default_runner: str


@dataclass(slots=True)
class Change:
    """A change under way. It must say what it did, or that it did nothing."""

    tx: Transaction
    now: int
    _may: MayManage | MayAdminister
    _is_settled: bool = field(default=False, init=False)

    def record(self, action: str, kind: str, subject_id: str, name: str, **details: Any) -> None:
        """Write a line of the audit log. `details` are plain values, and never a secret."""
        may = self._may
        audit.add(
            self.tx,
            ids.time_ordered(self.now, _in_order()),
            team=team_of(may),
            factory=may.factory.id if isinstance(may, MayManage) else None,
            at=self.now,
            actor=may.actor,
            action=f"{kind}.{action}",
            subject=(kind, subject_id, name),
            details=details,
        )
        self._is_settled = True

    def nothing(self) -> None:
        """What was asked for is so already."""
        self._is_settled = True

    def must_be_settled(self) -> None:
        assert self._is_settled, "a change is written to the audit log"


class Installation:
    """One installation, as the operations use it. It may be shared by threads."""

    def __init__(
        self, database: Database, key: MasterKeys, config: InstallationConfig, now_us: Callable[[], int]
    ) -> None:
        self.key = key
        self.config = config
        self.now = now_us
        self._database = database
        self._joined = _Joined()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A consistent view, which is the change's own inside one."""
        if self._joined.tx is not None:
            yield self._joined.tx
            return
        with self._database.read() as tx:
            yield tx

    @contextmanager
    def together(self, may: MayManage | MayAdminister) -> Iterator[None]:
        """Make everything that this thread does inside one transaction: all of it is kept, or nothing.

        An exception must leave the block, or half of an operation could be kept.
        """
        with self._writing(may):
            yield

    @contextmanager
    def changing(self, may: MayManage | MayAdminister) -> Iterator[Change]:
        """A transaction between whose looks and writes no other change to the team can come."""
        with self._writing(may) as tx:
            change = Change(tx, self.now(), may)
            yield change
            change.must_be_settled()

    @contextmanager
    def changing_definition(self, may: MayManage) -> Iterator[Change]:
        """As `changing`, for what definition files own. Raises `Conflict` where they do, through other channels."""
        with self.changing(may) as change:
            factory = factories.by_id(change.tx, may.factory.id)
            if factory is not None and factory.defined_by_files and may.actor.channel is not Channel.FILES:
                raise Conflict(
                    f"Factory {factory.name!r} is defined by files: change them, and run `hookmill apply`. "
                    "Enabling, disabling, rotating and syncing work here too."
                )
            yield change

    @contextmanager
    def writing_first(self) -> Iterator[Transaction]:
        """For the first start alone, when there is no team yet to hold."""
        with self._database.write() as tx:
            factories.hold_all(tx)
            yield tx

    @contextmanager
    def noting(self) -> Iterator[Transaction]:
        """For a note that is no act of management, such as when a key was last used."""
        with self._database.write() as tx:
            yield tx

    @contextmanager
    def _writing(self, may: MayManage | MayAdminister) -> Iterator[Transaction]:
        if self._joined.tx is not None:
            yield self._joined.tx
            return
        with self._database.write() as tx:
            factories.hold(tx, team_of(may))
            # Who was let in before may have waited since. Revoking takes the same hold, so this look is exact.
            _must_still_be_let_in(tx, may, self.now())
            self._joined.tx = tx
            try:
                yield tx
            finally:
                self._joined.tx = None


class _Joined(threading.local):
    """The transaction that this thread's operations join, if there is one."""

    tx: Transaction | None = None


def _must_still_be_let_in(tx: Transaction, may: MayManage | MayAdminister, now: int) -> None:
    """Raises `Revoked` where the key or the member is good no more, and `Forbidden` where the role was taken away."""
    match may.actor.kind:
        case ActorKind.OPERATOR:
            return
        case ActorKind.KEY:
            key = api_keys.by_id(tx, team_of(may), may.actor.id)
            if key is None or not key.is_good(now):
                raise Revoked("This API key was revoked or has expired. Nothing was done.")
        case ActorKind.MEMBER:
            account = sessions.account_of(tx, may.actor.id)
            if account is None:
                raise Revoked("This member was removed from the team. Nothing was done.")
            if account.is_admin:
                return
            roles = sessions.roles_of(tx, account.member_id)
            if not isinstance(may, MayManage) or may.is_admin or roles.get(may.factory.id) is not Role.MANAGER:
                raise Forbidden("Your role was taken away meanwhile. Nothing was done.")


_LINES = itertools.count()


def _in_order() -> bytes:
    """Lines of the same microsecond, as those of one change are, stay in the order of their writing."""
    return (next(_LINES) & 0xFFFFFF).to_bytes(3, "big") + os.urandom(5)


def team_of(may: MayManage | MayAdminister) -> TeamId:
    return may.factory.team_id if isinstance(may, MayManage) else may.team_id


def random_name(prefix: str) -> str:
    return ids.random_name(prefix, os.urandom(ids.RANDOM_BYTES))
