"""The delivery log in the API: pages, filters, payloads, explanations and replays. No operation changes the log."""

import json
import re
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from hookmill.presentation.filter import ExplanationView
from hookmill.web.api import application, automations, operations
from tests.api.client import Api, StockedFactory

FACTORY = "/factories/default"


def pages(api: Api, path: str, limit: int) -> list[list[Any]]:
    """The items of each page of a list."""
    items_by_page: list[list[Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.get(f"{path}{'&' if '?' in path else '?'}limit={limit}{f'&cursor={cursor}' if cursor else ''}").json
        items_by_page.append(page["items"])
        cursor = page["next_cursor"]
    return items_by_page


def send(api: Api, stocked: StockedFactory, *bodies: Any, **choices: Any) -> list[str]:
    """Send deliveries, a second apart. Returns their ids."""
    ids = []
    for body in bodies:
        api.world.clock.advance(seconds=1)
        ids.append(api.world.post(stocked.webhook, json.dumps(body).encode(), **choices).delivery_id)
    return ids


# Pages


@pytest.mark.parametrize("number", [4, 5, 6])
def test_pages_contain_each_delivery_once_newest_first(api, stocked, number):
    ids = send(api, stocked, *range(number - 1))

    log_pages = pages(api, f"{FACTORY}/deliveries", 2)

    assert [len(page) for page in log_pages] == {4: [2, 2], 5: [2, 2, 1], 6: [2, 2, 2]}[number]
    assert [each["delivery_id"] for page in log_pages for each in page] == [*reversed(ids), stocked.delivery]


def test_new_deliveries_do_not_shift_later_pages(api, stocked):
    ids = send(api, stocked, 1, 2, 3)
    first = api.get(f"{FACTORY}/deliveries?limit=2").json

    send(api, stocked, 4, 5)
    second = api.get(f"{FACTORY}/deliveries?limit=2&cursor={first['next_cursor']}").json

    assert [each["delivery_id"] for each in second["items"]] == [ids[0], stocked.delivery]


@pytest.mark.parametrize(
    "path", ["/factories", "/factories/default/webhooks", "/factories/default/secrets", "/schemes"]
)
def test_lists_are_paginated(api, stocked, path):
    for name in ("b", "a", "c"):
        api.factory(name)
    api.manager = api.admin
    whole = api.get(f"{path}?limit=200").json["items"]

    in_pages = pages(api, path, 1)

    assert len(whole) > 1
    assert [each for page in in_pages for each in page] == whole
    assert {len(page) for page in in_pages} == {1}


def test_runs_and_the_audit_log_are_paginated_newest_first(api, stocked):
    send(api, stocked, *({"action": "opened", "number": number} for number in range(4)))
    for noun, time in (("runs", "created_at"), ("audit-log", "at")):
        whole = api.get(f"{FACTORY}/{noun}?limit=200").json["items"]

        assert [each for page in pages(api, f"{FACTORY}/{noun}", 2) for each in page] == whole
        assert [each[time] for each in whole] == sorted((each[time] for each in whole), reverse=True)


def test_cursor_of_another_list_is_refused(api, stocked):
    cursor = api.get(f"{FACTORY}/webhooks?limit=1").json["next_cursor"]

    assert api.get(f"{FACTORY}/deliveries?cursor={cursor}").status == 422


# Filters


def test_log_is_filtered_by_webhook_label_time_and_identity(api, stocked):
    other = api.world.webhook("other")
    api.world.clock.advance(seconds=10)
    (original,) = send(api, stocked, {"n": 1}, headers={"X-Service-Delivery-Id": "evt/1 #+&"})
    (duplicate,) = send(api, stocked, {"n": 1}, headers={"X-Service-Delivery-Id": "evt/1 #+&"})
    api.world.clock.advance(seconds=1)
    api.world.post(stocked.webhook, b"{}", token="wrong")
    api.world.clock.advance(seconds=10)
    api.world.post(other, b"{}")
    received = api.get(f"{FACTORY}/deliveries/{original}").json["received_at"]

    def labels(query: str) -> list[str]:
        return [each["label"] for each in api.get(f"{FACTORY}/deliveries?{query}").json["items"]]

    assert labels("") == ["Accepted", "Rejected (auth)", "Duplicate", "Accepted", "Accepted"]
    assert labels("webhook=other") == labels(f"webhook={other.webhook.uid}") == ["Accepted"]
    assert labels("label=rejected_auth") == labels(f"label={quote('Rejected (auth)')}") == ["Rejected (auth)"]
    assert labels(f"since={received}") == ["Accepted", "Rejected (auth)", "Duplicate", "Accepted"]
    assert labels(f"until={received}") == ["Accepted"]
    assert labels(f"since={received.replace('.000000Z', '%2B00:00')}&webhook={stocked.webhook.webhook.uid}") == [
        "Rejected (auth)",
        "Duplicate",
        "Accepted",
    ]
    assert labels(f"identity={quote('evt/1 #+&', safe='')}") == ["Duplicate", "Accepted"]
    assert api.get(f"{FACTORY}/deliveries/{duplicate}").json["duplicate_of"] == original
    assert api.get(f"{FACTORY}/deliveries?webhook=nobody").status == 404


def test_log_is_filtered_by_event_type(api, stocked):
    typed = api.world.webhook("typed", event_header="X-Kind")
    for kind in ("order.paid", "order paid/1 #+&", "", "order.paid"):
        api.world.clock.advance(seconds=1)
        api.world.post(typed, b"{}", headers={"X-Kind": kind, "X-Service-Delivery-Id": kind or "none"})
    api.world.clock.advance(seconds=1)
    api.world.post(typed, b"no JSON", headers={"X-Kind": "order.paid"})

    def events(query: str) -> list[tuple[str, str, bool]]:
        rows = api.get(f"{FACTORY}/deliveries?{query}").json["items"]
        return [(each["label"], each["event"], each["event_signed"]) for each in rows]

    source = stocked.webhook.webhook.uid
    paid = [(label, "order.paid", False) for label in ("Rejected (invalid JSON)", "Duplicate", "Accepted")]
    assert events("event=order.paid") == events("event=order.paid&webhook=typed") == paid
    assert events("event=order.paid&label=accepted") == paid[2:]
    assert events("event=order.paid&label=rejected_auth") == []
    assert events("event=order.paid&identity=order.paid") == paid[1:]
    assert events(f"event={quote('order paid/1 #+&', safe='')}") == [("Accepted", "order paid/1 #+&", False)]
    assert events("event=order") == events("event=") == events(f"event=order.paid&webhook={source}") == []
    page = api.get(f"{FACTORY}/deliveries?event=order.paid&limit=2").json
    assert events(f"event=order.paid&cursor={page['next_cursor']}") == paid[2:]


def test_dropped_attempts_are_counted_per_minute(api, stocked):
    api.patch(f"{FACTORY}/webhooks/{stocked.webhook.webhook.uid}", {"enabled": False})
    for _ in range(3):
        assert api.world.post(stocked.webhook, b"{}").status == 404
    api.world.dropped_attempts(stocked.webhook)

    (minute,) = api.get(f"{FACTORY}/dropped-attempts").json["items"]

    assert (minute["webhook_uid"], minute["kind"], minute["count"]) == (stocked.webhook.webhook.uid, "not_found", 3)
    assert minute["since"] < minute["until"]


# Payloads


HOSTILE = b'{"<script>": "</script><img src=x onerror=alert(1)>", "n": 1e400, "t": "\\u202e\\u0000"}'


def test_payload_is_downloaded_byte_for_byte_and_cannot_run_scripts(api, stocked):
    delivery = api.world.post(stocked.webhook, HOSTILE).delivery_id

    answer = api.get(f"{FACTORY}/deliveries/{delivery}/payload")

    assert answer.body == HOSTILE
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-disposition"] == 'attachment; filename="event-payload.json"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_response_headers_contain_no_name_from_a_user_or_sender(api, stocked):
    name = 'x"; filename="evil.html\\'
    webhook = api.world.webhook(name)
    delivery = api.world.post(webhook, b"{}", headers={"X-Service-Delivery-Id": name}).delivery_id

    for path in (f"deliveries/{delivery}", f"deliveries/{delivery}/payload", f"webhooks/{webhook.webhook.uid}"):
        assert "evil" not in str(api.get(f"{FACTORY}/{path}").headers)


def test_rejected_delivery_has_no_payload(api, stocked):
    api.world.post(stocked.webhook, b"{}", token="wrong")
    rejected = api.get(f"{FACTORY}/deliveries?label=rejected_auth").json["items"][0]["delivery_id"]

    answer = api.get(f"{FACTORY}/deliveries/{rejected}/payload")

    assert (answer.status, answer.json["code"]) == (404, "not_found")


# Explanations, filter tests and replays


def test_explanation_contains_each_condition_of_each_automation(api, stocked):
    (delivery,) = send(api, stocked, {"action": "closed"})

    (automation,) = api.get(f"{FACTORY}/deliveries/{delivery}/explanation").json["automations"]

    assert (automation["automation"], automation["would_trigger"], automation["runs"]) == (
        "reader of default",
        False,
        [],
    )
    (trigger,) = automation["triggers"]
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


def test_streamed_explanation_equals_the_one_encoded_as_a_whole(api, stocked):
    api.world.automation("another", stocked.webhook)

    answer = api.get(f"{FACTORY}/deliveries/{stocked.delivery}/explanation").body

    assert answer == msgspec.json.encode(msgspec.json.decode(answer, type=ExplanationView))
    assert len(json.loads(answer)["automations"]) == 2


def test_filter_is_tested_on_one_delivery_and_on_the_latest_ones(api, stocked):
    opened, closed = stocked.delivery, send(api, stocked, {"action": "closed"})[0]
    other = api.world.webhook("other")
    draft = {"action": ["closed"]}

    def results(**fields: Any) -> tuple[bool, bool, bool]:
        test = api.post(f"{FACTORY}/filter-tests", fields, key=api.viewer).json
        return test["would_trigger"], test["webhook_check"], test["payload_check"]

    backtest = api.post(f"{FACTORY}/backtests", {"filter": draft, "last": 10}, key=api.viewer).json

    assert results(delivery_id=closed, filter=draft) == (True, True, True)
    assert results(delivery_id=opened, filter=draft) == (False, True, False)
    assert results(delivery_id=closed, filter=draft, webhook_ids=[other.webhook.uid]) == (False, False, True)
    assert [each["delivery_id"] for each in backtest["matching"]] == [closed]
    assert [each["delivery_id"] for each in backtest["others"]] == [opened]


@pytest.mark.parametrize("path", ["filter-tests", "backtests"])
def test_invalid_draft_is_refused_with_pointers_into_the_body(api, stocked, path):
    delivery = {"delivery_id": stocked.delivery} if path == "filter-tests" else {}
    draft = {"filter": {"action": {"equals": 1}}, "event": ["push", "a\tb"]}

    refused = api.post(f"{FACTORY}/{path}", delivery | draft)

    assert [error["pointer"] for error in refused.json["errors"]] == ["/event/1", "/filter/action/equals"]


def test_filter_is_not_tested_for_an_unknown_webhook(api, stocked):
    test = {"delivery_id": stocked.delivery, "webhook_ids": ["wh_unknown"]}

    assert api.post(f"{FACTORY}/filter-tests", test).status == 404
    assert api.post(f"{FACTORY}/backtests", {"webhook_ids": ["wh_unknown"]}).status == 404


def test_event_types_are_tested_on_one_delivery_and_the_latest_ones(api, stocked):
    typed = api.world.webhook("typed", event_header="X-Kind")
    uid = typed.webhook.uid
    paid, other = (
        api.world.post(typed, b'{"n": %d}' % number, headers={"X-Kind": kind} if kind else {}).delivery_id
        for number, kind in enumerate(("paid", ""))
    )

    def results(delivery: str, **draft: Any) -> tuple[Any, ...]:
        test = api.post(f"{FACTORY}/filter-tests", {"delivery_id": delivery, **draft}, key=api.viewer).json
        return tuple(test[name] for name in ("would_trigger", "event_check", "event_types", "event", "payload_check"))

    backtest = api.post(f"{FACTORY}/backtests", {"event": ["paid"], "webhook_ids": [uid]}, key=api.viewer).json

    assert results(paid, event=["refunded", "paid"]) == (True, True, ["refunded", "paid"], "paid", True)
    assert results(paid, event=["Paid"]) == (False, False, ["Paid"], "paid", True)
    assert results(paid, event=["paid"], filter={"n": [7]}) == (False, True, ["paid"], "paid", False)
    assert results(other, event=["paid"]) == (False, False, ["paid"], None, True)
    assert results(other) == (True, True, [], None, True)
    assert [each["delivery_id"] for each in backtest["matching"]] == [paid]
    assert [each["delivery_id"] for each in backtest["others"]] == [other]


def test_invalid_event_types_are_refused_with_their_pointers(api, stocked):
    selected = {"webhook_ids": [stocked.webhook.webhook.uid], "event": ["push", "a\tb"]}
    trigger = {"provider": "webhook", "event": "received", "filter": selected}
    body = {"name": "typed", "prompt": "Look.", "triggers": [trigger]}

    creation = api.post(f"{FACTORY}/automations", body)
    filter_test = api.post(f"{FACTORY}/filter-tests", {"delivery_id": stocked.delivery, "event": ["a\tb"]})

    assert (creation.status, filter_test.status) == (422, 422)
    assert [each["pointer"] for each in creation.json["errors"]] == ["/triggers/0/filter/event/1"]
    assert [each["pointer"] for each in filter_test.json["errors"]] == ["/event/0"]


def test_automation_with_event_types_is_returned_as_it_was_sent(api, stocked):
    selected = {"webhook_ids": [stocked.webhook.webhook.uid], "event": ["push", "größer"], "payload": {"n": [1]}}
    trigger = {"provider": "webhook", "event": "received", "filter": selected}

    created = api.post(f"{FACTORY}/automations", {"name": "typed", "prompt": "Look.", "triggers": [trigger]}).json

    assert api.get(f"{FACTORY}/automations/{created['automation_id']}").json["triggers"] == [trigger]
    assert created["warnings"] == [
        f"Deliveries of 'source of default' ({stocked.webhook.webhook.uid}) have no event type. Every trigger that "
        "selects it requires one, so none matches. Set the webhook's event header."
    ]


def test_numbers_in_a_filter_are_returned_digit_by_digit(api, stocked):
    def automation(values: bytes) -> bytes:
        selected = b'{"webhook_ids": ["%s"], "payload": {"n": %s}}' % (stocked.webhook.webhook.uid.encode(), values)
        trigger = b'{"provider": "webhook", "event": "received", "filter": %s}' % selected
        return b'{"name": "exact", "prompt": "Look.", "triggers": [%s]}' % trigger

    numbers = b"[9007199254740993,0.1,-1,123456789012345678901234567890]"
    creation = api.post(f"{FACTORY}/automations", raw=automation(numbers))
    reading = api.get(f"{FACTORY}/automations/{creation.json['automation_id']}")

    for answer in (creation, reading):
        assert numbers in answer.body


def test_replay_starts_new_runs_and_does_not_change_the_log(api, stocked):
    before = api.get(f"{FACTORY}/deliveries").body

    of_all = api.post(f"{FACTORY}/deliveries/{stocked.delivery}/replay")
    of_one = api.post(f"{FACTORY}/deliveries/{stocked.delivery}/replay", {"automation": stocked.automation.id})

    assert (of_all.status, of_one.status) == (201, 201)
    assert [run["replay"] for answer in (of_all, of_one) for run in answer.json["runs"]] == [1, 2]
    assert api.get(f"{FACTORY}/deliveries").body == before
    runs = api.get(f"{FACTORY}/deliveries/{stocked.delivery}").json["runs"]
    assert sorted(run["replay"] for run in runs) == [0, 1, 2]


def test_queued_run_is_cancelled_once(api, stocked):
    cancelled = api.post(f"{FACTORY}/runs/{stocked.run}/cancel")
    second = api.post(f"{FACTORY}/runs/{stocked.run}/cancel")

    assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled")
    assert (second.status, second.json["code"]) == (409, "conflict")
    for query in ("state=cancelled", f"state=cancelled&automation={stocked.automation.id}"):
        assert [run["run_id"] for run in api.get(f"{FACTORY}/runs?{query}").json["items"]] == [stocked.run]
    assert api.get(f"{FACTORY}/runs?automation=nobody").status == 404


# Other lists


def test_list_of_automations_contains_no_prompts(api, stocked):
    (listed,) = api.get(f"{FACTORY}/automations").json["items"]
    whole = api.get(f"{FACTORY}/automations/{stocked.automation.id}").json

    assert "prompt" not in listed
    assert listed | {"prompt": stocked.automation.prompt} == whole


def test_page_of_automations_has_a_maximum_size(api, stocked, monkeypatch):
    monkeypatch.setattr(automations, "PAGE_BYTES", 100)
    for name in ("a", "b", "c"):
        api.world.automation(name, stocked.webhook)

    automation_pages = pages(api, f"{FACTORY}/automations", 200)

    assert [[each["name"] for each in page] for page in automation_pages] == [
        ["a"],
        ["b"],
        ["c"],
        ["reader of default"],
    ]


def test_every_entry_of_the_audit_log_has_its_own_id(api, stocked):
    ids = [each["entry_id"] for each in api.get(f"{FACTORY}/audit-log?limit=200").json["items"]]

    assert len(ids) == len(set(ids)) > 3
    assert all(re.fullmatch("aud_[0-9a-f]{32}", each) for each in ids)


# No operation changes the log


def test_no_route_changes_or_removes_a_delivery(api, stocked):
    api.world.post(stocked.webhook, b"{}", token="wrong")

    def log() -> list[Any]:
        with api.world.database.read() as tx:
            tables = ("deliveries", "payloads", "identities")
            return [sorted(repr(tuple(row.values())) for row in tx.all(f"SELECT * FROM {table}")) for table in tables]

    before = log()
    bodies = [{}, {"automation": None}, {"label": "Accepted", "enabled": False, "name": "x", "client": "x"}, None]
    # The operations that delete are last, because the others need the resources.
    for each in sorted(operations(application()), key=lambda each: each.method == "DELETE"):
        path = each.path.removeprefix("/api/v1").format(**stocked.path_parameters)
        for method in ("POST", "PATCH", "PUT", "DELETE", each.method):
            if method == "DELETE" and each.method != "DELETE":
                api.delete(path, key=api.admin)
                continue
            for body in bodies if method == each.method else [None]:
                api.request(method, path, body, key=api.admin)

    assert len(log()[0]) == 2
    assert log() == before


def test_only_reading_and_replay_are_operations_on_deliveries():
    methods = {
        (each.method, each.path.rpartition("/")[2])
        for each in operations(application())
        if "/deliveries" in each.path and each.method != "GET"
    }

    assert methods == {("POST", "replay")}


def test_backtest_counts_policy_keys_and_lists_superseded_deliveries(api, stocked):
    deliveries = [
        send(api, stocked, {"action": "numbered", "n": n, "step": step})[0] for step, n in enumerate((1, 2, 1))
    ]
    draft = {"filter": {"action": ["numbered"]}, "concurrency": {"key": "/n"}}

    without_debounce = api.post(f"{FACTORY}/backtests", draft, key=api.viewer).json
    with_debounce = api.post(f"{FACTORY}/backtests", draft | {"debounce": {"seconds": 3600}}, key=api.viewer).json
    refused = api.post(f"{FACTORY}/backtests", draft | {"debounce": {"seconds": 0}}, key=api.viewer)

    assert (without_debounce["keys"], without_debounce["superseded"]) == (2, [])
    assert (with_debounce["keys"], with_debounce["superseded"]) == (2, [deliveries[0]])
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/debounce/seconds")
