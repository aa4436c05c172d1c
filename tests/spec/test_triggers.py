"""Automations: which deliveries start a run, by webhook and by payload filter. Also tests of a filter."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.domain.errors import Conflict, Invalid, NotFound
from hookmill.management import draft_filter
from tests.spec import shows
from tests.support.automations import automation_changed, automation_created
from tests.support.sqlite_usually import store_url
from tests.support.triggers import received

__all__ = ["store_url"]


@shows("AUTOMATION-1")
def test_automation_gets_deliveries_of_its_selected_webhooks_only(world):
    one, two, other = [world.webhook(name) for name in ("one", "two", "other")]
    world.automation("triage", one, two)

    for webhook in (one, two, other):
        world.post(webhook)

    assert [len(world.runs(webhook)) for webhook in (one, two, other)] == [1, 1, 0]


@shows("AUTOMATION-2")
def test_delivery_starts_a_run_of_each_enabled_automation_that_matches(world):
    webhook, other = world.webhook(), world.webhook("other")
    world.automation("all of it", webhook)
    world.automation("opened ones", webhook, payload={"action": ["opened"]})
    world.automation("closed ones", webhook, payload={"action": ["closed"]})
    world.automation("of another webhook", other)
    world.automation("disabled", webhook, enabled=False)

    answer = world.post(webhook, b'{"action": "opened"}')

    started = world.management.runs.of_delivery(world.may, answer.delivery_id)
    assert sorted(run.automation_name for run in started) == ["all of it", "opened ones"]


@shows("AUTOMATION-5")
def test_trigger_without_a_payload_filter_matches_every_delivery(world):
    webhook = world.webhook()
    world.automation("triage", webhook)

    for body in (b"{}", b"[]", b"0", b'"text"', b"null", b'{"action": "opened"}'):
        world.post(webhook, body)

    assert len(world.runs(webhook)) == 6


@shows("AUTOMATION-6", "AUTOMATION-7")
def test_delivery_that_matches_no_automation_is_accepted_and_logged(world):
    webhook = world.webhook()
    world.automation("triage", webhook, payload={"action": ["opened"]})

    answer = world.post(webhook, b'{"action": "closed"}')

    assert (answer.status, world.labels(webhook), world.runs(webhook)) == (202, ["Accepted"], [])


@shows("RUN-5", "RUN-6")
def test_every_accepted_delivery_starts_its_own_run(world):
    webhook = world.webhook()
    world.automation("triage", webhook)

    answers = [world.post(webhook, b'{"thread": 1, "no": %d}' % i) for i in range(3)]

    runs = world.runs(webhook)
    assert len({run.id for run in runs}) == 3
    assert {f"dlv_{run.delivery_key.hex()}" for run in runs} == {answer.delivery_id for answer in answers}
    assert {tuple(answer.json) for answer in answers} == {("delivery_id",)}


@shows("AUTOMATION-2")
def test_only_an_accepted_delivery_starts_runs(world):
    webhook = world.webhook()
    world.automation("triage", webhook)
    world.post(webhook, b"[1]")

    world.post(webhook, b"[1]")
    world.post(webhook, b"[2", headers={})
    world.post(webhook, b"[2]", token="wrong")
    world.post(webhook, b" " * 262_145)

    assert len(world.runs(webhook)) == 1


@shows("AUTOMATION-2")
def test_several_matching_triggers_start_one_run_of_their_automation(world):
    webhook = world.webhook()
    trigger = received(webhook.webhook.uid)
    automation_created(world.management, world.may, "triage", triggers=[trigger, trigger, trigger])

    world.post(webhook)

    assert len(world.runs(webhook)) == 1


@shows("AUTOMATION-3")
@pytest.mark.parametrize("change", [{"provider": "email"}, {"event": "sent"}, {"provider": None}, {"event": ""}])
def test_trigger_with_another_provider_or_event_is_refused(world, change):
    webhook = world.webhook()
    trigger = received(webhook.webhook.uid)

    with pytest.raises(Invalid, match="received"):
        automation_created(world.management, world.may, "another kind", triggers=[trigger | change])

    automation_created(world.management, world.may, "this kind", triggers=[trigger])
    assert [each.name for each in world.management.automations.all(world.may)] == ["this kind"]


@shows("AUTOMATION-4")
@pytest.mark.parametrize("ids", [["source"], ["webhooks/source.yaml"], "wh_1", [], None])
def test_webhooks_are_selected_by_uid_and_not_by_name(world, ids):
    world.webhook()
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": ids}}

    with pytest.raises(Invalid, match="webhook_ids"):
        automation_created(world.management, world.may, "triage", triggers=[trigger])


@shows("AUTOMATION-8")
def test_trigger_with_an_unusable_webhook_causes_a_warning(world):
    webhook, disabled = world.webhook(), world.webhook("disabled")
    world.management.webhooks.set_enabled(world.may, "disabled", False)
    other_factorys = world.management.webhooks.create(world.operator_of_new_factory(), {"name": "source"})
    unknown = "wh_" + "0" * 27
    uids = [webhook.webhook.uid, disabled.webhook.uid, other_factorys.webhook.uid, unknown]
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": uids}}

    automation = automation_created(world.management, world.may, "triage", triggers=[trigger])

    assert set(world.management.automations.warnings(world.may, automation)) == {
        f"'disabled' ({disabled.webhook.uid}) is disabled, so it starts no runs until it is enabled.",
        f"{other_factorys.webhook.uid} is not a webhook of factory 'default', so it starts no runs.",
        f"{unknown} is not a webhook of factory 'default', so it starts no runs.",
    }


def test_another_factorys_webhook_starts_no_run_of_an_automation(world):
    other_factory = world.operator_of_new_factory()
    webhook = world.webhook()
    trigger = received(webhook.webhook.uid)
    automation_created(world.management, other_factory, "listening in", triggers=[trigger])

    world.post(webhook)

    assert (world.runs(webhook), world.management.runs.newest(other_factory)) == ([], [])


@shows("FILTER-1")
def test_payload_filter_has_the_structure_of_the_body(world):
    webhook = world.webhook()
    world.automation("triage", webhook, payload={"repository": {"owner": {"login": ["ada"]}}})

    world.post(webhook, b'{"repository": {"owner": {"login": "ada"}}, "more": 1}')
    world.post(webhook, b'{"repository": {"owner": {"login": "bob"}}}')
    world.post(webhook, b'{"repository": {"login": "ada"}}')

    assert len(world.runs(webhook)) == 1


@shows("FILTER-2")
@pytest.mark.parametrize(
    ("body", "runs"),
    [(b'{"a": 1, "b": 2}', 1), (b'{"a": 1, "b": 3}', 0), (b'{"a": 0, "b": 2}', 0), (b'{"a": 1}', 0), (b"{}", 0)],
)
def test_payload_filter_matches_only_if_every_key_does(sqlite_world, body, runs):
    webhook = sqlite_world.webhook()
    sqlite_world.automation("triage", webhook, payload={"a": [1], "b": [2]})

    sqlite_world.post(webhook, body)

    assert len(sqlite_world.runs(webhook)) == runs


@shows("FILTER-3", "FILTER-4", "FILTER-5", "FILTER-6")
@pytest.mark.parametrize(
    ("payload_filter", "body", "runs"),
    [
        ({"a": ["x", 1]}, b'{"a": "x"}', 1),
        ({"a": ["x", 1]}, b'{"a": 1.0}', 1),
        ({"a": ["x", 1]}, b'{"a": true}', 0),
        ({"a": {"in": ["x", 1]}}, b'{"a": "x"}', 1),
        ({"a": {"in": ["x", 1]}}, b'{"a": "y"}', 0),
        ({"a": {"not_in": ["x"]}}, b'{"a": "y"}', 1),
        ({"a": {"not_in": ["x"]}}, b'{"a": "x"}', 0),
        ({"a": {"exists": True}}, b'{"a": null}', 1),
        ({"a": {"exists": True}}, b"{}", 0),
        ({"a": {"exists": False}}, b"{}", 1),
        ({"a": {"exists": False}}, b'{"a": null}', 0),
        ({"a": {"b": ["x"]}}, b'{"a": {"b": "x"}}', 1),
        ({"a": {"b": ["x"]}}, b'{"a": "x"}', 0),
        ({"a": {"exists": True, "not_in": ["x"]}}, b'{"a": "y"}', 1),
        # A missing key fails `in` and passes `not_in`.
        ({"a": ["x"]}, b"{}", 0),
        ({"a": {"not_in": ["x"]}}, b"{}", 1),
        # On an array, `in` holds for any element, `not_in` for none, a nested object for one that satisfies all of it.
        ({"a": ["x"]}, b'{"a": ["y", "x"]}', 1),
        ({"a": {"not_in": ["x"]}}, b'{"a": ["y", "x"]}', 0),
        ({"a": {"b": [1], "c": [2]}}, b'{"a": [{"b": 1, "c": 2}]}', 1),
        ({"a": {"b": [1], "c": [2]}}, b'{"a": [{"b": 1}, {"c": 2}]}', 0),
        ({"a": ["x"]}, b'[{"a": "x"}]', 1),
        ({}, b"0", 1),
        ({"a": {"not_in": ["x"]}}, b"0", 0),
    ],
)
def test_delivery_starts_a_run_only_if_the_payload_filter_matches(sqlite_world, payload_filter, body, runs):
    webhook = sqlite_world.webhook()
    sqlite_world.automation("triage", webhook, payload=payload_filter)

    answer = sqlite_world.post(webhook, body)

    assert (answer.status, len(sqlite_world.runs(webhook))) == (202, runs)


@shows("FILTER-9")
@pytest.mark.parametrize(
    ("payload_filter", "body", "runs"),
    [
        ({"a": {"gt": ["x"]}}, b'{"a": {"gt": "x"}}', 1),
        ({"a": {"$gt": 2**53}}, b'{"a": 9007199254740993}', 1),
        ({"a": {"$glob": "x*"}}, b'{"a": "xyz"}', 1),
        ({"a": {"$any": [["x"], {"exists": False}]}}, b'{"b": 1}', 1),
        ({"$not": {"a": ["x"]}}, b'{"a": "x"}', 0),
        ({"a": {"$fields": {"in": ["x"]}}}, b'{"a": {"in": "x"}}', 1),
        ({"$fields": {"$ref": ["x"]}}, b'{"$ref": "x"}', 1),
    ],
)
def test_filter_distinguishes_operators_with_a_dollar_from_fields(sqlite_world, payload_filter, body, runs):
    webhook = sqlite_world.webhook()
    sqlite_world.automation("triage", webhook, payload=payload_filter)

    answer = sqlite_world.post(webhook, body)

    assert (answer.status, len(sqlite_world.runs(webhook))) == (202, runs)


@shows("FILTER-7")
@pytest.mark.parametrize("payload_filter", [[], "x", {"a": 1}, {"a": {}}, {"a": {"in": [1], "b": [1]}}])
def test_unusable_filter_is_refused_on_save(sqlite_world, payload_filter):
    webhook = sqlite_world.webhook()

    with pytest.raises(Invalid) as refused:
        sqlite_world.automation("triage", webhook, payload=payload_filter)

    assert refused.value.faults[0].pointer.startswith("/triggers/0/filter/payload")
    assert sqlite_world.management.automations.all(sqlite_world.may) == []


def test_automation_toggle_takes_effect_in_every_process_immediately(world):
    other = world.another_process()
    webhook = world.webhook()
    world.automation("triage", webhook)
    for i, each in enumerate((world, other)):
        each.post(webhook, b"%d" % i)

    world.management.automations.set_enabled(world.may, "triage", False)
    for i, each in enumerate((world, other), start=2):
        each.post(webhook, b"%d" % i)
    world.management.automations.set_enabled(world.may, "triage", True)
    for i, each in enumerate((world, other), start=4):
        each.post(webhook, b"%d" % i)

    assert len(world.runs(webhook)) == 4


def test_deleted_automation_starts_nothing_and_its_runs_stay(world):
    webhook = world.webhook()
    world.automation("triage", webhook)
    world.post(webhook, b"1")

    world.management.automations.delete(world.may, "triage")

    world.post(webhook, b"2")
    assert len(world.runs(webhook)) == 1
    with pytest.raises(NotFound, match="has no automation 'triage'"):
        world.management.automations.get(world.may, "triage")


def test_deleted_automations_name_can_be_used_again(world):
    webhook = world.webhook()
    world.automation("triage", webhook)
    world.management.automations.delete(world.may, "triage")

    world.automation("triage", webhook)

    world.post(webhook)
    assert len(world.runs(webhook)) == 1


def test_second_automation_with_the_same_name_is_refused(world):
    webhook = world.webhook()
    world.automation("triage", webhook)
    world.automation("answer", webhook)

    with pytest.raises(Conflict, match="already has an automation named 'triage'"):
        world.automation("triage", webhook)
    with pytest.raises(Conflict, match="already has an automation named 'triage'"):
        automation_changed(world.management, world.may, "answer", name="triage")

    assert [each.name for each in world.management.automations.all(world.may)] == ["answer", "triage"]


def test_one_of_simultaneous_automations_with_the_same_name_is_created(world):
    webhook = world.webhook()

    with ThreadPoolExecutor(10) as threads:
        attempts = [threads.submit(world.automation, "triage", webhook) for _ in range(10)]
        refused = [attempt for attempt in attempts if isinstance(attempt.exception(), Conflict)]

    assert (len(refused), len(world.management.automations.all(world.may))) == (9, 1)


def test_each_of_simultaneous_changes_creates_a_version(world):
    webhook = world.webhook()
    world.automation("triage", webhook)
    change = world.management.automations.change

    with ThreadPoolExecutor(10) as threads:
        changes = [threads.submit(change, world.may, "triage", {"prompt": f"Version {i}."}) for i in range(10)]
        versions = sorted(each.result().version for each in changes)

    assert versions == list(range(2, 12))


def test_another_factorys_automation_is_not_found(world):
    other_factory = world.operator_of_new_factory()
    automation = world.automation("triage", world.webhook())

    for id_or_name in ("triage", automation.id):
        with pytest.raises(NotFound):
            world.management.automations.get(other_factory, id_or_name)
        with pytest.raises(NotFound):
            world.management.automations.delete(other_factory, id_or_name)

    assert world.management.automations.all(other_factory) == []


@pytest.mark.parametrize("prompt", ["", "  \n", "x\x00y", "x" * 100_001])
def test_automation_without_a_usable_prompt_is_refused(sqlite_world, prompt):
    webhook = sqlite_world.webhook()

    with pytest.raises(Invalid, match="prompt"):
        sqlite_world.automation("triage", webhook, prompt=prompt)


def test_runner_that_is_not_configured_is_refused(sqlite_world):
    webhook = sqlite_world.webhook()

    with pytest.raises(Invalid, match="No runner is named '/bin/sh'"):
        sqlite_world.automation("triage", webhook, runner="/bin/sh")


@shows("FILTER-8")
@pytest.mark.parametrize(
    ("payload_filter", "selects", "results"),
    [
        ({"a": [1]}, True, (True, True, True)),
        ({"a": [2]}, True, (False, True, False)),
        ({"a": [1]}, False, (False, False, True)),
        ({"a": [2]}, False, (False, False, False)),
        (None, True, (True, True, True)),
    ],
)
def test_filter_test_reports_the_results_of_both_checks(world, payload_filter, selects, results):
    webhook, other = world.webhook(), world.webhook("other")
    answer = world.post(webhook, b'{"a": 1}')
    uids = [webhook.webhook.uid if selects else other.webhook.uid]

    test = world.management.filters.test(world.may, answer.delivery_id, draft_filter(payload_filter), webhooks=uids)

    assert (test.would_trigger, test.webhook_check, test.payload_check) == results


def test_filter_test_reports_the_actual_value_for_every_condition(world):
    answer = world.post(world.webhook(), b'{"action": "closed", "n": [1, 2]}')

    test = world.management.filters.test(
        world.may, answer.delivery_id, draft_filter({"action": ["opened"], "n": [2], "gone": {"exists": False}})
    )

    assert test.explanation is not None
    assert [
        (condition.pointer, condition.operator, condition.actual, condition.held)
        for condition in test.explanation.conditions
    ] == [("/action", "in", '"closed"', False), ("/n/1", "in", "2", True), ("/gone", "exists", "missing", True)]


def test_filter_test_agrees_with_the_trigger(world):
    webhook = world.webhook()
    filters = [{"a": [1]}, {"a": {"not_in": [1]}}, {"a": {"b": [1]}}, {"b": {"exists": False}}, {}]
    for no, payload_filter in enumerate(filters):
        world.automation(f"automation {no}", webhook, payload=payload_filter)

    for body in (b'{"a": 1}', b'{"a": {"b": 1}}', b'[{"a": [1]}]', b'{"b": null}', b"7"):
        answer = world.post(webhook, body)
        started = {run.automation_name for run in world.management.runs.of_delivery(world.may, answer.delivery_id)}
        tested = {
            f"automation {no}"
            for no, payload_filter in enumerate(filters)
            if world.management.filters.test(world.may, answer.delivery_id, draft_filter(payload_filter)).would_trigger
        }
        assert started == tested


def test_filter_test_requires_a_stored_payload(world):
    webhook = world.webhook()
    world.post(webhook, token="wrong")
    [row] = world.log(webhook)

    with pytest.raises(NotFound, match="only Accepted deliveries have a stored payload"):
        world.management.filters.test(world.may, f"dlv_{row.key.hex()}", draft_filter({"a": [1]}))
