"""Webhooks of several kinds with automations, and the events that senders deliver to them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hookmill.domain.webhook import AuthMode
from hookmill.management import Management, WebhookWithSecret
from tests.faults.senders import Event
from tests.support.automations import automation_created
from tests.support.service import operator

FILLER_BYTES = (0, 10, 300, 5_000)


@dataclass(frozen=True, slots=True)
class Source:
    """A webhook, and the automations that its events start: all events, or only urgent ones."""

    webhook: WebhookWithSecret
    always: frozenset[str]
    when_urgent: frozenset[str]

    def new_event(
        self, chance: random.Random, number: int, *, urgent: float = 0.1, fillers: Sequence[int] = FILLER_BYTES
    ) -> Event:
        """The event with this number. `urgent` is the share of urgent events, and `fillers` are sizes in bytes."""
        is_urgent = chance.random() < urgent
        body = b'{"number": %d, "urgent": %s, "filler": "%s"}' % (
            number,
            b"true" if is_urgent else b"false",
            b"x" * chance.choice(fillers),
        )
        header = self.webhook.webhook.delivery_id_header or chance.choice(["X-Service-Delivery-Id", None])
        return Event(
            self.webhook,
            body,
            {header: f"event-{number}"} if header is not None else {},
            self.always | self.when_urgent if is_urgent else self.always,
        )


def create_sources(management: Management, *, runner: str | None = None) -> list[Source]:
    """Create twelve webhooks of several kinds, and three automations.

    Every event of the first webhook starts the first automation, urgent events of nine webhooks start the second one,
    and the third one is disabled. `runner` performs the runs of the second one.
    """
    may = operator(management)
    webhooks = [
        management.webhooks.create(
            may,
            {
                "name": f"source-{n}",
                "auth_mode": AuthMode.URL_TOKEN if n % 3 == 1 else AuthMode.TOKEN,
                "delivery_id_header": "X-Event-Id" if n % 3 == 2 else None,
            },
        )
        for n in range(12)
    ]

    def create_automation(
        name: str,
        webhooks: Sequence[WebhookWithSecret],
        payload: object,
        *,
        enabled: bool = True,
        runner: str | None = None,
    ) -> str:
        filter_: dict[str, object] = {"webhook_ids": [each.webhook.uid for each in webhooks]}
        if payload is not None:
            filter_["payload"] = payload
        trigger = {"provider": "webhook", "event": "received", "filter": filter_}
        automation = automation_created(management, may, name, triggers=[trigger], enabled=enabled, runner=runner)
        return str(automation.id)

    always = create_automation("always", webhooks[:1], None)
    urgent = create_automation("urgent", webhooks[:9], {"urgent": [True]}, runner=runner)
    create_automation("never", webhooks, None, enabled=False)
    return [
        Source(webhook, frozenset({always} if n == 0 else ()), frozenset({urgent} if n < 9 else ()))
        for n, webhook in enumerate(webhooks)
    ]
