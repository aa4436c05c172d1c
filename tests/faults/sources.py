"""Webhooks of every kind with automations, and the events that senders deliver to them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hookmill.domain.webhook import AuthMode
from hookmill.management import Management, WebhookWithSecret
from tests.faults.senders import Event
from tests.support.service import operator

FILLING_BYTES = (0, 10, 300, 5_000)


@dataclass(frozen=True, slots=True)
class Source:
    """A webhook, and the automations that its events start: always, and when they say so."""

    made: WebhookWithSecret
    always: frozenset[str]
    when_urgent: frozenset[str]

    def draw(
        self, chance: random.Random, number: int, *, urgent: float = 0.1, fillings: Sequence[int] = FILLING_BYTES
    ) -> Event:
        """The event with this number. `urgent` is the share of urgent events, and `fillings` are sizes in bytes."""
        is_urgent = chance.random() < urgent
        body = b'{"number": %d, "urgent": %s, "filling": "%s"}' % (
            number,
            b"true" if is_urgent else b"false",
            b"x" * chance.choice(fillings),
        )
        header = self.made.webhook.delivery_id_header or chance.choice(["X-Service-Delivery-Id", None])
        return Event(
            self.made,
            body,
            {header: f"event-{number}"} if header is not None else {},
            self.always | self.when_urgent if is_urgent else self.always,
        )


def furnish(management: Management, *, runner: str | None = None) -> list[Source]:
    """Twelve webhooks of every kind. Three automations listen: to one of them always, to most when it is urgent, and
    never. `runner` performs the runs of the second one."""
    may = operator(management)
    webhooks = [
        management.webhooks.create(
            may,
            f"source-{n}",
            auth_mode=AuthMode.URL_TOKEN if n % 3 == 1 else AuthMode.TOKEN,
            delivery_id_header="X-Event-Id" if n % 3 == 2 else None,
        )
        for n in range(12)
    ]

    def automation(
        name: str,
        listens_to: Sequence[WebhookWithSecret],
        payload: object,
        *,
        enabled: bool = True,
        runner: str | None = None,
    ) -> str:
        chosen: dict[str, object] = {"webhook_ids": [each.webhook.uid for each in listens_to]}
        if payload is not None:
            chosen["payload"] = payload
        trigger = {"provider": "webhook", "event": "received", "filter": chosen}
        created = management.automations.create(
            may, name, prompt="Look.", triggers=[trigger], enabled=enabled, runner=runner
        )
        return str(created.id)

    always = automation("always", webhooks[:1], None)
    urgent = automation("urgent", webhooks[:9], {"urgent": [True]}, runner=runner)
    automation("never", webhooks, None, enabled=False)
    return [
        Source(each, frozenset({always} if n == 0 else ()), frozenset({urgent} if n < 9 else ()))
        for n, each in enumerate(webhooks)
    ]
