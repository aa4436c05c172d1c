"""A store with a factory and its management operations, and plans like those of the ingress."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from types import TracebackType
from typing import Self

from hookmill.domain.authentication import Authentic
from hookmill.domain.delivery import Identity, IdentityKind, Label, LogDetails, RateLimit
from hookmill.domain.ids import DeliveryKey, time_ordered_key
from hookmill.domain.webhook import AuthMode, Webhook
from hookmill.management import InstallationConfig, Management
from hookmill.store.admission.plan import Acceptance, Plan, Rejection, RunToStart
from hookmill.store.admission.transaction import PlanOutcome, admit
from hookmill.store.database import Database, Row
from hookmill.store.keys.sealing import KeyRing, MasterKey
from tests.support.stores import open_store_database
from tests.support.world import Clock

UNLIMITED = 1_000_000
"""A limit that no test reaches."""


class ManagedStore:
    def __init__(self, url: str):
        self.url = url
        self.clock = Clock()
        self.key = KeyRing([MasterKey(b"k" * 32)])
        self._exit_stack = ExitStack()
        self.database: Database = self._exit_stack.enter_context(open_store_database(url))
        config = InstallationConfig(
            public_url="https://hooks.test",
            webhooks_per_factory=UNLIMITED,
            runner_names=("package",),
            default_runner="package",
        )
        self.management = Management(self.database, self.key, config, self.clock)
        self.factory, self.has_created_factory = self.management.factories.set_up()
        self.may = self.management.access.operator(self.factory.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None):
        self._exit_stack.close()

    def webhook(self, name: str = "source") -> Webhook:
        return self.management.webhooks.create(self.may, {"name": name}).webhook

    def plan(
        self,
        webhook: Webhook,
        event: str | None = None,
        *,
        at: float = 0.0,
        per_minute: int = UNLIMITED,
        revision: int | None = None,
        body: bytes = b"{}",
        kind: IdentityKind = IdentityKind.SENDER,
        runs: Sequence[RunToStart] = (),
        fingerprint: bytes | None = None,
    ) -> Acceptance:
        """An acceptance of a delivery that is received `at` seconds after the clock. Its identity is the `event`, or a
        random one.

        `fingerprint` identifies the signed content. A replay of the request has the same.
        """
        received_at = self.clock.now + round(at * 1_000_000)
        digest = sha256(event.encode() if event is not None else os.urandom(16)).digest()[:16]
        return Acceptance(
            proof=Authentic(AuthMode.TOKEN, fingerprint=fingerprint),
            delivery_key=DeliveryKey(time_ordered_key(received_at, os.urandom(8))),
            webhook_no=webhook.no,
            factory_id=webhook.factory_id,
            revision=webhook.revision if revision is None else revision,
            received_at=received_at,
            per_minute=per_minute,
            identity=Identity(kind, digest, event),
            body=body,
            runs=tuple(runs),
        )

    def plan_with_label(self, label: Label, webhook: Webhook, event: str | None = None, *, at: float = 0.0) -> Plan:
        """A plan that is recorded with this label. Only the transaction decides between Accepted and Duplicate."""
        if label in (Label.ACCEPTED, Label.DUPLICATE):
            return self.plan(webhook, event, at=at)
        return self.rejection(webhook, label, at=at)

    def rejection(
        self,
        webhook: Webhook,
        label: Label = Label.REJECTED_AUTH,
        *,
        at: float = 0.0,
        per_minute: int = UNLIMITED,
        reason: str | None = None,
    ) -> Rejection:
        """A rejection of an attempt that is received `at` seconds after the clock."""
        is_authentic = label is not Label.REJECTED_AUTH
        received_at = self.clock.now + round(at * 1_000_000)
        return Rejection(
            delivery_key=DeliveryKey(time_ordered_key(received_at, os.urandom(8))),
            webhook_no=webhook.no,
            revision=webhook.revision,
            received_at=received_at,
            label=label,
            rate_limit=int(RateLimit.DELIVERIES if is_authentic else RateLimit.FAILED_AUTHENTICATIONS),
            per_minute=per_minute,
            size=2,
            log_details=LogDetails(reason=reason) if reason is not None else None,
        )

    def run(self, automation: str) -> RunToStart:
        return RunToStart(time_ordered_key(self.clock.now, os.urandom(8)), automation, 1)  # type: ignore[arg-type]

    def admit(self, *plans: Plan, has_window_counts: bool = False) -> list[PlanOutcome]:
        """Admit the plans in one transaction."""
        with self.database.write() as tx:
            return admit(tx, plans, has_window_counts=has_window_counts)

    def rows(self, table: str) -> Sequence[Row]:
        with self.database.read() as tx:
            return tx.all(f"SELECT * FROM {table}")

    def count(self, table: str) -> int:
        return len(self.rows(table))
