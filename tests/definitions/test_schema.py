"""The JSON Schemas say what the reader does, as far as a schema can."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from hookmill import definitions
from hookmill.definitions.folder import Files
from hookmill.definitions.keys import AUTOMATION_KEYS, WebhookKey
from hookmill.definitions.nodes import compose, to_json
from hookmill.definitions.reading import read_definitions
from hookmill.domain.automation import TRIGGERS_MAX, WEBHOOKS_PER_TRIGGER_MAX
from hookmill.domain.errors import NotFound
from hookmill.domain.filters import OPERATORS, SET_VALUES_MAX
from hookmill.domain.schedule import CRON_CHARACTERS_MAX, SCHEDULE_FIELDS, TIMEZONE_CHARACTERS_MAX
from hookmill.domain.signatures.generic import GenericHmac
from hookmill.domain.signatures.rule import allowed_names
from scripts import filter_operators
from tests.definitions.samples import WEBHOOKS, automations
from tests.domain.filter_reference import filter_texts

WEBHOOK: Any = json.loads(definitions.schema("webhook"))
AUTOMATION: Any = json.loads(definitions.schema("automation"))
UID = "wh_" + "0" * 27


def value_of(text: str) -> Any:
    node = compose(text, lambda place, message: None)
    return to_json(node) if node is not None else None


def front_of(text: str) -> str:
    return text.split("---\n")[1]


def takes_webhook(text: str) -> bool:
    return not read_definitions(Files({"webhooks/a.yaml": text.encode()}, {})).problems


def takes_automation(front: str) -> bool:
    return not read_definitions(
        Files({}, {"automations/a/automation.md": f"---\n{front}\n---\nLook.\n".encode()})
    ).problems


@pytest.mark.parametrize("kind", ["webhook", "automation"])
def test_a_schema_is_one_of_2020_12(kind: str):
    schema = json.loads(definitions.schema(kind))

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(schema)


def test_there_is_no_other_schema():
    with pytest.raises(NotFound, match="Schemas are: webhook, automation"):
        definitions.schema("../webhook")


@pytest.mark.parametrize("schema", [WEBHOOK, AUTOMATION], ids=["webhook", "automation"])
def test_every_key_is_described_for_editors(schema: Any):
    assert [
        key for key, said in schema["properties"].items() if not said.get("description") and "$ref" not in said
    ] == []


def test_the_schemas_name_what_the_reader_knows():
    assert tuple(WEBHOOK["properties"]) == tuple(WebhookKey)
    assert tuple(AUTOMATION["properties"]) == AUTOMATION_KEYS
    assert tuple(WEBHOOK["properties"]["signatureScheme"]["enum"]) == allowed_names()
    assert tuple(WEBHOOK["$defs"]["signatureOptions"]["properties"]) == GenericHmac.__struct_fields__
    schedule = AUTOMATION["$defs"]["scheduleTrigger"]["properties"]["schedule"]
    assert tuple(schedule["properties"]) == SCHEDULE_FIELDS
    assert schedule["properties"]["cron"]["maxLength"] == CRON_CHARACTERS_MAX
    assert schedule["properties"]["timezone"]["maxLength"] == TIMEZONE_CHARACTERS_MAX
    assert tuple(AUTOMATION["$defs"]["conditions"]["properties"]) == tuple(OPERATORS)


def test_the_schema_of_filters_follows_from_the_table_of_operators():
    assert filter_operators.schema(AUTOMATION) == AUTOMATION, "run: python -m scripts.filter_operators"


@given(filter_texts)
def test_a_filter_that_can_be_saved_is_valid(filter_text: str):
    trigger: Any = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [UID]}}
    # The validator holds neither of these two values.
    trigger["filter"]["payload"] = json.loads(filter_text.replace("1e400", "9").replace(r"\ud83d", "u"))

    jsonschema_rs.validate(AUTOMATION, {"triggers": [trigger]})


def test_the_schemas_have_the_readers_numbers():
    trigger = AUTOMATION["$defs"]["webhookTrigger"]["properties"]["filter"]["properties"]["webhook_ids"]

    assert AUTOMATION["properties"]["triggers"]["maxItems"] == TRIGGERS_MAX
    assert trigger["maxItems"] == WEBHOOKS_PER_TRIGGER_MAX
    assert AUTOMATION["$defs"]["set"]["maxItems"] == SET_VALUES_MAX


GOOD_WEBHOOKS = [
    *WEBHOOKS.values(),
    'name: "GitHub: main"\nsecretName: S\n',
    "authMode: signature\nsignatureScheme: slack\nanswersHandshakes: true\nsecretName: S\n",
    "authMode: signature\nsignatureScheme: hmac\nsecretName: S\nsignatureOptions: {header: X, timestamp_header: ~}\n",
]
BAD_WEBHOOKS = [
    "",
    "[]",
    "authMode: token",
    "secretName: 5",
    "secretName: a-b",
    "secretName: S\nsecret: x",
    "secretName: S\nuid: wh_1",
    "secretName: S\nauthMode: basic",
    "secretName: S\nauthMode: 1",
    "secretName: S\nenabled: no",
    "secretName: S\nenabled: 1",
    "secretName: S\nname: ''",
    'secretName: S\nname: "a\\nb"',
    f"secretName: S\nname: {'x' * 101}",
    "secretName: S\ndeliveryIdHeader: X Id",
    "secretName: S\neventHeader: X Kind",
    "secretName: S\nsignatureScheme: github",
    "secretName: S\nsignatureOptions: {header: X}",
    "secretName: S\nanswersHandshakes: false",
    "secretName: S\nauthMode: signature",
    "secretName: S\nauthMode: signature\nsignatureScheme: nope",
    "secretName: S\nauthMode: signature\nsignatureScheme: github\nsignatureOptions: {header: X}",
    "secretName: S\nauthMode: signature\nsignatureScheme: hmac",
    "secretName: S\nauthMode: signature\nsignatureScheme: hmac\nsignatureOptions: {prefix: x}",
    "secretName: S\nauthMode: signature\nsignatureScheme: hmac\nsignatureOptions: {header: X, algorithm: md5}",
    "secretName: S\nauthMode: signature\nsignatureScheme: hmac\nsignatureOptions: {header: X, nope: 1}",
]


@pytest.mark.parametrize("text", GOOD_WEBHOOKS)
def test_a_webhook_that_is_taken_is_valid(text: str):
    assert takes_webhook(text)
    jsonschema_rs.validate(WEBHOOK, value_of(text))


@pytest.mark.parametrize("text", BAD_WEBHOOKS)
def test_a_webhook_of_the_wrong_shape_is_neither_taken_nor_valid(text: str):
    assert not takes_webhook(text)
    assert not jsonschema_rs.is_valid(WEBHOOK, value_of(text))


def triggered(chosen: str) -> str:
    return f"triggers: [{{provider: webhook, event: received, filter: {chosen}}}]"


def filtered(payload: str) -> str:
    return triggered(f"{{webhook_ids: [{UID}], payload: {payload}}}")


def scheduled(schedule: str) -> str:
    return f"triggers: [{{provider: schedule, event: cron_fired, schedule: {schedule}}}]"


GOOD_FRONTS = [
    scheduled("{name: nightly, cron: '0 3 * * *'}"),
    scheduled("{name: nightly, cron: ' 0  3 * * MON-FRI '}"),
    scheduled("{name: 'It is late!', cron: '@daily', timezone: Europe/Berlin, catch_up: none}"),
    scheduled("{name: often, cron: '@every 1h30m', timezone: Etc/GMT+1, catch_up: once}"),
    f"{scheduled('{name: a, cron: 1 * * * 1}')[:-1]}, {triggered(f'{{webhook_ids: [{UID}]}}').partition('[')[2]}",
    triggered(f"{{webhook_ids: [{UID}], event: [push, Push Hook]}}"),
    triggered(f"{{webhook_ids: [{UID}], event: [push], payload: {{a: [1]}}}}"),
    triggered(f"{{webhook_ids: [{UID}], event: [{'x' * 200}]}}"),
    front_of(next(iter(automations({"a": UID}).values()))),
    triggered(f"{{webhook_ids: [{UID}]}}"),
    f"name: Triage!\nenabled: false\nrunner: agent\n{triggered(f'{{webhook_ids: [{UID}, {UID}]}}')}",
    filtered("{}"),
    filtered("{a: [x, 1, 1.5, true, null]}"),
    filtered("{in: [x]}"),
    filtered("{a: {in: [1], not_in: [2], exists: true}, b: {exists: false}}"),
    filtered("{a: {b: {c: {not_in: [x]}}, d: [no]}}"),
    filtered("{a: {gt: {$gt: 1.5}, prefix: [x]}, any: [1]}"),
    filtered("{a: {$prefix: x, $suffix: y, $glob: 'r*', $gt: 1, $gte: 1, $lt: 2.5, $lte: 3, not_in: [1]}}"),
    filtered("{a: {$any: [[x], {$not: {b: [1]}}, {$fields: {in: [1], $ref: [2]}}]}}"),
    filtered("{$any: [{in: [x]}, {$fields: {$schema: [x]}}], $not: {draft: [true]}, $fields: {$a: [1]}}"),
]
BAD_FRONTS = [
    "triggers: [{provider: schedule, event: cron_fired}]",
    "triggers: [{provider: schedule, schedule: {name: a, cron: '@daily'}}]",
    "triggers: [{provider: schedule, event: received, schedule: {name: a, cron: '@daily'}}]",
    "triggers: [{provider: schedule, event: cron_fired, filter: {}, schedule: {name: a, cron: '@daily'}}]",
    scheduled("x"),
    scheduled("{}"),
    scheduled("{name: a}"),
    scheduled("{cron: '@daily'}"),
    scheduled("{name: '', cron: '@daily'}"),
    scheduled("{name: 5, cron: '@daily'}"),
    scheduled("{name: a, cron: 5}"),
    scheduled("{name: a, cron: '* * * *'}"),
    scheduled("{name: a, cron: '0 * * * * *'}"),
    scheduled("{name: a, cron: '@reboot'}"),
    scheduled("{name: a, cron: '@every 1.5h'}"),
    scheduled("{name: a, cron: '@daily', timezone: ../etc}"),
    scheduled("{name: a, cron: '@daily', timezone: 1}"),
    scheduled("{name: a, cron: '@daily', catchUp: none}"),
    scheduled("{name: a, cron: '@daily', catch_up: all}"),
    triggered(f"{{webhook_ids: [{UID}], event: []}}"),
    triggered(f"{{webhook_ids: [{UID}], event: push}}"),
    triggered(f"{{webhook_ids: [{UID}], event: [1]}}"),
    triggered(f"{{webhook_ids: [{UID}], event: [' ']}}"),
    triggered(f"{{webhook_ids: [{UID}], event: [{'x' * 201}]}}"),
    triggered(f"{{webhook_ids: [{UID}], event: [{', '.join(f'e{n}' for n in range(33))}]}}"),
    triggered(f"{{webhook_ids: [{UID}], event: {{in: [push]}}}}"),
    "",
    "[]",
    "enabled: true",
    "triggers: []",
    "triggers: {}",
    "triggers: [x]",
    f"prompt: x\n{triggered(f'{{webhook_ids: [{UID}]}}')}",
    f"enabled: yes\n{triggered(f'{{webhook_ids: [{UID}]}}')}",
    f"runner: 5\n{triggered(f'{{webhook_ids: [{UID}]}}')}",
    "triggers: [{provider: webhook, event: received}]",
    f"triggers: [{{provider: github, event: received, filter: {{webhook_ids: [{UID}]}}}}]",
    f"triggers: [{{provider: webhook, event: push, filter: {{webhook_ids: [{UID}]}}}}]",
    triggered("{}"),
    triggered("{webhook_ids: []}"),
    triggered("{webhook_ids: [source]}"),
    triggered("{webhook_ids: [7]}"),
    triggered(f"{{webhook_ids: [{', '.join([UID] * 101)}]}}"),
    triggered(f"{{webhook_ids: [{UID}], payloads: {{}}}}"),
    filtered("null"),
    filtered("[a]"),
    filtered("{a: b}"),
    filtered("{a: []}"),
    filtered("{a: [[b]]}"),
    filtered(f"{{a: [{', '.join(map(str, range(33)))}]}}"),
    filtered("{a: {}}"),
    filtered("{a: {in: x}}"),
    filtered("{a: {exists: 1}}"),
    filtered("{a: {exists: true, b: [1]}}"),
    filtered("{a: {exists: false, in: [1]}}"),
    filtered("{a: {b: {}}}"),
    filtered("{a: {$regex: x}}"),
    filtered("{a: {$ref: [x]}}"),
    filtered("{$schema: [x]}"),
    filtered("{$gt: 5}"),
    filtered("{a: {$prefix: ''}}"),
    filtered("{a: {$prefix: [x]}}"),
    filtered("{a: {$glob: 'a\\b'}}"),
    filtered("{a: {$gt: '5'}}"),
    filtered("{a: {$lte: true}}"),
    filtered("{a: {$any: []}}"),
    filtered("{a: {$any: [x]}}"),
    filtered("{a: {$not: x}}"),
    filtered("{a: {$fields: {}}}"),
    filtered("{a: {$gt: 5, b: [1]}}"),
    filtered("{a: [1], $not: {b: [1]}}"),
    filtered("{$any: [[x]]}"),
    filtered("{$not: {}}"),
]


@pytest.mark.parametrize("front", GOOD_FRONTS)
def test_front_matter_that_is_taken_is_valid(front: str):
    assert takes_automation(front)
    jsonschema_rs.validate(AUTOMATION, value_of(front))


@pytest.mark.parametrize("front", BAD_FRONTS)
def test_front_matter_of_the_wrong_shape_is_neither_taken_nor_valid(front: str):
    assert not takes_automation(front)
    assert not jsonschema_rs.is_valid(AUTOMATION, value_of(front))
