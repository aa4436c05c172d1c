"""A webhook whose secret is rotated, and that is disabled and enabled, while the drill goes on."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from hookmill.management import Management, WebhookWithSecret
from tests.faults.senders import Event, delivery_request, exchange
from tests.support.service import operator

ROUNDS: Final = 3
SEND_SECONDS: Final = 30.0


class ChangingWebhook:
    def __init__(self, webhook: WebhookWithSecret, ports: Sequence[int]) -> None:
        self._webhook = webhook
        self._ports = ports
        self.events: list[Event] = []
        self.accepted_outdated = 0
        """202s for a secret that was rotated, or for a webhook that was disabled, before the request was begun."""
        self.refused_current = 0
        """Answers other than 202 and 503 for the current secret of the enabled webhook."""

    def change(
        self, management: Management, chance: random.Random, patiently: Callable[[Callable[[], Any]], Any]
    ) -> None:
        """Rotate the secret, then disable and enable the webhook. After each step, every service must know it."""
        uid = self._webhook.webhook.uid
        may = patiently(lambda: operator(management))
        for _ in range(ROUNDS):
            outdated = self._webhook
            self._webhook = patiently(lambda: management.webhooks.rotate(may, uid))
            self._expect_refusals(outdated)
            self._send(chance)
            patiently(lambda: management.webhooks.set_enabled(may, uid, False))
            self._expect_refusals(self._webhook)
            patiently(lambda: management.webhooks.set_enabled(may, uid, True))
            self._send(chance)

    def _expect_refusals(self, webhook: WebhookWithSecret) -> None:
        for port in self._ports:
            answer = exchange(port, delivery_request(webhook, b'{"outdated": %d}' % time.monotonic_ns()))
            self.accepted_outdated += answer is not None and answer.status == 202

    def _send(self, chance: random.Random) -> None:
        """Deliver an event with the current secret, as often as it takes."""
        event = Event(self._webhook, b'{"change": %d}' % len(self.events))
        self.events.append(event)
        deadline = time.monotonic() + SEND_SECONDS
        while not event.delivery_ids and time.monotonic() < deadline:
            answer = exchange(chance.choice(self._ports), delivery_request(event.webhook, event.body))
            if answer is not None and answer.status == 202:
                event.delivery_ids.append(answer.delivery_id)
            elif answer is not None and answer.status != 503:
                self.refused_current += 1
            if not event.delivery_ids:
                time.sleep(0.05)
