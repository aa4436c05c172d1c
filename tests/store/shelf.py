"""A store with webhooks on it, and plans as the ingress makes them."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

from hookmill.domain.delivery import Budget, IdentityKind, Label
from hookmill.domain.ids import DeliveryKey, time_ordered
from hookmill.domain.webhook import Webhook
from hookmill.management import House, Management
from hookmill.store.admission import Attempted, Plan, RunToStart, admit
from hookmill.store.database import Database, Row
from hookmill.store.sealing import MasterKey
from tests.support.stores import opened
from tests.support.world import Clock

MANY = 1_000_000


class Shelf:
    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = Clock()
        self.key = MasterKey(b"k" * 32)
        self._at_the_end = ExitStack()
        self.database: Database = self._at_the_end.enter_context(opened(url))
        house = House(
            public_url="https://hooks.test",
            webhooks_per_factory=MANY,
            runner_names=("package",),
            default_runner="package",
        )
        self.management = Management(self.database, self.key, house, self.clock)
        self.factory, self.is_first = self.management.factories.set_up()
        self.may = self.management.access.operator(self.factory.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._at_the_end.close()

    def webhook(self, name: str = "source") -> Webhook:
        return self.management.webhooks.create(self.may, name).webhook

    def plan(
        self,
        webhook: Webhook,
        event: str | None = None,
        *,
        at: float = 0.0,
        label: Label = Label.ACCEPTED,
        budget: Budget | None = None,
        budget_size: int = MANY,
        body: bytes = b"{}",
        kind: IdentityKind = IdentityKind.SENDER,
        runs: Sequence[RunToStart] = (),
        **otherwise: Any,
    ) -> Plan:
        """An attempt `at` seconds after the clock. Without an event named it is one that was never seen."""
        strangers = label is Label.REJECTED_AUTH
        received_at = self.clock.now + round(at * 1_000_000)
        plan = Plan(
            delivery=DeliveryKey(time_ordered(received_at, os.urandom(8))),
            webhook_no=webhook.no,
            factory_id=webhook.factory_id,
            revision=webhook.revision,
            received_at=received_at,
            label=label,
            budget=int(budget or (Budget.FAILED_AUTHENTICATIONS if strangers else Budget.DELIVERIES)),
            budget_size=budget_size,
            size=len(body),
        )
        if label is Label.ACCEPTED:
            plan.body = body
            plan.identity_kind = int(kind)
            plan.identity_digest = sha256(event.encode() if event is not None else os.urandom(16)).digest()[:16]
            plan.identity_shown = event
            plan.runs = tuple(runs)
        for name, value in otherwise.items():
            setattr(plan, name, value)
        return plan

    def run(self, automation: str) -> RunToStart:
        return RunToStart(time_ordered(self.clock.now, os.urandom(8)), automation, 1)  # type: ignore[arg-type]

    def admit(self, *plans: Plan) -> list[Attempted]:
        """All of them in one transaction."""
        with self.database.write() as tx:
            return admit(tx, plans)

    def rows(self, table: str) -> Sequence[Row]:
        with self.database.read() as tx:
            return tx.all(f"SELECT * FROM {table}")

    def count(self, table: str) -> int:
        return len(self.rows(table))
