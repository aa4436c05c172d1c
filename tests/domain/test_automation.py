"""Triggers in their JSON form, and which deliveries they select."""

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
from tests.support.triggers import received

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


def test_trigger_without_a_payload_filter_matches_every_payload():
    [trigger] = triggers_from_json([trigger_json(["wh_a"])]).delivery_triggers

    assert trigger == Trigger(webhook_ids=(WebhookUid("wh_a"),), payload=None)


def test_payload_filter_of_a_trigger_is_compiled():
    [trigger] = triggers_from_json([trigger_json(["wh_a"], {"action": ["opened"]})]).delivery_triggers

    assert trigger.payload == compile_filter({"action": ["opened"]})


def test_trigger_json_is_the_same_after_reading_and_writing():
    source = [
        trigger_json(["wh_a", "wh_b"], {"a": {"b": {"in": ["x"], "exists": True}}, "n": [1, 2.5, None]}),
        trigger_json(["wh_c"]),
    ]

    assert [trigger.as_json() for trigger in triggers_from_json(source).delivery_triggers] == source


def test_webhook_that_is_listed_twice_counts_once():
    [trigger] = triggers_from_json([trigger_json(["wh_a", "wh_b", "wh_a"])]).delivery_triggers

    assert trigger.webhook_ids == ("wh_a", "wh_b")


def test_automation_selects_the_webhooks_of_all_its_triggers():
    triggers = triggers_from_json([trigger_json(["wh_a", "wh_b"]), trigger_json(["wh_b", "wh_c"])]).delivery_triggers
    automation = replace(AUTOMATION, triggers=triggers)

    assert automation.selected_webhook_uids() == {"wh_a", "wh_b", "wh_c"}


@pytest.mark.parametrize(
    ("source", "message"),
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
            [received("wh_a", y=1)],
            "unknown key 'y'",
        ),
        ([{"provider": "webhook", "event": "received", "filter": {}}], "/triggers/0/filter/webhook_ids"),
    ],
)
def test_invalid_trigger_is_refused_with_its_pointer(source, message):
    with pytest.raises(Invalid, match=message):
        triggers_from_json(source)


@pytest.mark.parametrize(
    "uids", [[], "wh_a", {"wh_a": 1}, [1], [None], ["source"], ["webhooks/source.yaml"], [""], ["wh_" + "a" * 100]]
)
def test_webhook_ids_that_are_not_a_list_of_uids_are_refused(uids):
    with pytest.raises(Invalid, match="/triggers/0/filter/webhook_ids"):
        triggers_from_json([trigger_json(uids)])


def test_pointer_of_a_problem_contains_the_index_of_the_trigger():
    with pytest.raises(Invalid, match="/triggers/1/filter/webhook_ids"):
        triggers_from_json([trigger_json(["wh_a"]), trigger_json(["source"])])


def test_too_many_triggers_or_webhooks_are_refused():
    with pytest.raises(Invalid, match="at most 20 triggers; got 21"):
        triggers_from_json([trigger_json(["wh_a"])] * 21)
    with pytest.raises(Invalid, match="at most 100 webhooks; got 101"):
        triggers_from_json([trigger_json([f"wh_{i}" for i in range(101)])])


def test_every_problem_of_a_payload_filter_has_its_pointer():
    with pytest.raises(InvalidFilter) as refused:
        triggers_from_json([trigger_json(["wh_a"], {"a": {}, "b": {"c": "d"}})])

    assert [fault.pointer for fault in refused.value.faults] == [
        "/triggers/0/filter/payload/a",
        "/triggers/0/filter/payload/b/c",
    ]


@pytest.mark.parametrize("source", [None, [], "x", 1])
def test_payload_filter_that_is_not_an_object_is_refused(source):
    with pytest.raises(InvalidFilter, match="/triggers/0/filter/payload"):
        triggers_from_json([trigger_json(["wh_a"], source)])


def test_subscription_matches_if_any_of_its_payload_filters_matches():
    subscription = make_subscription(compiled({"a": [1]}), compiled({"a": [2]}))

    assert [subscription.matches(None, parsed(b'{"a": %d}' % value)) for value in (1, 2, 3)] == [True, True, False]


def test_subscription_matches_everything_if_one_trigger_has_no_filter():
    assert make_subscription(compiled({"a": [1]}), None).matches(None, parsed(b"[]"))


def test_empty_payload_filter_matches_everything():
    assert make_subscription(compiled({})).matches(None, parsed(b"0"))


def test_subscription_without_triggers_matches_nothing():
    assert not make_subscription().matches(None, parsed(b"{}"))


# Event types


def test_event_type_that_is_listed_twice_counts_once():
    [trigger] = triggers_from_json([event_trigger_json(["push", "Push Hook", "push"])]).delivery_triggers

    assert trigger.event_types == ("push", "Push Hook")
    assert not trigger.matches_every_delivery


def test_trigger_with_event_types_is_stored_without_change():
    source = event_trigger_json(["größer", "\u65e5", 'a"b\\'], {"a": [1]})

    [trigger] = triggers_from_json([source]).delivery_triggers
    stored = triggers_from_stored([json.loads(trigger.as_text())])

    assert trigger.as_json() == source
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
def test_impossible_event_types_are_refused_with_their_pointers(events, pointers):
    with pytest.raises(InvalidFilter) as refused:
        triggers_from_json([event_trigger_json(events)])

    assert [fault.pointer for fault in refused.value.faults] == [f"/triggers/0/filter/event{each}" for each in pointers]


def test_problems_of_event_types_and_payload_filter_are_reported_together():
    with pytest.raises(InvalidFilter) as refused:
        triggers_from_json([event_trigger_json([1], {"a": {}})])

    assert [fault.pointer for fault in refused.value.faults] == [
        "/triggers/0/filter/event/0",
        "/triggers/0/filter/payload/a",
    ]


def test_maximum_number_of_event_types_is_accepted():
    events = [f"{number:0200}" for number in range(EVENT_TYPES_MAX)]

    assert triggers_from_json([event_trigger_json(events)]).delivery_triggers[0].event_types == tuple(events)


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
def test_event_type_and_payload_must_both_match(event, body, matches):
    delivery_filter = DeliveryFilter(event_types=("ping", "push"), payload=compiled({"a": [1]}))

    assert delivery_filter.matches(event, parsed(body)) is matches


@pytest.mark.parametrize("event", ["push", None])
def test_delivery_filter_without_event_types_matches_any_event_type(event):
    assert DeliveryFilter().matches(event, parsed(b"{}"))


def test_subscription_matches_if_any_of_its_triggers_matches():
    [one, other] = triggers_from_json(
        [event_trigger_json(["push"]), event_trigger_json(["ping"], {"a": [1]})]
    ).delivery_triggers
    subscription = Subscription(automation_id=AutomationId("aut_1"), version=1, triggers=(one, other))

    results = [subscription.matches(event, parsed(b'{"a": 2}')) for event in ("push", "ping", "other", None)]

    assert results == [True, False, False, False]


def test_webhook_of_a_trigger_with_event_types_is_not_unfiltered():
    automation = replace(AUTOMATION, triggers=triggers_from_json([event_trigger_json(["push"])]).delivery_triggers)

    assert automation.unfiltered_webhook_uids() == frozenset()
    assert automation.selected_webhook_uids() == {"wh_a"}


def event_trigger_json(events: object, *payload_filter: object) -> dict[str, Any]:
    trigger: dict[str, Any] = trigger_json(["wh_a"], *payload_filter)
    trigger["filter"]["event"] = events
    return trigger


def trigger_json(uids: object, *payload_filter: object) -> dict[str, object]:
    delivery_filter: dict[str, object] = {"webhook_ids": uids}
    if payload_filter:
        delivery_filter["payload"] = payload_filter[0]
    return {"provider": "webhook", "event": "received", "filter": delivery_filter}


def make_subscription(*filters: CompiledFilter | None) -> Subscription:
    triggers = tuple(DeliveryFilter(payload=each) for each in filters)
    return Subscription(automation_id=AutomationId("aut_1"), version=1, triggers=triggers)


def compiled(source: object) -> CompiledFilter:
    result = compile_filter(source)
    assert isinstance(result, CompiledFilter)
    return result


def parsed(body: bytes) -> Parsed:
    result = payload.parse(body)
    assert isinstance(result, Parsed)
    return result
