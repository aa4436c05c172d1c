"""Payload filters on the pages, without a browser: the editor's help, problems and explanations."""

import json
from typing import Any

import pytest

from hookmill.domain.filters import OPERATORS
from hookmill.domain.ids import delivery_id
from hookmill.management import WebhookWithSecret
from tests.dashboard.client import Visitor, text_of

EDITOR = "/f/default/automations/new"


@pytest.fixture
def webhook(dashboard):
    """A webhook with one delivery."""
    webhook = dashboard.world.webhook("source")
    body = {"state": "closed", "labels": [{"name": "ui"}, {"name": "wip"}], "amount": 7}
    assert dashboard.world.post(webhook, json.dumps(body).encode()).status == 202
    return webhook


def check(manager: Visitor, webhook: WebhookWithSecret, payload: Any) -> str:
    """The text of the editor after a check of this filter."""
    form = {"do": "check", "webhook": webhook.webhook.uid, "filter": json.dumps(payload), "name": "a", "prompt": "b"}
    answer = manager.post(EDITOR, form)
    assert answer.status == 200
    return text_of(answer.body)


def test_editor_explains_every_operator(manager):
    text = text_of(manager.get(EDITOR).body)

    unexplained = [name for name, operator in OPERATORS.items() if f"{operator.example} {operator.meaning}" not in text]
    assert unexplained == []


def test_editor_explains_the_conditions_inside_any_and_not(manager, webhook):
    payload = {
        "state": {"$any": [["open"], {"$prefix": "re"}]},
        "labels": {"$not": {"name": ["wip"]}},
        "amount": {"$gt": 5},
    }

    text = check(manager, webhook, payload)

    assert "Would not trigger" in text
    assert '/state $any [[…], {…}] "closed" no' in text
    assert '$any 1 /state in ["open"] "closed" no' in text
    assert '$any 2 /state $prefix "re" "closed" no' in text
    assert "/labels $not {…} [{…}, {…}] no" in text
    assert '$not /labels/1/name in ["wip"] "wip" yes' in text
    assert "/amount $gt 5 7 yes" in text
    assert "matches 0 of the last 1" in text


def test_editor_shows_the_path_to_a_condition_in_nested_operators(manager, webhook):
    text = check(manager, webhook, {"$any": [{"x": [1]}, {"$not": {"state": ["open"]}}]})

    assert "Would trigger" in text
    assert "$any 1 /x in [1] missing no" in text
    assert "$any 2 / $not {…} {…} yes" in text
    assert '$any 2 › $not /state in ["open"] "closed" no' in text


def test_editor_explains_how_to_name_a_field_that_starts_with_dollar(manager, webhook):
    text = check(manager, webhook, {"$ref": ["x"]})

    assert (
        "/$ref Unknown operator. Operators allowed here are $any, $not, $fields. For a field of this name write" in text
    )
    assert '{"$fields": {"$ref": …}}' in text


def test_delivery_page_explains_the_condition_inside_not(dashboard, manager, webhook):
    dashboard.world.automation("triage", webhook, payload={"state": {"$not": {"$suffix": "ed"}}})
    [delivery] = dashboard.world.log(webhook)

    text = text_of(manager.get(f"/f/default/deliveries/{delivery_id(delivery.key)}").body)

    assert '/state $not {…} "closed" no' in text
    assert '$not /state $suffix "ed" "closed" yes' in text
