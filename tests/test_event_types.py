"""Event types from the request to the log, in the envelope and in filters: of every provider that sends them at a known
place, and of other senders, in the webhook's event header."""

import json
from hashlib import sha512
from typing import Any

import pytest

from hookmill.domain.delivery import Delivery
from hookmill.domain.errors import Conflict
from hookmill.domain.ids import delivery_id
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import sign
from hookmill.domain.webhook import AuthMode
from hookmill.management import WebhookWithSecret, draft_filter
from hookmill.runs.package import write_package
from tests.support.automations import automation_created
from tests.support.example_keys import example_pair
from tests.support.sqlite_usually import store_url
from tests.support.world import PUBLIC_URL, Answer, World, world_for_test

__all__ = ["store_url"]

PROVIDERS = [name for name in catalogue.names() if catalogue.find(name).event_for(name) is not None]
EVENT = "order.größer"


@pytest.fixture
def wide_world(store_url):
    """A world whose factory may have a webhook for every provider."""
    yield from world_for_test(store_url, webhooks_per_factory=200)


class Provider:
    """A provider of the catalogue that sends signed deliveries to a webhook of its own."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.scheme = world, name, catalogue.find(name)
        event = self.scheme.event_for(name)
        assert event is not None
        self.place = event.source
        secret = example_pair(self.scheme, sha512(name.encode()).digest())
        self._signing = secret.sender_secret
        self.webhook = world.webhook(
            name, auth_mode=AuthMode.SIGNATURE, signature_scheme=name, secret=secret.webhook_secret
        )

    def headers(self, body: bytes, event: str) -> dict[str, str]:
        """The headers of a signed delivery with this event type."""
        signed = sign(self.scheme, self._signing, body, "", self.world.clock(), event=(self.place, event))
        return dict(signed.headers)

    def send(self, event: str | None, **fields: Any) -> Delivery:
        """Post a delivery a moment after the last one. Returns its row in the log."""
        self.world.clock.advance(seconds=0.001)
        path = f"/webhooks/w/{self.webhook.webhook.uid}"
        placed_event = (self.place, event) if event is not None else None
        body = json.dumps({"n": self.world.clock(), **fields}).encode()
        signed = sign(self.scheme, self._signing, body, PUBLIC_URL + path, self.world.clock(), event=placed_event)
        headers = [(name, value.encode().decode("latin-1")) for name, value in signed.headers]
        query = signed.url.removeprefix(PUBLIC_URL)
        answer = self.world.request("POST", query, headers=headers, body=signed.body)
        assert answer.status == 202, (self.name, answer.body)
        return self.world.log(self.webhook)[0]


def test_event_type_of_every_provider_is_recorded(wide_world):
    recorded = {}
    for name in PROVIDERS:
        provider = Provider(wide_world, name)
        delivery = provider.send(EVENT)
        recorded[name] = (delivery.event, delivery.event_signed)

    assert recorded == {name: (EVENT, catalogue.find(name).covers_event(name)) for name in PROVIDERS}


def test_envelope_has_a_null_event_if_there_is_no_event_type(world, tmp_path):
    provider = Provider(world, "github")
    world.automation("triage", provider.webhook)
    provider.send(None)
    [run] = world.runs(provider.webhook)

    assert json.loads(write_package(tmp_path, run, b"{}").envelope_file.read_text())["event"] is None


def test_replayed_run_has_the_event_type_of_its_delivery(world):
    provider = Provider(world, "github")
    automation = world.automation("triage", provider.webhook)
    delivery = provider.send("push")

    [replayed] = world.management.log.replay(world.may, delivery_id(delivery.key), automation.id)

    assert replayed.event == ("push", False)


def test_delivery_without_an_event_has_no_event_type(world):
    delivery = Provider(world, "github").send(None)

    assert (delivery.event, delivery.event_signed) == (None, None)


# Filters


def test_trigger_can_filter_by_the_event_type_of_every_provider(wide_world):
    results = {}
    for name in PROVIDERS:
        provider = Provider(wide_world, name)
        automation_for(wide_world, name, provider.webhook, [EVENT, "further"])
        matching, others = provider.send(EVENT), [provider.send("another"), provider.send(None)]
        runs = [run.delivery_key for run in wide_world.runs(provider.webhook)]
        backtest = wide_world.management.filters.backtest(
            wide_world.may, draft_filter(event_types=[EVENT]), webhooks=[name]
        )
        results[name] = (
            runs == [matching.key],
            [row.key for row in backtest.matching] == [matching.key],
            {row.key for row in backtest.others} == {row.key for row in others},
        )

    assert {name: result for name, result in results.items() if result != (True, True, True)} == {}
    assert len(results) > 60


def test_admission_filter_tests_backtests_and_explanations_agree(world):
    """For every delivery and every filter, they give the same result as admission, which started a run or did not."""
    webhook = world.webhook(event_header="X-Kind")
    drafts: list[tuple[list[str] | None, Any]] = [
        (events, payload)
        for events in (None, ["paid"], ["Paid", "refunded"], ["paid", "refunded"])
        for payload in (None, {"n": [1]}, {"n": {"not_in": [1]}})
    ]
    automations = [
        automation_for(world, f"draft {number}", webhook, events, payload)
        for number, (events, payload) in enumerate(drafts)
    ]
    deliveries = []
    for number, kind in enumerate(("paid", "refunded", "PAID", "", "paid")):
        world.clock.advance(seconds=1)
        body = b'{"n": %d, "of": %d}' % (number % 2, number)
        deliveries.append(world.post(webhook, body, headers={"X-Kind": kind}).delivery_id)
    started = {(delivery_id(run.delivery_key), run.automation_id) for run in world.runs(webhook)}
    filters = world.management.filters

    for automation, (events, payload) in zip(automations, drafts, strict=True):
        matching = {delivery for delivery in deliveries if (delivery, automation.id) in started}
        backtest = filters.backtest(world.may, draft_filter(payload, events))
        tested = {
            delivery
            for delivery in deliveries
            if filters.test(world.may, delivery, draft_filter(payload, events)).would_trigger
        }
        explained = {
            delivery
            for delivery in deliveries
            for each in filters.explain(world.may, delivery)
            if each.automation.id == automation.id and each.would_trigger
        }
        assert {delivery_id(row.key) for row in backtest.matching} == tested == explained == matching, (events, payload)
    assert 20 < len(started) < len(deliveries) * len(drafts) - 20


def test_replay_matches_triggers_by_the_stored_event_type(world):
    webhook = world.webhook(event_header="X-Kind")
    paid_automation = automation_for(world, "paid", webhook, ["paid"])
    refund_automation = automation_for(world, "refunds", webhook, ["refunded"])
    delivery = world.post(webhook, headers={"X-Kind": "paid"}).delivery_id
    world.management.webhooks.change(world.may, "source", {"event_header": None})

    [replayed] = world.management.log.replay(world.may, delivery)

    assert (replayed.automation_id, replayed.event) == (paid_automation.id, ("paid", False))
    with pytest.raises(Conflict, match="does not trigger automation 'refunds'"):
        world.management.log.replay(world.may, delivery, refund_automation.id)


def test_captured_delivery_with_a_changed_event_type_is_a_duplicate(world):
    provider = Provider(world, "github")
    automation_for(world, "triage", provider.webhook, ["release"])
    body = b'{"n": 1}'
    path = f"/webhooks/w/{provider.webhook.webhook.uid}"
    headers = provider.headers(body, "push")

    world.request("POST", path, headers=headers, body=body)
    world.clock.advance(seconds=1)
    world.request("POST", path, headers=headers | {"x-github-event": "release"}, body=body)

    assert world.labels(provider.webhook) == ["Duplicate", "Accepted"]
    assert world.runs(provider.webhook) == []


def test_trigger_on_event_types_warns_about_webhooks_without_them(world):
    untyped, typed = world.webhook("untyped"), world.webhook("typed", event_header="X-Kind")
    automation = automation_for(world, "both", untyped, ["paid"], None, typed)
    warnings = world.management.automations.warnings

    [warning] = warnings(world.may, automation)

    assert warning.startswith(f"Deliveries of 'untyped' ({untyped.webhook.uid}) have no event type")
    assert warnings(world.may, automation_for(world, "any", untyped, None)) == []


def automation_for(
    world: World,
    name: str,
    webhook: WebhookWithSecret,
    events: list[str] | None,
    payload: Any = None,
    *others: WebhookWithSecret,
) -> Any:
    """Create an automation with a trigger for these event types and this payload."""
    delivery_filter: dict[str, Any] = {"webhook_ids": [each.webhook.uid for each in (webhook, *others)]}
    delivery_filter |= {"event": events} if events is not None else {}
    delivery_filter |= {"payload": payload} if payload is not None else {}
    trigger = {"provider": "webhook", "event": "received", "filter": delivery_filter}
    return automation_created(world.management, world.may, name, triggers=[trigger])


# Senders with an event header


SECRET = "supplied-secret"
HMAC = {"header": "X-Signature"}
MODES: list[dict[str, Any]] = [
    {"auth_mode": AuthMode.TOKEN},
    {"auth_mode": AuthMode.URL_TOKEN},
    {"auth_mode": AuthMode.SIGNATURE, "signature_scheme": "hmac", "signature_options": HMAC, "secret": SECRET},
]


def post(
    world: World, webhook: WebhookWithSecret, body: bytes = b"{}", headers: dict[str, str] | None = None
) -> Answer:
    """Post a delivery as the webhook's sender does, a moment after the last one."""
    world.clock.advance(seconds=0.001)
    headers = headers or {}
    if webhook.webhook.auth_mode is not AuthMode.SIGNATURE:
        return world.post(webhook, body, headers=headers)
    scheme = scheme_named("hmac", webhook.webhook.signature_options)
    path = f"/webhooks/w/{webhook.webhook.uid}"
    signed = sign(scheme, SECRET, body, PUBLIC_URL + path, world.clock())
    return world.request("POST", path, headers=dict(signed.headers) | headers, body=body)


@pytest.mark.parametrize("options", MODES, ids=["token", "url_token", "hmac"])
def test_event_type_is_read_from_the_event_header_of_the_webhook(world, options):
    webhook = world.webhook(event_header="X-Event-Type", **options)

    post(world, webhook, b"1", {"x-event-type": "order.paid"})
    post(world, webhook, b"2")

    assert [(row.event, row.event_signed) for row in world.log(webhook)] == [(None, None), ("order.paid", False)]


def test_signed_event_header_gives_a_signed_event_type(world):
    signature_options = {"header": "X-Signature", "content": "{header:X-Kind}.{body}"}
    webhook = world.webhook(**MODES[2] | {"signature_options": signature_options, "event_header": "X-KIND"})
    path = f"/webhooks/w/{webhook.webhook.uid}"
    signed = sign(
        scheme_named("hmac", signature_options),
        SECRET,
        b"{}",
        PUBLIC_URL,
        world.clock(),
        event=("header:X-Kind", "paid"),
    )
    original = world.request("POST", path, headers=dict(signed.headers), body=b"{}")
    world.clock.advance(seconds=0.001)
    changed = world.request("POST", path, headers=dict(signed.headers) | {"X-Kind": "refunded"}, body=b"{}")

    assert (original.status, changed.status) == (202, 401)
    assert [(row.event, row.event_signed) for row in world.log(webhook)][-1] == ("paid", True)


def test_only_authenticated_attempts_have_an_event_type(world):
    webhook = world.webhook(event_header="X-Kind")
    headers = {"X-Kind": "paid", "X-Service-Delivery-Id": "event-1"}

    post(world, webhook, b"{}", headers)
    post(world, webhook, b"{}", headers)
    post(world, webhook, b"no JSON", headers)
    post(world, webhook, b"1" * 300_000, headers)
    world.clock.advance(seconds=0.001)
    world.post(webhook, b"{}", token="wrong", headers=headers)

    assert [(row.label.wording, row.event) for row in reversed(world.log(webhook))] == [
        ("Accepted", "paid"),
        ("Duplicate", "paid"),
        ("Rejected (invalid JSON)", "paid"),
        ("Rejected (too large)", "paid"),
        ("Rejected (auth)", None),
    ]


def test_delivery_with_an_unusable_event_type_is_accepted_without_it(world):
    webhook = world.webhook(event_header="X-Kind")

    statuses = [
        post(world, webhook, b"%d" % number, {"X-Kind": value}).status
        for number, value in enumerate(["", " ", "a" * 201, "a" * 8000, "gr\xf6\xdfer", "a\tb", "\x85"])
    ]

    assert set(statuses) == {202}
    assert {row.event for row in world.log(webhook)} == {None}


def test_conflicting_event_headers_give_no_event_type(world):
    webhook = world.webhook(event_header="X-Kind")
    bearer = ("Authorization", f"Bearer {webhook.reveal()}")

    world.post(webhook, b"1", headers=[bearer, ("X-Kind", "paid"), ("X-Kind", "refunded")])
    world.clock.advance(seconds=0.001)
    world.post(webhook, b"2", headers=[bearer, ("X-Kind", "paid"), ("X-Kind", "paid")])

    assert [row.event for row in world.log(webhook)] == ["paid", None]


def test_new_event_header_applies_immediately_in_another_process(world):
    webhook, other = world.webhook(), world.another_process()
    other.post(webhook, b"1", headers={"X-Kind": "paid"})

    world.management.webhooks.change(world.may, "source", {"event_header": "X-Kind"})
    world.clock.advance(seconds=0.001)
    other.post(webhook, b"2", headers={"X-Kind": "paid"})

    assert [row.event for row in world.log(webhook)] == ["paid", None]
