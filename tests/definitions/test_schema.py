"""The JSON Schemas accept and reject the same files as the reader of definitions, as far as a schema can."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from hookmill import definitions
from hookmill.definitions.folder import Files
from hookmill.definitions.keys import AUTOMATION_KEYS, WEBHOOK_FIELDS
from hookmill.definitions.nodes import compose, to_json
from hookmill.definitions.reading import read_definitions
from hookmill.domain.automation import TRIGGERS_MAX
from hookmill.domain.definition_run import DefinitionKind
from hookmill.domain.filters import OPERATORS, SET_VALUES_MAX
from hookmill.domain.networks import NETWORKS_MAX
from hookmill.domain.schedule import CRON_CHARACTERS_MAX, TIMEZONE_CHARACTERS_MAX
from hookmill.domain.signatures.generic import GenericHmac
from hookmill.domain.signatures.rule import allowed_names
from scripts import filter_operators
from tests.definitions.samples import WEBHOOKS, automations
from tests.domain.filter_reference import filter_texts
from tests.support.triggers import received

WEBHOOK: Any = json.loads(definitions.schema(DefinitionKind.WEBHOOK))
AUTOMATION: Any = json.loads(definitions.schema(DefinitionKind.AUTOMATION))
UID = "wh_" + "0" * 27


def value_of(text: str) -> Any:
    node = compose(text, lambda place, message: None)
    return to_json(node) if node is not None else None


def front_matter_of(text: str) -> str:
    return text.split("---\n")[1]


def reader_accepts_webhook(text: str) -> bool:
    return not read_definitions(Files({"webhooks/a.yaml": text.encode()}, {})).problems


def reader_accepts_automation(front_matter: str) -> bool:
    return not read_definitions(
        Files({}, {"automations/a/automation.md": f"---\n{front_matter}\n---\nLook.\n".encode()})
    ).problems


@pytest.mark.parametrize("kind", DefinitionKind)
def test_schema_is_valid_json_schema_2020_12(kind):
    schema = json.loads(definitions.schema(kind))

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(schema)


@pytest.mark.parametrize("schema", [WEBHOOK, AUTOMATION], ids=["webhook", "automation"])
def test_every_key_has_a_description(schema):
    properties = schema["properties"].items()

    assert [key for key, value in properties if not value.get("description") and "$ref" not in value] == []


def test_schemas_have_the_names_that_the_reader_supports():
    assert tuple(WEBHOOK["properties"]) == tuple(WEBHOOK_FIELDS)
    assert tuple(AUTOMATION["properties"]) == AUTOMATION_KEYS
    assert tuple(WEBHOOK["properties"]["signatureScheme"]["enum"]) == allowed_names()
    assert tuple(WEBHOOK["$defs"]["signatureOptions"]["properties"]) == GenericHmac.__struct_fields__
    schedule = AUTOMATION["$defs"]["Schedule"]
    assert schedule["properties"]["cron"]["maxLength"] == CRON_CHARACTERS_MAX
    assert schedule["properties"]["timezone"]["maxLength"] == TIMEZONE_CHARACTERS_MAX
    assert tuple(AUTOMATION["$defs"]["conditions"]["properties"]) == tuple(OPERATORS)


def test_schema_of_filters_is_generated_from_the_table_of_operators():
    assert filter_operators.schema(AUTOMATION) == AUTOMATION, "run: python -m scripts.filter_operators"


@given(filter_texts)
def test_every_filter_that_can_be_saved_is_valid(filter_text):
    trigger: Any = received(UID)
    # The validator supports neither of these two values.
    trigger["filter"]["payload"] = json.loads(filter_text.replace("1e400", "9").replace(r"\ud83d", "u"))

    jsonschema_rs.validate(AUTOMATION, {"triggers": [trigger]})


def test_schemas_have_the_limits_of_the_reader():
    assert AUTOMATION["properties"]["triggers"]["maxItems"] == TRIGGERS_MAX
    assert AUTOMATION["$defs"]["set"]["maxItems"] == SET_VALUES_MAX
    assert WEBHOOK["properties"]["allowedNetworks"]["maxItems"] == NETWORKS_MAX


VALID_WEBHOOKS = [
    *WEBHOOKS.values(),
    'name: "GitHub: main"\nsecretName: S\n',
    "secretName: S\nallowedNetworks: []\n",
    "secretName: S\nallowedNetworks: [192.0.2.0/24, '2001:db8::/32', '::1', 192.0.2.7]\n",
    "authMode: signature\nsignatureScheme: slack\nanswersHandshakes: true\nsecretName: S\n",
    "authMode: signature\nsignatureScheme: hmac\nsecretName: S\nsignatureOptions: {header: X, timestamp_header: ~}\n",
]
INVALID_WEBHOOKS = [
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
    "secretName: S\nallowedNetworks: 192.0.2.0/24",
    "secretName: S\nallowedNetworks: [1]",
    "secretName: S\nallowedNetworks: [example.com]",
    f"secretName: S\nallowedNetworks: [{', '.join(f'10.0.0.{number}' for number in range(65))}]",
    "secretName: S\nsignatureScheme: github",
    "secretName: S\nsignatureOptions: {header: X}",
    "secretName: S\nanswersHandshakes: true",
    "secretName: S\nauthMode: signature",
    "secretName: S\nauthMode: signature\nsignatureScheme: nope",
    "secretName: S\nauthMode: signature\nsignatureScheme: github\nsignatureOptions: {header: X}",
    "secretName: S\nauthMode: signature\nsignatureScheme: hmac",
    "secretName: S\nauthMode: signature\nsignatureScheme: hmac\nsignatureOptions: {prefix: x}",
    "secretName: S\nauthMode: signature\nsignatureScheme: hmac\nsignatureOptions: {header: X, algorithm: md5}",
    "secretName: S\nauthMode: signature\nsignatureScheme: hmac\nsignatureOptions: {header: X, nope: 1}",
]


@pytest.mark.parametrize("text", VALID_WEBHOOKS)
def test_reader_and_schema_accept_valid_webhooks(text):
    assert reader_accepts_webhook(text)
    jsonschema_rs.validate(WEBHOOK, value_of(text))


@pytest.mark.parametrize("text", INVALID_WEBHOOKS)
def test_reader_and_schema_reject_invalid_webhooks(text):
    assert not reader_accepts_webhook(text)
    assert not jsonschema_rs.is_valid(WEBHOOK, value_of(text))


def webhook_trigger(filter_: str) -> str:
    return f"triggers: [{{provider: webhook, event: received, filter: {filter_}}}]"


def payload_filter(payload: str) -> str:
    return webhook_trigger(f"{{webhook_ids: [{UID}], payload: {payload}}}")


def schedule_trigger(schedule: str) -> str:
    return f"triggers: [{{provider: schedule, event: cron_fired, schedule: {schedule}}}]"


VALID_FRONT_MATTER = [
    schedule_trigger("{name: nightly, cron: '0 3 * * *'}"),
    schedule_trigger("{name: nightly, cron: ' 0  3 * * MON-FRI '}"),
    schedule_trigger("{name: 'It is late!', cron: '@daily', timezone: Europe/Berlin, catch_up: none}"),
    schedule_trigger("{cron: '@daily'}"),
    webhook_trigger(f"{{webhook_ids: {{in: [{UID}]}}}}"),
    payload_filter("{a: [], b: {in: []}, c: {not_in: []}}"),
    schedule_trigger("{name: often, cron: '@every 1h30m', timezone: Etc/GMT+1, catch_up: once}"),
    "triggers: [{provider: schedule, event: cron_fired, schedule: {name: a, cron: 1 * * * 1}}, "
    f"{{provider: webhook, event: received, filter: {{webhook_ids: [{UID}]}}}}]",
    webhook_trigger(f"{{webhook_ids: [{UID}], event: [push, Push Hook]}}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], event: [push], payload: {{a: [1]}}}}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], event: [{'x' * 200}]}}"),
    front_matter_of(next(iter(automations({"a": UID}).values()))),
    webhook_trigger(f"{{webhook_ids: [{UID}]}}"),
    f"name: Triage!\nenabled: false\nrunner: agent\n{webhook_trigger(f'{{webhook_ids: [{UID}, {UID}]}}')}",
    f"fields: {{}}\n{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}",
    f"results: []\n{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}",
    f"results: [{{kind: github_status, destination: g, context: ci, commit: /a}}, {{kind: slack, destination: t-1}}, "
    f"{{kind: github_check, destination: g, context: ci, commit: /a}}]\n"
    f"{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}",
    f"fields: {{pr: /a, title: {{pointer: /b, max_characters: 2000}}, c: {{pointer: /}}}}\n"
    f"{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}",
    f"secrets: []\n{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}",
    f"secrets: [NPM_TOKEN, GH_TOKEN=BILLING_GH_TOKEN, _A=b]\n{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}",
    *(
        f"workspace: {workspace}\n{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}"
        for workspace in (
            "{repository: app}",
            "{repository: a-b_1, ref: main, depth: 0}",
            "{repository: app, ref: {pointer: /pull_request/head/sha}, depth: full}",
            "{repository: app, base: main}",
            "{repository: app, base: {pointer: /pull_request/base/ref}}",
        )
    ),
    payload_filter("{}"),
    payload_filter("{a: [x, 1, 1.5, true, null]}"),
    payload_filter("{in: [x]}"),
    payload_filter("{a: {in: [1], not_in: [2], exists: true}, b: {exists: false}}"),
    payload_filter("{a: {b: {c: {not_in: [x]}}, d: [no]}}"),
    payload_filter("{a: {gt: {$gt: 1.5}, prefix: [x]}, any: [1]}"),
    payload_filter("{a: {$prefix: x, $suffix: y, $glob: 'r*', $gt: 1, $gte: 1, $lt: 2.5, $lte: 3, not_in: [1]}}"),
    payload_filter("{a: {$any: [[x], {$not: {b: [1]}}, {$fields: {in: [1], $ref: [2]}}]}}"),
    payload_filter("{$any: [{in: [x]}, {$fields: {$schema: [x]}}], $not: {draft: [true]}, $fields: {$a: [1]}}"),
]
INVALID_FRONT_MATTER = [
    *(
        f"{option}\n{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}"
        for option in (
            "workspace: app",
            "workspace: {repository: 'https://git.example.com/app.git'}",
            "workspace: {repository: app, ref: {pointer: /a, default: main}}",
            "workspace: {repository: app, depth: all}",
            "fields: {PR: /a}",
            "fields: {pr: {pointer: /a, max_characters: 2001}}",
            "secrets: [A=B=C]",
            "secrets: [A, A]",
            "results: [{kind: slack, destination: t, context: ci}]",
            "results: [{kind: slack, destination: t}, {kind: slack, destination: t}]",
            "results: [{kind: github_comment, destination: g, commit: /a}]",
            "concurrency: {limit: 0}",
        )
    ),
    "triggers: [{provider: schedule, event: cron_fired}]",
    "triggers: [{provider: schedule, event: received, schedule: {name: a, cron: '@daily'}}]",
    "triggers: [{provider: schedule, event: cron_fired, filter: {}, schedule: {name: a, cron: '@daily'}}]",
    schedule_trigger("x"),
    schedule_trigger("{}"),
    schedule_trigger("{name: a}"),
    schedule_trigger("{name: '', cron: '@daily'}"),
    schedule_trigger("{name: 5, cron: '@daily'}"),
    schedule_trigger("{name: a, cron: 5}"),
    schedule_trigger("{name: a, cron: '* * * *'}"),
    schedule_trigger("{name: a, cron: '0 * * * * *'}"),
    schedule_trigger("{name: a, cron: '@reboot'}"),
    schedule_trigger("{name: a, cron: '@every 1.5h'}"),
    schedule_trigger("{name: a, cron: '@daily', timezone: ../etc}"),
    schedule_trigger("{name: a, cron: '@daily', timezone: 1}"),
    schedule_trigger("{name: a, cron: '@daily', catchUp: none}"),
    schedule_trigger("{name: a, cron: '@daily', catch_up: all}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], event: []}}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], event: push}}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], event: [1]}}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], event: [' ']}}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], event: [{'x' * 201}]}}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], event: [{', '.join(f'e{n}' for n in range(33))}]}}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], event: {{in: [push]}}}}"),
    "",
    "[]",
    "enabled: true",
    "triggers: []",
    "triggers: {}",
    "triggers: [x]",
    f"prompt: x\n{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}",
    f"enabled: yes\n{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}",
    f"runner: 5\n{webhook_trigger(f'{{webhook_ids: [{UID}]}}')}",
    "triggers: [{provider: webhook, event: received}]",
    f"triggers: [{{provider: github, event: received, filter: {{webhook_ids: [{UID}]}}}}]",
    f"triggers: [{{provider: webhook, event: push, filter: {{webhook_ids: [{UID}]}}}}]",
    webhook_trigger("{}"),
    webhook_trigger("{webhook_ids: []}"),
    webhook_trigger("{webhook_ids: {in: []}}"),
    webhook_trigger(f"{{webhook_ids: {{in: [{UID}], not_in: [{UID}]}}}}"),
    webhook_trigger("{webhook_ids: [source]}"),
    webhook_trigger("{webhook_ids: [7]}"),
    webhook_trigger(f"{{webhook_ids: [{', '.join([UID] * 101)}]}}"),
    webhook_trigger(f"{{webhook_ids: [{UID}], payloads: {{}}}}"),
    payload_filter("[a]"),
    payload_filter("{a: b}"),
    payload_filter("{a: [[b]]}"),
    payload_filter(f"{{a: [{', '.join(map(str, range(33)))}]}}"),
    payload_filter("{a: {}}"),
    payload_filter("{a: {in: x}}"),
    payload_filter("{a: {exists: 1}}"),
    payload_filter("{a: {exists: true, b: [1]}}"),
    payload_filter("{a: {exists: false, in: [1]}}"),
    payload_filter("{a: {b: {}}}"),
    payload_filter("{a: {$regex: x}}"),
    payload_filter("{a: {$ref: [x]}}"),
    payload_filter("{$schema: [x]}"),
    payload_filter("{$gt: 5}"),
    payload_filter("{a: {$prefix: ''}}"),
    payload_filter("{a: {$prefix: [x]}}"),
    payload_filter("{a: {$glob: 'a\\b'}}"),
    payload_filter("{a: {$gt: '5'}}"),
    payload_filter("{a: {$lte: true}}"),
    payload_filter("{a: {$any: []}}"),
    payload_filter("{a: {$any: [x]}}"),
    payload_filter("{a: {$not: x}}"),
    payload_filter("{a: {$fields: {}}}"),
    payload_filter("{a: {$gt: 5, b: [1]}}"),
    payload_filter("{a: [1], $not: {b: [1]}}"),
    payload_filter("{$any: [[x]]}"),
    payload_filter("{$not: {}}"),
]


@pytest.mark.parametrize("front_matter", VALID_FRONT_MATTER)
def test_reader_and_schema_accept_valid_front_matter(front_matter):
    assert reader_accepts_automation(front_matter)
    jsonschema_rs.validate(AUTOMATION, value_of(front_matter))


@pytest.mark.parametrize("front_matter", INVALID_FRONT_MATTER)
def test_reader_and_schema_reject_invalid_front_matter(front_matter):
    assert not reader_accepts_automation(front_matter)
    assert not jsonschema_rs.is_valid(AUTOMATION, value_of(front_matter))
