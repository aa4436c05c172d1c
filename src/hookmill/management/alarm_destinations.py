"""Operations on the destinations of alarms. Each requires an admin of the team.

A `MayManage` is for the destinations of its factory, and a `MayAdminister` for those of the installation. A signing
secret is shown only when its destination is created; URLs are never shown.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hookmill.domain import ids
from hookmill.domain.alarm import AlarmEvent, AlarmNotice
from hookmill.domain.alarm_destination import (
    DESTINATIONS_MAX,
    AlarmDestination,
    DestinationKind,
    EmailTarget,
    SlackTarget,
    Target,
    WebhookTarget,
    parsed_url,
    refuse_kinds_out_of_reach,
    shown_target,
    usable_alarm_kinds,
    usable_email,
    usable_url,
)
from hookmill.domain.alarm_message import AlarmMessage
from hookmill.domain.errors import Conflict, DestinationUnavailable, Forbidden, Invalid, LimitReached, NotFound
from hookmill.domain.ids import FactoryId
from hookmill.domain.outgoing import is_public, parsed_address
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.domain.secret import SecretValue
from hookmill.management.installation import Installation, random_id, team_of
from hookmill.store import alarm_destinations
from hookmill.store.database import Transaction
from hookmill.store.keys.sealing import WrongKey


class SendAlarm(Protocol):
    def __call__(self, target: Target, message: AlarmMessage) -> None:
        """Send the message. Raises `DestinationUnavailable`."""


@dataclass(frozen=True, slots=True)
class DestinationWithSecret:
    """A new destination with its signing secret, which is shown only once."""

    destination: AlarmDestination
    signing_secret: SecretValue | None
    """None unless the destination is a webhook."""


@dataclass(frozen=True, slots=True)
class DestinationTest:
    """The result of a test. `problem` says why the destination did not accept it; None if it did."""

    destination: AlarmDestination
    problem: str | None


class AlarmDestinations:
    def __init__(self, installation: Installation, send: SendAlarm | None) -> None:
        self._installation = installation
        self._send = send

    def all(self, may: MayManage | MayAdminister) -> Sequence[AlarmDestination]:
        """The destinations, oldest first."""
        _require_admin(may)
        with self._installation.reading() as tx:
            return self._all(tx, may)

    def get(self, may: MayManage | MayAdminister, destination_id: str) -> AlarmDestination:
        """The destination. Raises `NotFound`."""
        _require_admin(may)
        with self._installation.reading() as tx:
            return self._get(tx, may, destination_id)

    def create(
        self,
        may: MayManage | MayAdminister,
        kind: DestinationKind,
        *,
        to: str | None = None,
        url: str | None = None,
        alarm_kinds: Iterable[str] = (),
        includes_factories: bool = False,
    ) -> DestinationWithSecret:
        """Create a destination. `to` is the e-mail address; chats and webhooks have a `url` instead.

        `alarm_kinds`: the kinds of alarms that it gets; all if empty. `includes_factories`: whether a destination of
        the installation also gets the alarms of its factories. Raises `Invalid`, `Conflict` or `LimitReached`.
        """
        _require_admin(may)
        if includes_factories and isinstance(may, MayManage):
            raise Invalid(
                "Only a destination of the installation can include factories.", pointer="/includes_factories"
            )
        target = self._target(kind, to, url)
        kinds = usable_alarm_kinds(alarm_kinds)
        factory = may.factory if isinstance(may, MayManage) else None
        refuse_kinds_out_of_reach(kinds, of_factory=factory is not None, includes_factories=includes_factories)
        with self._installation.changing(may, needs_disk_space=True) as change:
            if len(self._all(change.tx, may)) >= DESTINATIONS_MAX:
                whose = "The factory" if factory is not None else "The installation"
                raise LimitReached(
                    f"{whose} has {DESTINATIONS_MAX} alarm destinations, which is the limit. Delete one first."
                )
            destination = AlarmDestination(
                id=random_id("ald"),
                team_id=team_of(may),
                factory_id=factory.id if factory is not None else None,
                factory_name=factory.name if factory is not None else None,
                kind=kind,
                shown_target=shown_target(target),
                alarm_kinds=kinds,
                includes_factories=includes_factories,
                created_at=change.now,
            )
            alarm_destinations.add(change.tx, destination, target, self._installation.master_keys)
            change.record(
                "create",
                "alarm_destination",
                destination.id,
                destination.shown_target,
                kind=kind.value,
                alarm_kinds=[each.value for each in kinds],
                includes_factories=includes_factories,
            )
        secret = target.signing_secret if isinstance(target, WebhookTarget) else None
        return DestinationWithSecret(destination, secret)

    def delete(self, may: MayManage | MayAdminister, destination_id: str) -> AlarmDestination:
        """Delete the destination, with the notices that wait for it. Raises `NotFound`."""
        _require_admin(may)
        with self._installation.changing(may) as change:
            destination = self._get(change.tx, may, destination_id)
            alarm_destinations.delete(change.tx, destination.id)
            change.record("delete", "alarm_destination", destination.id, destination.shown_target)
        return destination

    def test(self, may: MayManage | MayAdminister, destination_id: str) -> DestinationTest:
        """Send a test to the destination, and return the result. Takes as long as the destination needs to answer.

        Raises `NotFound`. Don't call it inside `one_transaction`.
        """
        _require_admin(may)
        with self._installation.changing(may) as change:
            destination = self._get(change.tx, may, destination_id)
            change.record("test", "alarm_destination", destination.id, destination.shown_target)
        # No transaction is open while the destination is slow.
        problem = None
        try:
            with self._installation.reading() as tx:
                target = alarm_destinations.target(tx, destination.id, self._installation.master_keys)
            if target is None:
                raise _not_found_error(destination_id)
            if self._send is None:
                raise DestinationUnavailable("This process sends no alarms.")
            self._send(target, self._test_message(destination))
        except (DestinationUnavailable, WrongKey) as error:
            problem = str(error)
        return DestinationTest(destination, problem)

    def _test_message(self, destination: AlarmDestination) -> AlarmMessage:
        now = self._installation.now()
        return AlarmMessage(
            id=ids.notice_id(ids.time_ordered_key(now, os.urandom(8))),
            notice=AlarmNotice(
                id=random_id("alm"),
                kind=None,
                event=AlarmEvent.TEST,
                factory=destination.factory_name,
                subject="Alarm destination",
                summary="This is a test of an alarm destination.",
                action="It works. You need to do nothing.",
                at=now,
                url=None,
            ),
        )

    def _target(self, kind: DestinationKind, to: str | None, url: str | None) -> Target:
        """The target, with a new signing secret for a webhook."""
        if kind is DestinationKind.EMAIL:
            if to is None or url is not None:
                raise Invalid("An e-mail destination needs an address, and no URL.", pointer="/to")
            if not self._installation.config.sends_email:
                raise Conflict(
                    "No mail server is configured, so e-mail can't be sent. Set smtp_host and smtp_sender, and restart "
                    "the service."
                )
            return EmailTarget(usable_email(to))
        if url is None or to is not None:
            raise Invalid(f"A {kind.value} destination needs a URL, and no e-mail address.", pointer="/url")
        usable = self._permitted_url(url)
        if kind is DestinationKind.SLACK:
            return SlackTarget(usable)
        # Imported here, because loading the catalogue takes time, and few commands need it.
        from hookmill.domain.signatures.key import make_secret
        from hookmill.domain.signatures.rule import scheme_named

        return WebhookTarget(usable, make_secret(scheme_named("standard_webhooks", None), os.urandom(64)))

    def _permitted_url(self, url: str) -> SecretValue:
        """Raises `Invalid`. The addresses of names are checked whenever a message is sent."""
        allows_private = self._installation.config.allows_private_addresses
        usable = usable_url(url, allows_http=allows_private)
        address = parsed_address(parsed_url(usable).host)
        if address is not None and not allows_private and not is_public(address):
            raise Invalid(
                f"{address} is not a public address. The setting alarm_private_addresses allows it.", pointer="/url"
            )
        return usable

    def _all(self, tx: Transaction, may: MayManage | MayAdminister) -> Sequence[AlarmDestination]:
        factory: FactoryId | None = may.factory.id if isinstance(may, MayManage) else None
        return alarm_destinations.of_factory(tx, team_of(may), factory)

    def _get(self, tx: Transaction, may: MayManage | MayAdminister, destination_id: str) -> AlarmDestination:
        for destination in self._all(tx, may):
            if destination.id == destination_id:
                return destination
        raise _not_found_error(destination_id)


def _require_admin(may: MayManage | MayAdminister) -> None:
    if isinstance(may, MayManage) and not may.is_admin:
        raise Forbidden("This requires the role admin of the team.")


def _not_found_error(destination_id: str) -> NotFound:
    return NotFound(
        f"There is no alarm destination {destination_id[:100]!r} here. `hookmill alarm destination list` shows them, "
        "and with --installation those of the installation."
    )
