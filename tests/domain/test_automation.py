"""Triggers as people write them, and which deliveries they select."""

import pytest

from hookmill.domain import payload
from hookmill.domain.automation import Automation, Subscription, Trigger, triggers_from_json
from hookmill.domain.errors import Invalid, InvalidFilter
from hookmill.domain.filters import CompiledFilter, compile_filter
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.payload import Parsed


def test_a_trigger_without_a_payload_filter_takes_every_payload():
    [trigger] = triggers_from_json([written(["wh_a"])])

    assert trigger == Trigger(webhook_ids=(WebhookUid("wh_a"),), payload=None)


def test_a_trigger_with_a_payload_filter_keeps_it_compiled():
    [trigger] = triggers_from_json([written(["wh_a"], {"action": ["opened"]})])

    assert trigger.payload == compile_filter({"action": ["opened"]})


def test_a_trigger_reads_back_as_it_was_written():
    given = [
        written(["wh_a", "wh_b"], {"a": {"b": {"in": ["x"], "exists": True}}, "n": [1, 2.5, None]}),
        written(["wh_c"]),
    ]

    assert [trigger.as_json() for trigger in triggers_from_json(given)] == given


def test_a_webhook_that_is_named_twice_counts_once():
    [trigger] = triggers_from_json([written(["wh_a", "wh_b", "wh_a"])])

    assert trigger.webhook_ids == ("wh_a", "wh_b")


def test_an_automation_selects_the_webhooks_of_all_its_triggers():
    automation = Automation(
        id=AutomationId("aut_1"),
        factory_id=FactoryId("fac_1"),
        name="triage",
        enabled=True,
        version=1,
        prompt="Look.",
        runner="package",
        triggers=triggers_from_json([written(["wh_a", "wh_b"]), written(["wh_b", "wh_c"])]),
        created_at=0,
        updated_at=0,
    )

    assert automation.selected_webhooks() == {"wh_a", "wh_b", "wh_c"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "list of one or more triggers"),
        ([], "list of one or more triggers"),
        ({}, "list of one or more triggers"),
        (["wh_a"], "/triggers/0: a trigger is an object"),
        ([{"provider": "webhook", "event": "received"}], "/triggers/0/filter: needs webhook_ids"),
        ([{"provider": "webhook", "event": "received", "filter": []}], "/triggers/0/filter: needs webhook_ids"),
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

    assert [subscription.matches(parsed(b'{"a": %d}' % value)) for value in (1, 2, 3)] == [True, True, False]


def test_a_subscription_without_a_filter_among_them_matches_everything():
    assert subscribed(compiled({"a": [1]}), None).matches(parsed(b"[]"))


def test_an_empty_filter_matches_everything():
    assert subscribed(compiled({})).matches(parsed(b"0"))


def test_a_subscription_without_any_filter_left_matches_nothing():
    assert not subscribed().matches(parsed(b"{}"))


def written(uids: object, *payload_filter: object) -> dict[str, object]:
    chosen: dict[str, object] = {"webhook_ids": uids}
    if payload_filter:
        chosen["payload"] = payload_filter[0]
    return {"provider": "webhook", "event": "received", "filter": chosen}


def subscribed(*filters: CompiledFilter | None) -> Subscription:
    return Subscription(automation_id=AutomationId("aut_1"), version=1, filters=filters)


def compiled(source: object) -> CompiledFilter:
    made = compile_filter(source)
    assert isinstance(made, CompiledFilter)
    return made


def parsed(body: bytes) -> Parsed:
    read = payload.parse(body)
    assert isinstance(read, Parsed)
    return read
