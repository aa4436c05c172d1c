"""Triggers as people write them, and which deliveries they select."""

import json
from dataclasses import replace
from typing import Any

import pytest

from hookmill.domain import payload
from hookmill.domain.automation import (
    EVENT_TYPES_MAX,
    Automation,
    DeliveryFilter,
    Subscription,
    Trigger,
    TriggersByKind,
    triggers_from_json,
    triggers_from_stored,
)
from hookmill.domain.errors import Invalid, InvalidFilter
from hookmill.domain.filters import CompiledFilter, compile_filter
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.payload import Parsed

AUTOMATION = Automation(
    id=AutomationId("aut_1"),
    factory_id=FactoryId("fac_1"),
    name="triage",
    enabled=True,
    version=1,
    prompt="Look.",
    runner="package",
    triggers=(),
    created_at=0,
    updated_at=0,
)


def test_a_trigger_without_a_payload_filter_takes_every_payload():
    [trigger] = triggers_from_json([written(["wh_a"])]).delivery_triggers

    assert trigger == Trigger(webhook_ids=(WebhookUid("wh_a"),), payload=None)


def test_a_trigger_with_a_payload_filter_keeps_it_compiled():
    [trigger] = triggers_from_json([written(["wh_a"], {"action": ["opened"]})]).delivery_triggers

    assert trigger.payload == compile_filter({"action": ["opened"]})


def test_a_trigger_reads_back_as_it_was_written():
    given = [
        written(["wh_a", "wh_b"], {"a": {"b": {"in": ["x"], "exists": True}}, "n": [1, 2.5, None]}),
        written(["wh_c"]),
    ]

    assert [trigger.as_json() for trigger in triggers_from_json(given).delivery_triggers] == given


def test_a_webhook_that_is_named_twice_counts_once():
    [trigger] = triggers_from_json([written(["wh_a", "wh_b", "wh_a"])]).delivery_triggers

    assert trigger.webhook_ids == ("wh_a", "wh_b")


def test_an_automation_selects_the_webhooks_of_all_its_triggers():
    triggers = triggers_from_json([written(["wh_a", "wh_b"]), written(["wh_b", "wh_c"])]).delivery_triggers
    automation = replace(AUTOMATION, triggers=triggers)

    assert automation.selected_webhook_uids() == {"wh_a", "wh_b", "wh_c"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "list of one or more triggers"),
        ([], "list of one or more triggers"),
        ({}, "list of one or more triggers"),
        (["wh_a"], "/triggers/0: a trigger must be an object"),
        ([{"provider": "webhook", "event": "received"}], "/triggers/0/filter: must be an object with webhook_ids"),
        (
            [{"provider": "webhook", "event": "received", "filter": []}],
            "/triggers/0/filter: must be an object with webhook_ids",
        ),
        ([{"provider": "email", "event": "received", "filter": {"webhook_ids": ["wh_a"]}}], "provider: webhook"),
        ([{"provider": "webhook", "event": "sent", "filter": {"webhook_ids": ["wh_a"]}}], "event: received"),
        (
            [{"provider": "webhook", "event": "received", "filter": {"webhook_ids": ["wh_a"]}, "x": 1}],
            "unknown key 'x'",
        ),
        (
            [{"provider": "webhook", "event": "received", "filter": {"webhook_ids": ["wh_a"], "y": 1}}],
            "unknown key 'y'",
        ),
        ([{"provider": "webhook", "event": "received", "filter": {}}], "/triggers/0/filter/webhook_ids"),
    ],
)
def test_what_is_no_trigger_is_refused_with_its_place(given, said):
    with pytest.raises(Invalid, match=said):
        triggers_from_json(given)


@pytest.mark.parametrize(
    "uids", [[], "wh_a", {"wh_a": 1}, [1], [None], ["source"], ["webhooks/source.yaml"], [""], ["wh_" + "a" * 100]]
)
def test_webhook_ids_are_uids_and_nothing_else(uids):
    with pytest.raises(Invalid, match="/triggers/0/filter/webhook_ids"):
        triggers_from_json([written(uids)])


def test_the_place_of_a_fault_counts_from_the_first_trigger():
    with pytest.raises(Invalid, match="/triggers/1/filter/webhook_ids"):
        triggers_from_json([written(["wh_a"]), written(["source"])])


def test_more_triggers_or_webhooks_than_anybody_needs_are_refused():
    with pytest.raises(Invalid, match="at most 20 triggers; got 21"):
        triggers_from_json([written(["wh_a"])] * 21)
    with pytest.raises(Invalid, match="at most 100 webhooks; got 101"):
        triggers_from_json([written([f"wh_{i}" for i in range(101)])])


def test_each_problem_of_a_payload_filter_has_its_place():
    with pytest.raises(InvalidFilter) as refused:
        triggers_from_json([written(["wh_a"], {"a": [], "b": {"c": "d"}})])

    assert [fault.pointer for fault in refused.value.faults] == [
        "/triggers/0/filter/payload/a",
        "/triggers/0/filter/payload/b/c",
    ]


@pytest.mark.parametrize("given", [None, [], "x", 1])
def test_a_payload_filter_that_is_no_object_is_refused(given):
    with pytest.raises(InvalidFilter, match="/triggers/0/filter/payload"):
        triggers_from_json([written(["wh_a"], given)])


def test_a_subscription_matches_when_any_of_its_filters_does():
    subscription = subscribed(compiled({"a": [1]}), compiled({"a": [2]}))

    assert [subscription.matches(None, parsed(b'{"a": %d}' % value)) for value in (1, 2, 3)] == [True, True, False]


def test_a_subscription_without_a_filter_among_them_matches_everything():
    assert subscribed(compiled({"a": [1]}), None).matches(None, parsed(b"[]"))


def test_an_empty_filter_matches_everything():
    assert subscribed(compiled({})).matches(None, parsed(b"0"))


def test_a_subscription_without_any_filter_left_matches_nothing():
    assert not subscribed().matches(None, parsed(b"{}"))


# Event types


def test_a_trigger_with_event_types_keeps_each_once():
    [trigger] = triggers_from_json([of_events(["push", "Push Hook", "push"])]).delivery_triggers

    assert trigger.event_types == ("push", "Push Hook")
    assert not trigger.matches_every_delivery


def test_a_trigger_with_event_types_reads_back_as_it_was_written():
    given = of_events(["größer", "\u65e5", 'a"b\\'], {"a": [1]})

    [trigger] = triggers_from_json([given]).delivery_triggers
    stored = triggers_from_stored([json.loads(trigger.as_text())])

    assert trigger.as_json() == given
    assert stored == TriggersByKind(delivery_triggers=(trigger,))


@pytest.mark.parametrize(
    ("events", "pointers"),
    [
        (None, [""]),
        ("push", [""]),
        ({}, [""]),
        ({"in": ["push"]}, [""]),
        ([], [""]),
        ([f"event {number}" for number in range(EVENT_TYPES_MAX + 1)], [""]),
        (["push", ""], ["/1"]),
        ([" ", "push", 1, None, ["push"], True], ["/0", "/2", "/3", "/4", "/5"]),
        (["a" * 201, "a\tb", "a\x00", "\ud83d", "\u202e"], ["/0", "/1", "/2", "/3", "/4"]),
    ],
)
def test_event_types_that_no_delivery_can_have_are_refused_at_their_places(events, pointers):
    with pytest.raises(InvalidFilter) as refused:
        triggers_from_json([of_events(events)])

    assert [fault.pointer for fault in refused.value.faults] == [f"/triggers/0/filter/event{each}" for each in pointers]


def test_problems_of_event_types_and_of_the_payload_filter_are_told_together():
    with pytest.raises(InvalidFilter) as refused:
        triggers_from_json([of_events([1], {"a": []})])

    assert [fault.pointer for fault in refused.value.faults] == [
        "/triggers/0/filter/event/0",
        "/triggers/0/filter/payload/a",
    ]


def test_as_many_event_types_as_are_allowed_are_taken():
    events = [f"{number:0200}" for number in range(EVENT_TYPES_MAX)]

    assert triggers_from_json([of_events(events)]).delivery_triggers[0].event_types == tuple(events)


@pytest.mark.parametrize(
    ("event", "body", "matches"),
    [
        ("push", b'{"a": 1}', True),
        ("Push", b'{"a": 1}', False),
        ("pus", b'{"a": 1}', False),
        ("push ", b'{"a": 1}', False),
        (None, b'{"a": 1}', False),
        ("push", b'{"a": 2}', False),
    ],
)
def test_the_event_type_and_the_payload_must_both_match(event, body, matches):
    chosen = DeliveryFilter(event_types=("ping", "push"), payload=compiled({"a": [1]}))

    assert chosen.matches(event, parsed(body)) is matches


@pytest.mark.parametrize("event", ["push", None])
def test_without_event_types_any_delivery_passes_the_event_check(event):
    assert DeliveryFilter().matches(event, parsed(b"{}"))


def test_a_subscription_matches_by_any_of_its_triggers():
    [one, other] = triggers_from_json([of_events(["push"]), of_events(["ping"], {"a": [1]})]).delivery_triggers
    subscription = Subscription(automation_id=AutomationId("aut_1"), version=1, triggers=(one, other))

    found = [subscription.matches(event, parsed(b'{"a": 2}')) for event in ("push", "ping", "other", None)]

    assert found == [True, False, False, False]


def test_a_trigger_with_event_types_alone_does_not_take_every_delivery():
    automation = replace(AUTOMATION, triggers=triggers_from_json([of_events(["push"])]).delivery_triggers)

    assert automation.unfiltered_webhook_uids() == frozenset()
    assert automation.selected_webhook_uids() == {"wh_a"}


def of_events(events: object, *payload_filter: object) -> dict[str, Any]:
    trigger: dict[str, Any] = written(["wh_a"], *payload_filter)
    trigger["filter"]["event"] = events
    return trigger


def written(uids: object, *payload_filter: object) -> dict[str, object]:
    chosen: dict[str, object] = {"webhook_ids": uids}
    if payload_filter:
        chosen["payload"] = payload_filter[0]
    return {"provider": "webhook", "event": "received", "filter": chosen}


def subscribed(*filters: CompiledFilter | None) -> Subscription:
    chosen = tuple(DeliveryFilter(payload=each) for each in filters)
    return Subscription(automation_id=AutomationId("aut_1"), version=1, triggers=chosen)


def compiled(source: object) -> CompiledFilter:
    made = compile_filter(source)
    assert isinstance(made, CompiledFilter)
    return made


def parsed(body: bytes) -> Parsed:
    read = payload.parse(body)
    assert isinstance(read, Parsed)
    return read
