"""Floods from strangers and from senders: they are refused, they leave little behind, and the real sender is served."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from hookmill.domain.limits import BODY_BYTES_MAX, FAILED_AUTHENTICATIONS_PER_MINUTE
from hookmill.management import Management, WebhookWithSecret
from tests.http.conftest import ENOUGH
from tests.http.hostile import Target, honest
from tests.http.wire import Wire, WireAnswer
from tests.support.service import Service, default_factory, serving

FLOODERS = 8
MEGABYTE = 1_000_000


def test_a_flood_of_bad_credentials_is_refused_counted_and_not_logged_on_and_on(tmp_path: Path):
    with serving(tmp_path, **ENOUGH | {"failed_authentications_per_minute": 60}) as service:
        with service.management() as management:
            factory = default_factory(management)
            webhook = management.create_webhook(factory, "flooded")
            uid = webhook.webhook.uid

            flood = [stranger(uid, number) for number in range(600)]
            with honest_sender(service, webhook) as waits:
                answers = asked_at_once(service, flood)

            assert Counter(answer.status for answer in answers) == {401: 60, 429: 540}
            assert all(1 <= int(a.headers["retry-after"]) <= 60 for a in answers if a.status == 429)
            assert max(waits) < 2.0
            labels = Counter(row.label.shown for row in management.deliveries(factory, limit=10_000))
            assert labels["Rejected (auth)"] == 60
            assert eventually(lambda: refused(management, "failed_authentications") == 540)


def test_a_sender_is_served_although_strangers_have_used_up_their_budget(tmp_path: Path):
    with serving(tmp_path, **ENOUGH | {"failed_authentications_per_minute": 3}) as service:
        with service.management() as management:
            webhook = management.create_webhook(default_factory(management), "flooded")
            strangers = [service.post(webhook, token="wrong").status for _ in range(5)]

            answer = service.post(webhook)

            assert strangers == [401, 401, 401, 429, 429]
            assert answer.status == 202


def test_a_strangers_claim_of_a_huge_body_costs_others_nothing(service: Service, webhook: WebhookWithSecret):
    claims = [stranger(webhook.webhook.uid, number, length=b"999999999") for number in range(400)]

    with honest_sender(service, webhook) as waits:
        answers = asked_at_once(service, claims)

    assert {answer.status for answer in answers} == {401}
    assert max(waits) < 2.0


def test_a_flood_of_unknown_webhooks_disturbs_nobody(
    service: Service, management: Management, webhook: WebhookWithSecret
):
    before = len(management.deliveries(default_factory(management), limit=100_000))

    with memory_grown(service) as grown, honest_sender(service, webhook) as waits:
        answers = asked_at_once(service, [stranger(f"wh_{number:040}", number) for number in range(2_000)])

    assert {answer.status for answer in answers} == {404}
    assert max(waits) < 2.0
    after = len(management.deliveries(default_factory(management), limit=100_000))
    assert after - before == len(waits)
    assert max(grown) < 32 * MEGABYTE


@pytest.mark.parametrize("framing", ["declared", "in chunks", "by strangers"])
def test_a_flood_of_oversized_bodies_takes_no_memory(
    service: Service, webhook: WebhookWithSecret, target: Target, framing: str
):
    size = 8 * MEGABYTE
    head, _, _ = honest(target, b"too large").replace(b"\r\nContent-Length: 2", b"").partition(b"\r\n\r\n")
    if framing == "by strangers":
        head = head.replace(target.token, b"wrong")
    if framing == "in chunks":
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        offer = head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * (size // 65_536)
    else:
        offer = head + b"\r\nContent-Length: %d\r\n\r\n" % size + b" " * size

    with memory_grown(service) as grown, honest_sender(service, webhook) as waits:
        answers = asked_at_once(service, [offer] * 100)

    assert {answer.status for answer in answers} == {401 if framing == "by strangers" else 413}
    assert max(grown) < 32 * MEGABYTE
    assert max(waits) < 2.0


def test_the_worst_bodies_at_once_delay_other_senders_little(
    service: Service, management: Management, webhook: WebhookWithSecret, target: Target
):
    watched = management.create_webhook(default_factory(management), "worst")
    selection = {"webhook_ids": [watched.webhook.uid], "payload": {"a": {"b": ["c"]}}}
    management.create_automation(
        default_factory(management),
        "reads every body",
        prompt="Look.",
        triggers=[{"provider": "webhook", "event": "received", "filter": selection}],
    )
    bodies = [body for body, _ in itertools.product(worst_bodies(), range(64 // len(worst_bodies())))]

    with memory_grown(service) as grown, honest_sender(service, webhook) as waits:
        with ThreadPoolExecutor(64) as senders:
            numbered = list(enumerate(bodies))
            statuses = list(senders.map(lambda each: post_event(service, watched, *each), numbered_apart(numbered)))

    assert set(statuses) <= {202, 400}
    assert sorted(waits)[int(len(waits) * 0.99)] < 1.0
    assert max(grown) < 500 * MEGABYTE
