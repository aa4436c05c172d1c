"""The delivery log in the API: pages, filters, payloads, explanations and replays. No operation changes the log."""

import json
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


def test_oldest_deliveries_are_listed_first(api, stocked):
    ids = send(api, stocked, *range(4))

    log_pages = pages(api, f"{FACTORY}/deliveries?oldest_first=true", 2)

    assert [each["delivery_id"] for page in log_pages for each in page] == [stocked.delivery, *ids]
    assert api.get(f"{FACTORY}/deliveries?oldest_first=true&label=accepted").problem == (422, "invalid")


def test_id_of_an_item_is_a_cursor(api, stocked):
    first, second = send(api, stocked, 1, 2)

    older = api.get(f"{FACTORY}/deliveries?cursor={second}").json["items"]
    newer = api.get(f"{FACTORY}/deliveries?cursor={first}&oldest_first=true").json["items"]

    assert [each["delivery_id"] for each in older] == [first, stocked.delivery]
    assert [each["delivery_id"] for each in newer] == [second]


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


def test_log_is_filtered_by_webhook_label_time_identity_and_event_type(api, stocked):
    other = api.world.webhook("other", event_header="X-Kind")
    api.world.clock.advance(seconds=10)
    (original,) = send(api, stocked, {"n": 1}, headers={"X-Service-Delivery-Id": "evt/1 #+&"})
    (duplicate,) = send(api, stocked, {"n": 1}, headers={"X-Service-Delivery-Id": "evt/1 #+&"})
    api.world.clock.advance(seconds=1)
    api.world.post(stocked.webhook, b"{}", token="wrong")
    api.world.clock.advance(seconds=10)
    api.world.post(other, b"{}", headers={"X-Kind": "order paid/1 #+&"})
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
    assert labels(f"event={quote('order paid/1 #+&', safe='')}") == ["Accepted"]
    assert labels("event=order") == []
    assert api.get(f"{FACTORY}/deliveries/{duplicate}").json["duplicate_of"] == original
    assert api.get(f"{FACTORY}/deliveries?webhook=nobody").status == 404


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


# Explanations, filter tests and replays


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
    assert results(delivery_id=closed, event=["push"]) == (False, True, True)
    assert api.post(f"{FACTORY}/backtests", {"event": ["push"]}).json["matching"] == []
    assert [each["delivery_id"] for each in backtest["matching"]] == [closed]
    assert [each["delivery_id"] for each in backtest["others"]] == [opened]


@pytest.mark.parametrize("path", ["filter-tests", "backtests"])
def test_invalid_draft_is_refused_with_pointers_into_the_body(api, stocked, path):
    delivery = {"delivery_id": stocked.delivery} if path == "filter-tests" else {}
    draft = {"filter": {"action": {"equals": 1}}, "event": ["push", ""]}

    refused = api.post(f"{FACTORY}/{path}", delivery | draft)

    assert [error["pointer"] for error in refused.json["errors"]] == ["/event/1", "/filter/action/equals"]


def test_queued_run_is_cancelled_once(api, stocked):
    cancelled = api.post(f"{FACTORY}/runs/{stocked.run}/cancel")
    second = api.post(f"{FACTORY}/runs/{stocked.run}/cancel")

    assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled")
    assert second.problem == (409, "conflict")
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
