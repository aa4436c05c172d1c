"""Rotates the secret of a webhook, disables the webhook and enables it, during the drill."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from hookmill.management import Management, WebhookWithSecret
from tests.faults.senders import Event, delivery_request, exchange
from tests.support.service import operator

ROUNDS: Final = 3
SEND_SECONDS_MAX: Final = 30.0


class ChangingWebhook:
    """The webhook, the events that were delivered to it, and counts of wrong answers."""

    def __init__(self, webhook: WebhookWithSecret, ports: Sequence[int]):
        self._webhook = webhook
        self._ports = ports
        self.events: list[Event] = []
        self.accepted_outdated = 0
        """The number of 202s although the secret was rotated, or the webhook was disabled, before the request."""
        self.refused_current = 0
        """The number of answers other than 202 and 503 to the current secret of the enabled webhook."""

    def change(self, management: Management, chance: random.Random, retry: Callable[[Callable[[], Any]], Any]):
        """Rotate the secret, then disable and enable the webhook. Each step must apply immediately in every service.

        `retry` repeats a step while the database is unavailable.
        """
        uid = self._webhook.webhook.uid
        may = retry(lambda: operator(management))
        for _ in range(ROUNDS):
            outdated = self._webhook
            self._webhook = retry(lambda: management.webhooks.rotate(may, uid))
            self._count_wrong_acceptances(outdated)
            self._send(chance)
            retry(lambda: management.webhooks.set_enabled(may, uid, False))
            self._count_wrong_acceptances(self._webhook)
            retry(lambda: management.webhooks.set_enabled(may, uid, True))
            self._send(chance)

    def _count_wrong_acceptances(self, webhook: WebhookWithSecret):
        for port in self._ports:
            answer = exchange(port, delivery_request(webhook, b'{"outdated": %d}' % time.monotonic_ns()))
            self.accepted_outdated += answer is not None and answer.status == 202

    def _send(self, chance: random.Random):
        """Deliver an event with the current secret, and retry until a 202."""
        event = Event(self._webhook, b'{"change": %d}' % len(self.events))
        self.events.append(event)
        deadline = time.monotonic() + SEND_SECONDS_MAX
        while not event.delivery_ids and time.monotonic() < deadline:
            answer = exchange(chance.choice(self._ports), delivery_request(event.webhook, event.body))
            if answer is not None and answer.status == 202:
                event.delivery_ids.append(answer.delivery_id)
            elif answer is not None and answer.status != 503:
                self.refused_current += 1
            if not event.delivery_ids:
                time.sleep(0.05)
