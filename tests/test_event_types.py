"""The type of the event, from the sender's request to the log: for every provider whose place of it is known, and for
senders that put it into a header of their own."""

import json
from collections.abc import Callable, Iterator
from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.delivery import Delivery
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.ids import delivery_id
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.sign import example_secret, sign
from hookmill.domain.webhook import AuthMode
from hookmill.management import WebhookWithSecret
from hookmill.runs.package import write_package
from tests.support.world import PUBLIC_URL, Answer, World

KNOWN = [name for name in catalogue.names() if catalogue.find(name).event_for(name) is not None]
EVENT = "order.größer"


@pytest.fixture
def wide_world(store_url: str) -> Iterator[World]:
    """A world whose factory may have a webhook for every provider."""
    world = World(store_url, webhooks_per_factory=200)
    yield world
    world.close()
    assert world.failures == []


class Provider:
    """A provider of the catalogue that sends signed deliveries to a webhook of its own."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.scheme = world, name, catalogue.find(name)
        event = self.scheme.event_for(name)
        assert event is not None
        self.place = event.source
        secret = example_secret(self.scheme, sha512(name.encode()).digest())
        self._signing = secret.sender_secret
        self.made = world.webhook(
            name, auth_mode=AuthMode.SIGNATURE, signature_scheme=name, secret=secret.webhook_secret
        )

    def signed(self, body: bytes, event: str) -> dict[str, str]:
        """The headers of a delivery that reports this event."""
        signed = sign(self.scheme, self._signing, body, "", self.world.clock(), event=(self.place, event))
        return dict(signed.headers)

    def send(self, event: str | None, **fields: Any) -> Delivery:
        """The delivery as it is logged, a moment after the one before."""
        self.world.clock.advance(seconds=0.001)
        path = f"/webhooks/w/{self.made.webhook.uid}"
        placed = (self.place, event) if event is not None else None
        body = json.dumps({"n": self.world.clock(), **fields}).encode()
        signed = sign(self.scheme, self._signing, body, PUBLIC_URL + path, self.world.clock(), event=placed)
        headers = [(name, value.encode().decode("latin-1")) for name, value in signed.headers]
        query = signed.url.removeprefix(PUBLIC_URL)
        answer = self.world.request("POST", query, headers=headers, body=signed.body)
        assert answer.status == 202, (self.name, answer.body)
        return self.world.log(self.made)[0]


def test_the_event_type_of_every_known_provider_is_recorded(wide_world: World):
    recorded = {}
    for name in KNOWN:
        provider = Provider(wide_world, name)
        delivery = provider.send(EVENT)
        recorded[name] = (delivery.event, delivery.event_signed)

    assert recorded == {name: (EVENT, catalogue.find(name).covers_event(name)) for name in KNOWN}


def test_the_envelope_has_the_event_type_of_every_provider(wide_world: World, tmp_path: Path):
    held = {}
    for name in KNOWN:
        provider = Provider(wide_world, name)
        wide_world.automation(name, provider.made)
        provider.send(EVENT)
        [run] = wide_world.runs(provider.made)
        held[name] = json.loads(write_package(tmp_path, run, b"{}").envelope_file.read_text())["event"]

    assert held == {name: {"type": EVENT, "signed": catalogue.find(name).covers_event(name)} for name in KNOWN}


def test_the_envelope_of_a_delivery_without_an_event_type_says_so(world: World, tmp_path: Path):
    provider = Provider(world, "github")
    world.automation("triage", provider.made)
    provider.send(None)
    [run] = world.runs(provider.made)

    assert json.loads(write_package(tmp_path, run, b"{}").envelope_file.read_text())["event"] is None


def test_a_replay_has_the_event_type_of_its_delivery(world: World):
    provider = Provider(world, "github")
    automation = world.automation("triage", provider.made)
    delivery = provider.send("push")

    [replayed] = world.management.log.replay(world.may, delivery_id(delivery.key), automation.id)

    assert replayed.event == ("push", False)


def test_the_log_is_narrowed_by_the_event_type_of_every_known_provider(wide_world: World):
    narrowed = {}
    for name in KNOWN:
        provider = Provider(wide_world, name)
        wanted = provider.send(EVENT)
        provider.send("another")
        rows = wide_world.management.log.newest(wide_world.may, webhook=name, event=EVENT)
        narrowed[name] = [row.key for row in rows] == [wanted.key]

    assert set(narrowed.values()) == {True}


def test_a_provider_that_says_nothing_of_the_event_has_no_event_type(world: World):
    delivery = Provider(world, "github").send(None)

    assert (delivery.event, delivery.event_signed) == (None, None)


# Filters


def test_a_filter_on_the_event_type_of_every_known_provider_starts_what_matches(wide_world: World):
    results = {}
    for name in KNOWN:
        provider = Provider(wide_world, name)
        of_events(wide_world, name, provider.made, [EVENT, "further"])
        wanted, others = provider.send(EVENT), [provider.send("another"), provider.send(None)]
        runs = [run.delivery_key for run in wide_world.runs(provider.made)]
        back = wide_world.management.filters.backtest(wide_world.may, event_types=[EVENT], webhook_ids=[name])
        results[name] = (
            runs == [wanted.key],
            [row.key for row in back.matching] == [wanted.key],
            {row.key for row in back.others} == {row.key for row in others},
        )

    assert {name: result for name, result in results.items() if result != (True, True, True)} == {}
    assert len(results) > 60


def test_admission_tests_backtests_and_explanations_agree(world: World):
    """Of every delivery and every filter: whether a run was started is what each of the others says."""
    made = world.webhook(event_header="X-Kind")
    drafts: list[tuple[list[str] | None, Any]] = [
        (events, payload)
        for events in (None, ["paid"], ["Paid", "refunded"], ["paid", "refunded"])
        for payload in (None, {"n": [1]}, {"n": {"not_in": [1]}})
    ]
    automations = [
        of_events(world, f"draft {number}", made, events, payload) for number, (events, payload) in enumerate(drafts)
    ]
    sent = []
    for number, kind in enumerate(("paid", "refunded", "PAID", "", "paid")):
        world.clock.advance(seconds=1)
        body = b'{"n": %d, "of": %d}' % (number % 2, number)
        sent.append(world.post(made, body, headers={"X-Kind": kind}).delivery_id)
    started = {(delivery_id(run.delivery_key), run.automation_id) for run in world.runs(made)}
    filters = world.management.filters

    for automation, (events, payload) in zip(automations, drafts, strict=True):
        matching = {shown for shown in sent if (shown, automation.id) in started}
        back = filters.backtest(world.may, payload_filter=payload, event_types=events)
        tested = {
            shown
            for shown in sent
            if filters.test(world.may, shown, payload_filter=payload, event_types=events).would_trigger
        }
        explained = {
            shown
            for shown in sent
            for each in filters.explain(world.may, shown)
            if each.automation.id == automation.id and each.would_trigger
        }
        assert {delivery_id(row.key) for row in back.matching} == tested == explained == matching, (events, payload)
    assert 20 < len(started) < len(sent) * len(drafts) - 20


def test_a_delivery_that_is_replayed_is_matched_by_its_stored_event_type(world: World):
    made = world.webhook(event_header="X-Kind")
    of_paid = of_events(world, "of paid", made, ["paid"])
    of_refunds = of_events(world, "of refunds", made, ["refunded"])
    sent = world.post(made, headers={"X-Kind": "paid"}).delivery_id
    world.management.webhooks.change(world.may, "source", event_header=None)

    [replayed] = world.management.log.replay(world.may, sent)

    assert (replayed.automation_id, replayed.event) == (of_paid.id, ("paid", False))
    with pytest.raises(Conflict, match="does not trigger automation 'of refunds'"):
        world.management.log.replay(world.may, sent, of_refunds.id)


def test_a_captured_delivery_can_come_again_under_another_unsigned_event_type_as_a_duplicate_only(world: World):
    provider = Provider(world, "github")
    of_events(world, "triage", provider.made, ["release"])
    body = b'{"n": 1}'
    path = f"/webhooks/w/{provider.made.webhook.uid}"
    signed = provider.signed(body, "push")

    world.request("POST", path, headers=signed, body=body)
    world.clock.advance(seconds=1)
    world.request("POST", path, headers=signed | {"x-github-event": "release"}, body=body)

    assert world.labels(provider.made) == ["Duplicate", "Accepted"]
    assert world.runs(provider.made) == []


def test_a_webhook_without_event_types_is_warned_of_where_a_trigger_asks_for_them(world: World):
    silent, typed = world.webhook("silent"), world.webhook("typed", event_header="X-Kind")
    both = of_events(world, "both", silent, ["paid"], None, typed)
    warnings = world.management.automations.warnings

    [warning] = warnings(world.may, both)

    assert warning.startswith(f"Deliveries of 'silent' ({silent.webhook.uid}) have no event type")
    assert warnings(world.may, of_events(world, "any", silent, None)) == []


def of_events(
    world: World,
    name: str,
    made: WebhookWithSecret,
    events: list[str] | None,
    payload: Any = None,
    *others: WebhookWithSecret,
) -> Any:
    """An automation whose trigger takes these event types and this payload."""
    chosen: dict[str, Any] = {"webhook_ids": [each.webhook.uid for each in (made, *others)]}
    chosen |= {"event": events} if events is not None else {}
    chosen |= {"payload": payload} if payload is not None else {}
    trigger = {"provider": "webhook", "event": "received", "filter": chosen}
    return world.management.automations.create(world.may, name, prompt="Look.", triggers=[trigger])


# Senders that put it into a header of their own


HMAC = {"header": "X-Signature"}
MODES: list[dict[str, Any]] = [
    {"auth_mode": AuthMode.TOKEN},
    {"auth_mode": AuthMode.URL_TOKEN},
    {"auth_mode": AuthMode.SIGNATURE, "signature_scheme": "hmac", "signature_options": HMAC, "secret": "given-secret"},
]
Post = Callable[..., Answer]


def post(world: World, made: WebhookWithSecret, body: bytes = b"{}", headers: dict[str, str] | None = None) -> Answer:
    """A delivery as the webhook's sender sends it, a moment after the one before."""
    world.clock.advance(seconds=0.001)
    headers = headers or {}
    if made.webhook.auth_mode is not AuthMode.SIGNATURE:
        return world.post(made, body, headers=headers)
    from hookmill.domain.signatures.rule import scheme_named

    scheme = scheme_named("hmac", made.webhook.signature_options)
    path = f"/webhooks/w/{made.webhook.uid}"
    draft = sign(scheme, "given-secret", body, PUBLIC_URL + path, world.clock())
    return world.request("POST", path, headers=dict(draft.headers) | headers, body=body)


@pytest.mark.parametrize("choices", MODES, ids=["token", "url_token", "hmac"])
def test_the_event_type_is_read_from_the_header_that_the_webhook_names(world: World, choices):
    made = world.webhook(event_header="X-Event-Type", **choices)

    post(world, made, b"1", {"x-event-type": "order.paid"})
    post(world, made, b"2")

    assert [(row.event, row.event_signed) for row in world.log(made)] == [(None, None), ("order.paid", False)]


def test_a_header_that_the_sender_signs_gives_a_signed_event_type(world: World):
    options = {"header": "X-Signature", "content": "{header:X-Kind}.{body}"}
    choices = MODES[2] | {"signature_options": options, "event_header": "X-KIND"}
    made = world.webhook(**choices)
    from hookmill.domain.signatures.rule import scheme_named

    path = f"/webhooks/w/{made.webhook.uid}"
    signed = sign(
        scheme_named("hmac", options), "given-secret", b"{}", PUBLIC_URL, world.clock(), event=("header:X-Kind", "paid")
    )
    sent = world.request("POST", path, headers=dict(signed.headers), body=b"{}")
    world.clock.advance(seconds=0.001)
    changed = world.request("POST", path, headers=dict(signed.headers) | {"X-Kind": "refunded"}, body=b"{}")

    assert (sent.status, changed.status) == (202, 401)
    assert [(row.event, row.event_signed) for row in world.log(made)][-1] == ("paid", True)


def test_every_authenticated_attempt_has_its_event_type_and_no_other(world: World):
    made = world.webhook(event_header="X-Kind")
    headers = {"X-Kind": "paid", "X-Service-Delivery-Id": "event-1"}

    post(world, made, b"{}", headers)
    post(world, made, b"{}", headers)
    post(world, made, b"no JSON", headers)
    post(world, made, b"1" * 300_000, headers)
    world.clock.advance(seconds=0.001)
    world.post(made, b"{}", token="wrong", headers=headers)

    assert [(row.label.wording, row.event) for row in reversed(world.log(made))] == [
        ("Accepted", "paid"),
        ("Duplicate", "paid"),
        ("Rejected (invalid JSON)", "paid"),
        ("Rejected (too large)", "paid"),
        ("Rejected (auth)", None),
    ]


def test_an_event_type_that_can_not_be_used_refuses_nothing(world: World):
    made = world.webhook(event_header="X-Kind")

    answers = [
        post(world, made, b"%d" % number, {"X-Kind": value}).status
        for number, value in enumerate(["", " ", "a" * 201, "a" * 8000, "gr\xf6\xdfer", "a\tb", "\x85"])
    ]

    assert set(answers) == {202}
    assert {row.event for row in world.log(made)} == {None}


def test_a_header_that_came_with_two_values_gives_no_event_type(world: World):
    made = world.webhook(event_header="X-Kind")
    bearer = ("Authorization", f"Bearer {made.reveal()}")

    world.post(made, b"1", headers=[bearer, ("X-Kind", "paid"), ("X-Kind", "refunded")])
    world.clock.advance(seconds=0.001)
    world.post(made, b"2", headers=[bearer, ("X-Kind", "paid"), ("X-Kind", "paid")])

    assert [row.event for row in world.log(made)] == ["paid", None]


def test_a_new_event_header_holds_at_once_in_another_process(world: World):
    made, other = world.webhook(), world.beside()
    other.post(made, b"1", headers={"X-Kind": "paid"})

    world.management.webhooks.change(world.may, "source", event_header="X-Kind")
    world.clock.advance(seconds=0.001)
    other.post(made, b"2", headers={"X-Kind": "paid"})

    assert [row.event for row in world.log(made)] == ["paid", None]


@pytest.mark.parametrize(
    ("choices", "header", "fault"),
    [
        (MODES[0], "Authorization", "Authorization carries credentials, and event types are stored and shown"),
        (MODES[0], "Host", "Host belongs to the connection"),
        (MODES[0], "X Kind", "'X Kind' is not a header name"),
        (MODES[2], "x-signature", "x-signature is part of the sender's signature"),
        (
            {"auth_mode": AuthMode.SIGNATURE, "signature_scheme": "github"},
            "X-Kind",
            "is read from the header x-github-event",
        ),
    ],
)
def test_an_unusable_event_header_is_refused(world: World, choices, header, fault):
    with pytest.raises(Invalid, match=fault):
        world.webhook(event_header=header, **choices)

    made = world.webhook(**choices)
    with pytest.raises(Invalid, match=fault):
        world.management.webhooks.change(world.may, made.webhook.uid, event_header=header)

    assert world.management.webhooks.get(world.may, made.webhook.uid).event_header is None
