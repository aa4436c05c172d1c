"""Triggers in their JSON form, and which deliveries they select."""

import json
from typing import Any

import pytest
from msgspec import structs

from hookmill.domain import payload
from hookmill.domain.automation import (
    EVENT_TYPES_MAX,
    Automation,
    AutomationSpec,
    DeliveryFilter,
    Subscription,
    TriggerList,
    changed_fields,
    filters_of,
    triggers_from_stored,
)
from hookmill.domain.errors import Invalid
from hookmill.domain.filters import CompiledFilter, compile_filter
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.payload import Parsed
from hookmill.domain.run_policy import RunPolicy
from hookmill.domain.spec import read
from tests.support.triggers import cron_fired, received

AUTOMATION = Automation(
    id=AutomationId("aut_1"),
    factory_id=FactoryId("fac_1"),
    name="triage",
    enabled=True,
    version=1,
    prompt="Look.",
    runner="package",
    triggers=read(TriggerList, {"triggers": [received("wh_a")]}).triggers,
    created_at=0,
    updated_at=0,
)


def trigger_json(uids: object, *payload_filter: object) -> dict[str, object]:
    delivery_filter: dict[str, object] = {"webhook_ids": uids}
    if payload_filter:
        delivery_filter["payload"] = payload_filter[0]
    return {"provider": "webhook", "event": "received", "filter": delivery_filter}


def test_trigger_without_a_payload_filter_matches_every_payload():
    [trigger] = filters([trigger_json(["wh_a"])])

    assert trigger == DeliveryFilter(webhook_ids=(WebhookUid("wh_a"),), payload=None)


def test_payload_filter_of_a_trigger_is_compiled():
    [trigger] = filters([trigger_json(["wh_a"], {"action": ["opened"]})])

    assert trigger.payload == compile_filter({"action": ["opened"]})


def test_trigger_json_is_the_same_after_reading_and_writing():
    source = [
        trigger_json(["wh_a", "wh_b"], {"a": {"b": {"in": ["x"], "exists": True}}, "n": [1, 2.5, None]}),
        trigger_json(["wh_c"]),
    ]

    assert read(TriggerList, {"triggers": source}).as_json() == {"triggers": source}


def test_webhook_that_is_listed_twice_counts_once():
    [trigger] = filters([trigger_json(["wh_a", "wh_b", "wh_a"])])

    assert trigger.webhook_ids == ("wh_a", "wh_b")


def test_automation_selects_the_webhooks_of_all_its_triggers():
    automation = patched({"triggers": [received("wh_a", "wh_b"), received("wh_b", "wh_c")]})

    assert automation.selected_webhook_uids() == {"wh_a", "wh_b", "wh_c"}


@pytest.mark.parametrize(
    ("source", "pointer", "message"),
    [
        (None, "", "a list of 1 to 20 triggers"),
        ([], "", "a list of 1 to 20 triggers"),
        ({}, "", "a list of 1 to 20 triggers"),
        ([received("wh_a")] * 21, "", "a list of 1 to 20 triggers"),
        (["wh_a"], "/0", "an object: either provider: webhook"),
        ([{"provider": "email", "event": "received"}], "/0", "either provider: webhook, event: received"),
        ([{"provider": "webhook", "event": "received"}], "/0/filter", "an object with webhook_ids, event, payload"),
        ([{**received("wh_a"), "filter": []}], "/0/filter", "an object with webhook_ids, event, payload"),
        ([{**received("wh_a"), "event": "sent"}], "/0/event", "event must be received"),
        ([{**received("wh_a"), "x": 1}], "/0/x", "Unknown field 'x'"),
        ([received("wh_a", payloads={})], "/0/filter/payloads", "Did you mean payload?"),
        ([received()], "/0/filter/webhook_ids", "a list of 1 to 100 webhook uids"),
        ([received(*(f"wh_{number}" for number in range(101)))], "/0/filter/webhook_ids", "1 to 100 webhook uids"),
        ([trigger_json("wh_a")], "/0/filter/webhook_ids", "a list of 1 to 100 webhook uids"),
        ([trigger_json({"wh_a": 1})], "/0/filter/webhook_ids", "a list of 1 to 100 webhook uids"),
        *(
            ([received("wh_a"), trigger_json([uid])], "/1/filter/webhook_ids/0", "the uid of a webhook")
            for uid in (1, None, "source", "webhooks/source.yaml", "", "wh_" + "a" * 100)
        ),
        *(([received("wh_a", payload=each)], "/0/filter/payload", "object") for each in (None, [], "x", 1, True)),
        (
            [cron_fired("a", "@daily"), received("wh_a"), cron_fired("a", "@hourly")],
            "/2/schedule/name",
            "Another schedule of the automation is named 'a'",
        ),
    ],
)
def test_invalid_trigger_is_refused_with_its_pointer(source, pointer, message):
    with pytest.raises(Invalid, match=message) as refused:
        filters(source)

    assert [fault.pointer for fault in refused.value.faults] == [f"/triggers{pointer}"]


def test_every_problem_of_a_payload_filter_has_its_pointer():
    with pytest.raises(Invalid) as refused:
        filters([trigger_json(["wh_a"], {"a": {}, "b": {"c": "d"}})])

    assert [fault.pointer for fault in refused.value.faults] == [
        "/triggers/0/filter/payload/a",
        "/triggers/0/filter/payload/b/c",
    ]


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
    [trigger] = filters([event_trigger_json(["push", "Push Hook", "push"])])

    assert trigger.event == ("push", "Push Hook")
    assert not trigger.matches_every_delivery


def test_trigger_with_event_types_is_stored_without_change():
    source = event_trigger_json(["größer", "\u65e5", 'a"b\\'], {"a": [1]})

    triggers = read(TriggerList, {"triggers": [source]})

    assert triggers.as_json() == {"triggers": [source]}
    assert triggers_from_stored(json.dumps([source])) == triggers.triggers


@pytest.mark.parametrize(
    ("events", "pointers"),
    [
        ("push", [""]),
        ({}, [""]),
        ({"in": ["push"]}, [""]),
        ([], [""]),
        ([f"event {number}" for number in range(EVENT_TYPES_MAX + 1)], [""]),
        (["push", ""], ["/1"]),
        ([" ", "push", 1, None, ["push"], True], ["/0", "/2", "/3", "/4", "/5"]),
        (["a" * 201], ["/0"]),
        (["a\tb", "a\x00", "\ud83d", "\u202e"], ["/0", "/1", "/2", "/3"]),
    ],
)
def test_impossible_event_types_are_refused_with_their_pointers(events, pointers):
    with pytest.raises(Invalid) as refused:
        filters([event_trigger_json(events)])

    assert [fault.pointer for fault in refused.value.faults] == [f"/triggers/0/filter/event{each}" for each in pointers]


def test_problems_of_event_types_and_payload_filter_are_reported_together():
    with pytest.raises(Invalid) as refused:
        filters([event_trigger_json([1], {"a": {}})])

    assert [fault.pointer for fault in refused.value.faults] == [
        "/triggers/0/filter/event/0",
        "/triggers/0/filter/payload/a",
    ]


def test_maximum_number_of_event_types_is_accepted():
    events = [f"{number:0200}" for number in range(EVENT_TYPES_MAX)]

    assert filters([event_trigger_json(events)])[0].event == tuple(events)


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
    delivery_filter = DeliveryFilter(webhook_ids=(), event=("ping", "push"), payload=compiled({"a": [1]}))

    assert delivery_filter.matches(event, parsed(body)) is matches


@pytest.mark.parametrize("event", ["push", None])
def test_delivery_filter_without_event_types_matches_any_event_type(event):
    assert DeliveryFilter(webhook_ids=()).matches(event, parsed(b"{}"))


def test_subscription_matches_if_any_of_its_triggers_matches():
    [one, other] = filters([event_trigger_json(["push"]), event_trigger_json(["ping"], {"a": [1]})])
    subscription = Subscription(automation_id=AutomationId("aut_1"), version=1, filters=(one, other))

    results = [subscription.matches(event, parsed(b'{"a": 2}')) for event in ("push", "ping", "other", None)]

    assert results == [True, False, False, False]


def test_webhook_of_a_trigger_with_event_types_is_not_unfiltered():
    automation = patched({"triggers": [event_trigger_json(["push"])]})

    assert automation.unfiltered_webhook_uids() == frozenset()
    assert automation.selected_webhook_uids() == {"wh_a"}


# Changes


@pytest.mark.parametrize(
    ("patch", "changed"),
    [
        ({}, []),
        ({"name": "triage", "priority": None, "fields": {}}, []),
        ({"priority": "high", "prompt": "Look twice."}, ["priority", "prompt"]),
        ({"concurrency": {"limit": 2}}, ["concurrency"]),
        ({"concurrency": None}, ["concurrency"]),
        ({"fields": {"n": "/n"}}, ["fields"]),
        ({"triggers": [received("wh_a", payload={"a": [1.0]})]}, ["triggers"]),
        ({"triggers": [received("wh_a", payload={"a": [True]})]}, ["triggers"]),
    ],
)
def test_merge_patch_changes_only_its_fields(patch, changed):
    fields = {"concurrency": {"key": "/a"}, "triggers": [received("wh_a", payload={"a": [1]})]}
    before = structs.replace(AUTOMATION, **structs.asdict(patched(fields)))

    after = before.patched(patch)

    assert changed_fields(before, after) == changed
    assert after.concurrency is None or after.concurrency.key == ("/a",)


def test_patch_replaces_objects_by_other_values_and_null_removes_their_fields():
    before = structs.replace(AUTOMATION, **structs.asdict(patched({"debounce": {"seconds": 5, "max_seconds": 9}})))

    after = before.patched({"debounce": {"max_seconds": None}})
    assert after.debounce is not None
    assert after.debounce.max_seconds == 50
    with pytest.raises(Invalid, match="debounce must be an object"):
        before.patched({"debounce": 5})


@pytest.mark.parametrize(
    ("first", "patch", "part", "after"),
    [
        ({"seconds": 10}, {"seconds": 200}, "debounce", {"seconds": 200, "max_seconds": 2_000}),
        ({"seconds": 10}, {"seconds": 5}, "debounce", {"seconds": 5, "max_seconds": 50}),
        ({"seconds": 10, "max_seconds": 60}, {"seconds": 5}, "debounce", {"seconds": 5, "max_seconds": 60}),
        (
            {"attempts": 3},
            {"backoff_seconds": 7_200},
            "retry",
            {"backoff_seconds": 7_200, "max_backoff_seconds": 7_200},
        ),
        ({"attempts": 3, "backoff_seconds": 7_200}, {"backoff_seconds": 9}, "retry", {"max_backoff_seconds": 3_600}),
    ],
)
def test_default_that_depends_on_another_field_follows_a_patch_of_it(first, patch, part, after):
    before = structs.replace(AUTOMATION, **structs.asdict(patched({part: first})))

    changed = getattr(before.patched({part: patch}), part)

    assert {name: getattr(changed, name) for name in after} == after


def test_patch_of_any_depth_is_refused_as_such():
    deep: dict[str, Any] = {}
    for _ in range(510):
        deep = {"a": deep}

    with pytest.raises(Invalid, match="Unknown field 'a'"):
        AUTOMATION.patched({"workspace": deep})


@pytest.mark.parametrize("patch", [{"prompt": "New."}, {"priority": "high"}, {"concurrency": {"limit": 2}}])
def test_part_that_cannot_be_read_must_be_replaced_as_a_whole(patch):
    unreadable = structs.replace(AUTOMATION, unreadable_parts={"run policy": "Unknown field 'per'."})

    assert "its stored run policy can't be read: Unknown field 'per'" in str(unreadable.reason_against_runs)
    with pytest.raises(Invalid, match="its stored run policy can't be read: Unknown field 'per'"):
        unreadable.patched(patch)
    assert unreadable.patched(dict.fromkeys(RunPolicy.__struct_fields__)) == AUTOMATION.spec


def patched(patch: dict[str, Any]) -> AutomationSpec:
    return AUTOMATION.patched(patch)


def filters(triggers: object) -> tuple[DeliveryFilter, ...]:
    return filters_of(read(TriggerList, {"triggers": triggers}).triggers)


def event_trigger_json(events: object, *payload_filter: object) -> dict[str, Any]:
    trigger: dict[str, Any] = trigger_json(["wh_a"], *payload_filter)
    trigger["filter"]["event"] = events
    return trigger


def make_subscription(*filters: CompiledFilter | None) -> Subscription:
    triggers = tuple(DeliveryFilter(webhook_ids=(), payload=each) for each in filters)
    return Subscription(automation_id=AutomationId("aut_1"), version=1, filters=triggers)


def compiled(source: object) -> CompiledFilter:
    result = compile_filter(source)
    assert isinstance(result, CompiledFilter)
    return result


def parsed(body: bytes) -> Parsed:
    result = payload.parse(body)
    assert isinstance(result, Parsed)
    return result
