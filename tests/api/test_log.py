"""The delivery log through the API: read in pages, downloaded, explained, replayed; and never changed."""

import json
import re
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from hookmill.presentation.filter import ExplanationView
from hookmill.web.api import application, automations, operations
from tests.api.client import Api, Stocked

FACTORY = "/factories/default"


def pages(api: Api, path: str, limit: int) -> list[list[Any]]:
    """Every page of a list."""
    found: list[list[Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.get(f"{path}{'&' if '?' in path else '?'}limit={limit}{f'&cursor={cursor}' if cursor else ''}").json
        found.append(page["items"])
        cursor = page["next_cursor"]
    return found


def send(api: Api, stocked: Stocked, *bodies: Any, **choices: Any) -> list[str]:
    """Deliveries a second apart, and their ids."""
    ids = []
    for body in bodies:
        api.world.clock.advance(seconds=1)
        ids.append(api.world.post(stocked.webhook, json.dumps(body).encode(), **choices).delivery_id)
    return ids


# Pages


@pytest.mark.parametrize("number", [4, 5, 6])
def test_pages_hold_everything_once_newest_first(api: Api, stocked: Stocked, number):
    sent = send(api, stocked, *range(number - 1))

    found = pages(api, f"{FACTORY}/deliveries", 2)

    assert [len(page) for page in found] == {4: [2, 2], 5: [2, 2, 1], 6: [2, 2, 2]}[number]
    assert [each["delivery_id"] for page in found for each in page] == [*reversed(sent), stocked.delivery]


def test_what_comes_meanwhile_moves_no_page(api: Api, stocked: Stocked):
    sent = send(api, stocked, 1, 2, 3)
    first = api.get(f"{FACTORY}/deliveries?limit=2").json

    send(api, stocked, 4, 5)
    second = api.get(f"{FACTORY}/deliveries?limit=2&cursor={first['next_cursor']}").json

    assert [each["delivery_id"] for each in second["items"]] == [sent[0], stocked.delivery]


@pytest.mark.parametrize(
    "path", ["/factories", "/factories/default/webhooks", "/factories/default/secrets", "/schemes"]
)
def test_every_list_comes_in_pages(api: Api, stocked: Stocked, path):
    for name in ("b", "a", "c"):
        api.factory(name)
    api.manager = api.admin
    whole = api.get(f"{path}?limit=200").json["items"]

    in_pages = pages(api, path, 1)

    assert len(whole) > 1
    assert [each for page in in_pages for each in page] == whole
    assert {len(page) for page in in_pages} == {1}


def test_runs_and_the_audit_log_come_in_pages_newest_first(api: Api, stocked: Stocked):
    send(api, stocked, *({"action": "opened", "number": number} for number in range(4)))
    for noun, time in (("runs", "created_at"), ("audit-log", "at")):
        whole = api.get(f"{FACTORY}/{noun}?limit=200").json["items"]

        assert [each for page in pages(api, f"{FACTORY}/{noun}", 2) for each in page] == whole
        assert [each[time] for each in whole] == sorted((each[time] for each in whole), reverse=True)


def test_a_cursor_of_another_list_is_refused(api: Api, stocked: Stocked):
    cursor = api.get(f"{FACTORY}/webhooks?limit=1").json["next_cursor"]

    assert api.get(f"{FACTORY}/deliveries?cursor={cursor}").status == 422


# What was asked for


def test_the_log_is_narrowed_down_by_what_is_asked(api: Api, stocked: Stocked):
    other = api.world.webhook("other")
    api.world.clock.advance(seconds=10)
    (middle,) = send(api, stocked, {"n": 1}, headers={"X-Service-Delivery-Id": "evt/1 #+&"})
    again = send(api, stocked, {"n": 1}, headers={"X-Service-Delivery-Id": "evt/1 #+&"})
    api.world.clock.advance(seconds=1)
    api.world.post(stocked.webhook, b"{}", token="wrong")
    api.world.clock.advance(seconds=10)
    api.world.post(other, b"{}")
    received = api.get(f"{FACTORY}/deliveries/{middle}").json["received_at"]

    def found(query: str) -> list[str]:
        return [each["label"] for each in api.get(f"{FACTORY}/deliveries?{query}").json["items"]]

    assert found("") == ["Accepted", "Rejected (auth)", "Duplicate", "Accepted", "Accepted"]
    assert found("webhook=other") == found(f"webhook={other.webhook.uid}") == ["Accepted"]
    assert found("label=rejected_auth") == found(f"label={quote('Rejected (auth)')}") == ["Rejected (auth)"]
    assert found(f"since={received}") == ["Accepted", "Rejected (auth)", "Duplicate", "Accepted"]
    assert found(f"until={received}") == ["Accepted"]
    assert found(f"since={received.replace('.000000Z', '%2B00:00')}&webhook={stocked.webhook.webhook.uid}") == [
        "Rejected (auth)",
        "Duplicate",
        "Accepted",
    ]
    assert found(f"identity={quote('evt/1 #+&', safe='')}") == ["Duplicate", "Accepted"]
    assert api.get(f"{FACTORY}/deliveries/{again[0]}").json["duplicate_of"] == middle
    assert api.get(f"{FACTORY}/deliveries?webhook=nobody").status == 404


def test_the_log_is_narrowed_down_by_event_type(api: Api, stocked: Stocked):
    typed = api.world.webhook("typed", event_header="X-Kind")
    for kind in ("order.paid", "order paid/1 #+&", "", "order.paid"):
        api.world.clock.advance(seconds=1)
        api.world.post(typed, b"{}", headers={"X-Kind": kind, "X-Service-Delivery-Id": kind or "none"})
    api.world.clock.advance(seconds=1)
    api.world.post(typed, b"no JSON", headers={"X-Kind": "order.paid"})

    def found(query: str) -> list[tuple[str, str, bool]]:
        rows = api.get(f"{FACTORY}/deliveries?{query}").json["items"]
        return [(each["label"], each["event"], each["event_signed"]) for each in rows]

    source = stocked.webhook.webhook.uid
    paid = [(label, "order.paid", False) for label in ("Rejected (invalid JSON)", "Duplicate", "Accepted")]
    assert found("event=order.paid") == found("event=order.paid&webhook=typed") == paid
    assert found("event=order.paid&label=accepted") == paid[2:]
    assert found("event=order.paid&label=rejected_auth") == []
    assert found("event=order.paid&identity=order.paid") == paid[1:]
    assert found(f"event={quote('order paid/1 #+&', safe='')}") == [("Accepted", "order paid/1 #+&", False)]
    assert found("event=order") == found("event=") == found(f"event=order.paid&webhook={source}") == []
    page = api.get(f"{FACTORY}/deliveries?event=order.paid&limit=2").json
    assert found(f"event=order.paid&cursor={page['next_cursor']}") == paid[2:]


def test_what_got_no_entry_is_counted_by_the_minute(api: Api, stocked: Stocked):
    api.patch(f"{FACTORY}/webhooks/{stocked.webhook.webhook.uid}", {"enabled": False})
    for _ in range(3):
        assert api.world.post(stocked.webhook, b"{}").status == 404
    api.world.dropped_attempts(stocked.webhook)

    (minute,) = api.get(f"{FACTORY}/dropped-attempts").json["items"]

    assert (minute["webhook_uid"], minute["kind"], minute["count"]) == (stocked.webhook.webhook.uid, "not_found", 3)
    assert minute["since"] < minute["until"]


# The payload


HOSTILE = b'{"<script>": "</script><img src=x onerror=alert(1)>", "n": 1e400, "t": "\\u202e\\u0000"}'


def test_a_payload_is_downloaded_as_it_came_and_can_do_nothing(api: Api, stocked: Stocked):
    sent = api.world.post(stocked.webhook, HOSTILE).delivery_id

    answer = api.get(f"{FACTORY}/deliveries/{sent}/payload")

    assert answer.body == HOSTILE
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-disposition"] == 'attachment; filename="event-payload.json"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_a_name_from_outside_is_in_no_header(api: Api, stocked: Stocked):
    name = 'x"; filename="evil.html\\'
    made = api.world.webhook(name)
    sent = api.world.post(made, b"{}", headers={"X-Service-Delivery-Id": name}).delivery_id

    for path in (f"deliveries/{sent}", f"deliveries/{sent}/payload", f"webhooks/{made.webhook.uid}"):
        assert "evil" not in str(api.get(f"{FACTORY}/{path}").headers)


def test_of_a_rejected_delivery_there_is_no_payload(api: Api, stocked: Stocked):
    api.world.post(stocked.webhook, b"{}", token="wrong")
    rejected = api.get(f"{FACTORY}/deliveries?label=rejected_auth").json["items"][0]["delivery_id"]

    answer = api.get(f"{FACTORY}/deliveries/{rejected}/payload")

    assert (answer.status, answer.json["code"]) == (404, "not_found")


# Why, and again


def test_an_explanation_has_each_condition_of_each_automation(api: Api, stocked: Stocked):
    (sent,) = send(api, stocked, {"action": "closed"})

    (verdict,) = api.get(f"{FACTORY}/deliveries/{sent}/explanation").json["automations"]

    assert (verdict["automation"], verdict["would_trigger"], verdict["runs"]) == ("reader of default", False, [])
    (trigger,) = verdict["triggers"]
    assert (trigger["webhook_check"], trigger["payload_check"]) == (True, False)
    assert trigger["conditions"] == [
        {
            "pointer": "/action",
            "operator": "in",
            "expected": '["opened"]',
            "found": '"closed"',
            "held": False,
            "no_object_at": None,
            "alternative": None,
            "within": [],
        }
    ]


def test_an_explanation_that_is_written_piece_by_piece_is_the_same(api: Api, stocked: Stocked):
    api.world.automation("another", stocked.webhook)

    answer = api.get(f"{FACTORY}/deliveries/{stocked.delivery}/explanation").body

    assert answer == msgspec.json.encode(msgspec.json.decode(answer, type=ExplanationView))
    assert len(json.loads(answer)["automations"]) == 2


def test_a_filter_is_tested_on_one_delivery_and_on_the_last_ones(api: Api, stocked: Stocked):
    opened, closed = stocked.delivery, send(api, stocked, {"action": "closed"})[0]
    draft = {"action": ["closed"]}

    def tested(**given: Any) -> tuple[bool, bool, bool]:
        test = api.post(f"{FACTORY}/filter-tests", given, key=api.viewer).json
        return test["would_trigger"], test["webhook_check"], test["payload_check"]

    back = api.post(f"{FACTORY}/backtests", {"filter": draft, "last": 10}, key=api.viewer).json

    assert tested(delivery_id=closed, filter=draft) == (True, True, True)
    assert tested(delivery_id=opened, filter=draft) == (False, True, False)
    assert tested(delivery_id=closed, filter=draft, webhook_ids=["wh_other"]) == (False, False, True)
    assert [each["delivery_id"] for each in back["matching"]] == [closed]
    assert [each["delivery_id"] for each in back["others"]] == [opened]


def test_event_types_are_tested_on_one_delivery_and_on_the_last_ones(api: Api, stocked: Stocked):
    typed = api.world.webhook("typed", event_header="X-Kind")
    uid = typed.webhook.uid
    paid, other = (
        api.world.post(typed, b'{"n": %d}' % number, headers={"X-Kind": kind} if kind else {}).delivery_id
        for number, kind in enumerate(("paid", ""))
    )

    def tested(delivery: str, **draft: Any) -> tuple[Any, ...]:
        test = api.post(f"{FACTORY}/filter-tests", {"delivery_id": delivery, **draft}, key=api.viewer).json
        return tuple(test[name] for name in ("would_trigger", "event_check", "event_types", "event", "payload_check"))

    back = api.post(f"{FACTORY}/backtests", {"event": ["paid"], "webhook_ids": [uid]}, key=api.viewer).json

    assert tested(paid, event=["refunded", "paid"]) == (True, True, ["refunded", "paid"], "paid", True)
    assert tested(paid, event=["Paid"]) == (False, False, ["Paid"], "paid", True)
    assert tested(paid, event=["paid"], filter={"n": [7]}) == (False, True, ["paid"], "paid", False)
    assert tested(other, event=["paid"]) == (False, False, ["paid"], None, True)
    assert tested(other) == (True, True, [], None, True)
    assert [each["delivery_id"] for each in back["matching"]] == [paid]
    assert [each["delivery_id"] for each in back["others"]] == [other]


def test_event_types_that_can_not_be_used_are_refused_at_their_places(api: Api, stocked: Stocked):
    selected = {"webhook_ids": [stocked.webhook.webhook.uid], "event": ["push", "a\tb"]}
    trigger = {"provider": "webhook", "event": "received", "filter": selected}
    body = {"name": "typed", "prompt": "Look.", "triggers": [trigger]}

    made = api.post(f"{FACTORY}/automations", body)
    tested = api.post(f"{FACTORY}/filter-tests", {"delivery_id": stocked.delivery, "event": ["a\tb"]})

    assert (made.status, tested.status) == (422, 422)
    assert [each["pointer"] for each in made.json["errors"]] == ["/triggers/0/filter/event/1"]
    assert [each["pointer"] for each in tested.json["errors"]] == ["/event/0"]


def test_an_automation_with_event_types_comes_back_as_it_was_sent(api: Api, stocked: Stocked):
    selected = {"webhook_ids": [stocked.webhook.webhook.uid], "event": ["push", "größer"], "payload": {"n": [1]}}
    trigger = {"provider": "webhook", "event": "received", "filter": selected}

    made = api.post(f"{FACTORY}/automations", {"name": "typed", "prompt": "Look.", "triggers": [trigger]}).json

    assert api.get(f"{FACTORY}/automations/{made['automation_id']}").json["triggers"] == [trigger]
    assert made["warnings"] == [
        f"Deliveries of 'source of default' ({stocked.webhook.webhook.uid}) have no event type. Every trigger that "
        "selects it requires one, so none matches. Set the webhook's event header."
    ]


def test_a_number_in_a_filter_comes_back_as_it_was_written(api: Api, stocked: Stocked):
    def automation(values: bytes) -> bytes:
        selected = b'{"webhook_ids": ["%s"], "payload": {"n": %s}}' % (stocked.webhook.webhook.uid.encode(), values)
        trigger = b'{"provider": "webhook", "event": "received", "filter": %s}' % selected
        return b'{"name": "exact", "prompt": "Look.", "triggers": [%s]}' % trigger

    numbers = b"[9007199254740993,0.1,-1,123456789012345678901234567890]"
    made = api.post(f"{FACTORY}/automations", raw=automation(numbers))
    seen = api.get(f"{FACTORY}/automations/{made.json['automation_id']}")
    vast = api.post(f"{FACTORY}/automations", raw=automation(b"[1e400]"))

    for answer in (made, seen):
        assert numbers in answer.body
    assert vast.status == 422


def test_a_replay_starts_new_runs_and_leaves_the_log_as_it_is(api: Api, stocked: Stocked):
    before = api.get(f"{FACTORY}/deliveries").body

    replayed = api.post(f"{FACTORY}/deliveries/{stocked.delivery}/replay")
    of_one = api.post(f"{FACTORY}/deliveries/{stocked.delivery}/replay", {"automation": stocked.automation.id})

    assert (replayed.status, of_one.status) == (201, 201)
    assert [run["replay"] for answer in (replayed, of_one) for run in answer.json["runs"]] == [1, 2]
    assert api.get(f"{FACTORY}/deliveries").body == before
    runs = api.get(f"{FACTORY}/deliveries/{stocked.delivery}").json["runs"]
    assert sorted(run["replay"] for run in runs) == [0, 1, 2]


def test_a_queued_run_is_cancelled_once(api: Api, stocked: Stocked):
    cancelled = api.post(f"{FACTORY}/runs/{stocked.run}/cancel")
    again = api.post(f"{FACTORY}/runs/{stocked.run}/cancel")

    assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled")
    assert (again.status, again.json["code"]) == (409, "conflict")
    for narrowed in ("state=cancelled", f"state=cancelled&automation={stocked.automation.id}"):
        assert [run["run_id"] for run in api.get(f"{FACTORY}/runs?{narrowed}").json["items"]] == [stocked.run]
    assert api.get(f"{FACTORY}/runs?automation=nobody").status == 404


# Other lists


def test_a_list_of_automations_leaves_the_prompts_out(api: Api, stocked: Stocked):
    (listed,) = api.get(f"{FACTORY}/automations").json["items"]
    whole = api.get(f"{FACTORY}/automations/{stocked.automation.id}").json

    assert "prompt" not in listed
    assert listed | {"prompt": stocked.automation.prompt} == whole


def test_a_page_of_automations_ends_where_it_has_grown_large(
    api: Api, stocked: Stocked, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(automations, "PAGE_BYTES", 100)
    for name in ("a", "b", "c"):
        api.world.automation(name, stocked.webhook)

    found = pages(api, f"{FACTORY}/automations", 200)

    assert [[each["name"] for each in page] for page in found] == [["a"], ["b"], ["c"], ["reader of default"]]


def test_an_act_of_management_has_an_id_of_its_own(api: Api, stocked: Stocked):
    ids = [each["entry_id"] for each in api.get(f"{FACTORY}/audit-log?limit=200").json["items"]]

    assert len(ids) == len(set(ids)) > 3
    assert all(re.fullmatch("aud_[0-9a-f]{32}", each) for each in ids)


# The log is evidence


def test_no_route_changes_or_removes_a_delivery(api: Api, stocked: Stocked):
    api.world.post(stocked.webhook, b"{}", token="wrong")

    def log() -> list[Any]:
        with api.world.database.read() as tx:
            tables = ("deliveries", "payloads", "identities")
            return [sorted(repr(tuple(row.values())) for row in tx.all(f"SELECT * FROM {table}")) for table in tables]

    before = log()
    answered = []
    everything = [{}, {"automation": None}, {"label": "Accepted", "enabled": False, "name": "x", "client": "x"}, None]
    # What deletes comes last, so that all the others meet things that are there.
    for each in sorted(operations(application()), key=lambda each: each.method == "DELETE"):
        path = each.path.removeprefix("/api/v1").format(**stocked.places)
        for method in ("POST", "PATCH", "PUT", "DELETE", each.method):
            if method == "DELETE" and each.method != "DELETE":
                answered.append(api.delete(path, key=api.admin).status == 405)
                continue
            for body in everything if method == each.method else [None]:
                api.ask(method, path, body, key=api.admin)

    assert len(log()[0]) == 2
    assert log() == before


def test_the_log_knows_no_method_but_looking_and_replaying():
    methods = {
        (each.method, each.path.rpartition("/")[2])
        for each in operations(application())
        if "/deliveries" in each.path and each.method != "GET"
    }

    assert methods == {("POST", "replay")}


def test_a_backtest_counts_the_keys_of_a_policy_and_what_debounce_supersedes(api: Api, stocked: Stocked):
    numbered = [send(api, stocked, {"action": "numbered", "n": n, "step": step})[0] for step, n in enumerate((1, 2, 1))]
    draft = {"filter": {"action": ["numbered"]}, "concurrency": {"key": "/n"}}

    counted = api.post(f"{FACTORY}/backtests", draft, key=api.viewer).json
    debounced = api.post(f"{FACTORY}/backtests", draft | {"debounce": {"seconds": 3600}}, key=api.viewer).json
    refused = api.post(f"{FACTORY}/backtests", draft | {"debounce": {"seconds": 0}}, key=api.viewer)

    assert (counted["keys"], counted["superseded"]) == (2, [])
    assert (debounced["keys"], debounced["superseded"]) == (2, [numbered[0]])
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/debounce/seconds")
