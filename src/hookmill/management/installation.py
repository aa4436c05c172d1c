"""One installation's store, master keys, configuration and clock, and the transactions of the operations.

A change is made in one transaction, which locks the team, and which several changes may share. It adds at least one
line to the audit log, unless it calls `skip_audit`.
"""

import itertools
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from hookmill.domain import ids
from hookmill.domain.errors import Conflict, DiskFull, Forbidden, Revoked
from hookmill.domain.external_identity import ExternalSignIn
from hookmill.domain.ids import TeamId
from hookmill.domain.permission import Actor, ActorKind, Channel, MayAdminister, MayManage, MayView, Role
from hookmill.domain.results import DestinationRules, destinations_of
from hookmill.domain.run_secrets import RunSecretRule
from hookmill.store import api_keys, audit, factories, sessions
from hookmill.store.database import Database, Transaction
from hookmill.store.keys.sealing import KeyRing


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationConfig:
    """The settings that operations depend on."""

    public_url: str
    webhooks_per_factory: int
    runner_names: tuple[str, ...]
    default_runner: str
    secret_rules: Mapping[str, RunSecretRule] = field(default_factory=dict)
    """Which secrets the runs of each runner may get, by the runner's name."""
    repositories: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """The operator's Git repositories, by name, with the names of the factories that may use them; None: all."""
    destinations: Mapping[str, DestinationRules] = field(default_factory=dict)
    """The operator's destinations of results, by name."""
    lacks_trusted_proxies: bool = False
    """Whether every client seems to have the address of a proxy."""
    password_sign_in: bool = True
    """Whether members may sign in with a password."""
    external_sign_in: ExternalSignIn | None = None
    """None: members can't sign in with OpenID Connect."""
    sends_email: bool = False
    """Whether a mail server for alarms is configured."""
    allows_private_addresses: bool = False
    """Whether alarm destinations may have addresses that are not public, and http URLs."""

    def repositories_for(self, may: MayView) -> list[str]:
        """The names of the repositories that automations of the factory may use."""
        return sorted(name for name, users in self.repositories.items() if users is None or may.factory.name in users)

    def destinations_for(self, may: MayView) -> Mapping[str, DestinationRules]:
        """The destinations that automations of the factory may use, by name."""
        return destinations_of(may.factory.name, self.destinations)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChange:
    """A change of one member's account that requires no permission.

    The member makes it, or the service does by the operator's rules.
    """

    actor: Actor
    team_id: TeamId


@dataclass(slots=True)
class Change:
    """A change in progress. The operation must call `record` at least once, or `skip_audit`."""

    tx: Transaction
    now: int
    """In µs since 1970."""
    _may: MayManage | MayAdminister | AccountChange
    _is_settled: bool = field(default=False, init=False)
    """Whether `record` or `skip_audit` was called."""

    def record(self, action: str, subject_kind: str, subject_id: str, subject_name: str, **details: Any) -> None:
        """Add a line to the audit log, such as `webhook.rotate` for the action `rotate` of the subject kind `webhook`.

        `details` are plain values, and never a secret.
        """
        may = self._may
        audit.add(
            self.tx,
            ids.time_ordered_key(self.now, _ordered_bytes()),
            team=team_of(may),
            factory=may.factory.id if isinstance(may, MayManage) else None,
            at=self.now,
            actor=may.actor,
            action=f"{subject_kind}.{action}",
            subject=(subject_kind, subject_id, subject_name),
            details=details,
        )
        self._is_settled = True

    @property
    def actor_name(self) -> str:
        """The name of the actor; for a member, the e-mail address."""
        return self._may.actor.name

    def skip_audit(self) -> None:
        """Allow the change to end without a line in the audit log, for example if it changes nothing."""
        self._is_settled = True

    def require_settled(self) -> None:
        assert self._is_settled, "each change calls `record` or `skip_audit`"


class Installation:
    """One installation. Threads may share it."""

    def __init__(
        self,
        database: Database,
        master_keys: KeyRing,
        config: InstallationConfig,
        now_us: Callable[[], int],
        has_room: Callable[[], bool],
    ) -> None:
        """`now_us`: the time in µs since 1970.

        `has_room`: whether the database's disk has room for changes that add something.
        """
        self.master_keys = master_keys
        self.config = config
        self.now = now_us
        self._database = database
        self._has_room = has_room
        self._current = _CurrentTransaction()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A read transaction with a consistent view; or the open write transaction of this thread, if there is one."""
        if self._current.tx is not None:
            yield self._current.tx
            return
        with self._database.read() as tx:
            yield tx

    @contextmanager
    def changing(self, may: MayManage | MayAdminister, *, needs_disk_space: bool = False) -> Iterator[Change]:
        """A transaction that locks the team, so no other change can come between its reads and writes.

        Inside `one_transaction` or `rehearsing`, it joins the open transaction. Raises `Revoked` or `Forbidden` if the
        permission ended meanwhile.

        `needs_disk_space`: the change creates something. Raises `DiskFull` if the disk has no room for that. Other
        changes remain possible, because they may free space, or stop harm.
        """
        if needs_disk_space and not self._current.is_rehearsal and not self._has_room():
            raise DiskFull(
                "The disk of the data directory is almost full, so nothing was changed. Free disk space, or lower "
                "free_space_min_mb, and then retry. You can still delete, disable, rotate and cancel."
            )
        with self.one_transaction(may) as tx:
            change = Change(tx, self.now(), may)
            yield change
            change.require_settled()

    @contextmanager
    def changing_definition(self, may: MayManage, *, needs_disk_space: bool = True) -> Iterator[Change]:
        """Like `changing`, for fields that definition files can define.

        Raises `Conflict` if the factory is defined by files, and the change comes through another channel.
        """
        with self.changing(may, needs_disk_space=needs_disk_space) as change:
            factory = factories.by_id(change.tx, may.factory.id)
            if factory is not None and factory.defined_by_files and may.actor.channel is not Channel.FILES:
                raise Conflict(
                    f"Factory {factory.name!r} is defined by files. Change the files, and run `hookmill apply`. "
                    "Here you can only enable, disable and rotate, and sync webhooks with their team secrets."
                )
            yield change

    @contextmanager
    def rehearsing(self, may: MayManage) -> Iterator[None]:
        """Like `one_transaction`, but on a copy of the factory's configuration in memory, which is then discarded.

        Deliveries and other changes don't wait for it.
        """
        # Imported here, because `store.schema` takes time to import, and few commands need it.
        from hookmill.store.rehearsal import copy_configuration, rehearsal

        with self.reading() as tx:
            _require_permission(tx, may, self.now())
            copy = copy_configuration(tx, may.factory.id)
        outer_tx = self._current.tx
        try:
            with rehearsal(copy) as tx:
                self._current.tx, self._current.is_rehearsal = tx, True
                yield
        finally:
            self._current.tx, self._current.is_rehearsal = outer_tx, False
            copy.dispose()

    @contextmanager
    def locking_set_up(self) -> Iterator[Transaction]:
        """A transaction for creating the first team or the first sign-in link, for accepting any sign-in link, and for
        signing in at the provider. Only one of these is open at a time."""
        with self._database.write() as tx:
            factories.lock_creation_of_first_team(tx)
            yield tx

    def writing_without_permission_check(self) -> AbstractContextManager[Transaction]:
        """A transaction that requires no permission, such as a sign-in, or an update of the time of a key's last
        use."""
        return self._database.write()

    @contextmanager
    def one_transaction(self, may: MayManage | MayAdminister) -> Iterator[Transaction]:
        """A transaction that all operations of this thread share: the open one, or a new one that locks the team. Don't
        catch exceptions inside the block: half of an operation could be committed."""
        if self._current.tx is not None:
            yield self._current.tx
            return
        with self._database.write() as tx:
            factories.lock_team(tx, team_of(may))
            # Another transaction may have revoked the permission before this one got the lock.
            _require_permission(tx, may, self.now())
            self._current.tx = tx
            try:
                yield tx
            finally:
                self._current.tx = None


class Operations:
    """A group of operations on one installation."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation


class _CurrentTransaction(threading.local):
    """The open write transaction of this thread, which its operations join."""

    tx: Transaction | None = None
    """None if no write transaction is open."""
    is_rehearsal: bool = False
    """Whether the transaction is on a copy in memory."""


def _require_permission(tx: Transaction, may: MayManage | MayAdminister, now: int) -> None:
    """Raises `Revoked` if the key or member is no longer valid, and `Forbidden` if the role is no longer sufficient."""
    match may.actor.kind:
        case ActorKind.OPERATOR | ActorKind.SERVICE:
            return
        case ActorKind.KEY:
            key = api_keys.by_id(tx, team_of(may), may.actor.id)
            if key is None or not key.is_valid(now):
                raise Revoked("This API key was revoked or has expired. Nothing was changed.")
        case ActorKind.MEMBER:
            account = sessions.account_of(tx, may.actor.id)
            if account is None:
                raise Revoked("This member was removed from the team. Nothing was changed.")
            if account.is_admin:
                return
            roles = sessions.roles_of(tx, account.member_id)
            # `may.is_admin`: the permission was granted to an admin, who no longer is one.
            if not isinstance(may, MayManage) or may.is_admin or roles.get(may.factory.id) is not Role.MANAGER:
                raise Forbidden("Your role was removed in the meantime. Nothing was changed. Ask an admin of the team.")


_LINE_NUMBERS = itertools.count()


def _ordered_bytes() -> bytes:
    """Eight bytes that keep this process's lines of the same microsecond, such as those of one change, in order."""
    return (next(_LINE_NUMBERS) & 0xFFFFFF).to_bytes(3, "big") + os.urandom(5)


def team_of(may: MayManage | MayAdminister | AccountChange) -> TeamId:
    return may.factory.team_id if isinstance(may, MayManage) else may.team_id


def random_id(prefix: str) -> str:
    return ids.random_id(prefix, os.urandom(ids.RANDOM_BYTES))
