"""Payload filters in the pages, read without a browser: the editor's help, problems and explanations."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hookmill.domain.filters import OPERATORS
from hookmill.domain.ids import delivery_id
from hookmill.domain.permission import Role
from hookmill.management import WebhookWithSecret
from tests.dashboard.client import Dashboard, Elements, Visitor, dashboard_for_test

EDITOR = "/f/default/automations/new"


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


@pytest.fixture
def manager(dashboard: Dashboard) -> Visitor:
    return dashboard.member("mia@example.com", roles={"default": Role.MANAGER})


@pytest.fixture
def webhook(dashboard: Dashboard) -> WebhookWithSecret:
    """A webhook from which one delivery is stored."""
    made = dashboard.world.webhook("source")
    body = {"state": "closed", "labels": [{"name": "ui"}, {"name": "wip"}], "amount": 7}
    assert dashboard.world.post(made, json.dumps(body).encode()).status == 202
    return made


def text_of(page: bytes) -> str:
    return " ".join(Elements(page).text.split())


def checked(manager: Visitor, webhook: WebhookWithSecret, chosen: Any) -> str:
    """What the editor says once this filter is checked."""
    form = {"do": "check", "webhook": webhook.webhook.uid, "filter": json.dumps(chosen), "name": "a", "prompt": "b"}
    answer = manager.post(EDITOR, form)
    assert answer.status == 200
    return text_of(answer.body)


def test_editor_explains_every_operator(manager: Visitor):
    text = text_of(manager.get(EDITOR).body)

    assert [each.name for each in OPERATORS.values() if f"{each.example} {each.meaning}" not in text] == []


def test_editor_shows_what_any_and_not_contain(manager: Visitor, webhook: WebhookWithSecret):
    chosen = {
        "state": {"$any": [["open"], {"$prefix": "re"}]},
        "labels": {"$not": {"name": ["wip"]}},
        "amount": {"$gt": 5},
    }

    text = checked(manager, webhook, chosen)

    assert "Would not trigger" in text
    assert '/state $any [[…], {…}] "closed" no' in text
    assert '$any 1 /state in ["open"] "closed" no' in text
    assert '$any 2 /state $prefix "re" "closed" no' in text
    assert "/labels $not {…} [{…}, {…}] no" in text
    assert '$not /labels/1/name in ["wip"] "wip" yes' in text
    assert "/amount $gt 5 7 yes" in text
    assert "matches 0 of the last 1" in text


def test_editor_shows_the_way_to_an_operator_inside_operators(manager: Visitor, webhook: WebhookWithSecret):
    text = checked(manager, webhook, {"$any": [{"x": [1]}, {"$not": {"state": ["open"]}}]})

    assert "Would trigger" in text
    assert "$any 1 /x in [1] missing no" in text
    assert "$any 2 / $not {…} {…} yes" in text
    assert '$any 2 › $not /state in ["open"] "closed" no' in text


def test_editor_says_how_to_name_a_field_with_a_dollar(manager: Visitor, webhook: WebhookWithSecret):
    text = checked(manager, webhook, {"$ref": ["x"]})

    assert (
        "/$ref Unknown operator. Operators allowed here are $any, $not, $fields. For a field of this name write" in text
    )
    assert '{"$fields": {"$ref": …}}' in text


def test_delivery_page_shows_what_not_contains(dashboard: Dashboard, manager: Visitor, webhook: WebhookWithSecret):
    dashboard.world.automation("triage", webhook, payload={"state": {"$not": {"$suffix": "ed"}}})
    [delivery] = dashboard.world.log(webhook)

    text = text_of(manager.get(f"/f/default/deliveries/{delivery_id(delivery.key)}").body)

    assert '/state $not {…} "closed" no' in text
    assert '$not /state $suffix "ed" "closed" yes' in text
