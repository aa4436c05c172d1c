"""Requests to the API: content types, strict JSON, sizes, fields, parameters and paths."""

import json
from decimal import Decimal

import pytest

from hookmill.domain import spec
from hookmill.domain.automation import AutomationSpec
from hookmill.domain.limits import BACKTEST_DELIVERIES_MAX
from hookmill.domain.permission import Role
from hookmill.domain.webhook import WebhookSpec
from hookmill.store import schema
from hookmill.web.api import application, operations
from hookmill.web.api.bodies import AttemptReport
from hookmill.web.api.body import BYTES_MAX, FIELDS_MAX, LARGE_BYTES_MAX
from hookmill.web.api.fields import PATTERN_HINTS
from hookmill.web.api.openapi import openapi_document
from hookmill.web.api.problems import DETAIL_CHARACTERS_MAX, ERRORS_MAX
from tests.api.client import PROMPT
from tests.support.triggers import received

WEBHOOKS = "/factories/default/webhooks"
BODY = b'{"name": "from a form"}'


# Requests from pages of other sites


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json-seq",
        "application/problem+json",
        "application/json, text/plain",
        "application/json; charset=utf-16",
        "json",
        "",
    ],
)
def test_body_with_another_content_type_is_refused(shared_api, content_type):
    answer = shared_api.post(WEBHOOKS, raw=BODY, headers={"Content-Type": content_type})

    assert answer.problem == (415, "unsupported_media_type")
    assert shared_api.get(WEBHOOKS).json["items"] == []


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=UTF-8"])
def test_json_content_type_is_accepted_in_any_spelling(api, content_type):
    assert api.post(WEBHOOKS, raw=BODY, headers={"Content-Type": content_type}).status == 201


def test_two_content_types_are_refused(api):
    both = [("Content-Type", "application/json"), ("Content-Type", "text/plain")]

    assert api.post(WEBHOOKS, raw=BODY, headers=both).status == 415


def test_answers_have_no_cors_headers(shared_api):
    headers = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}

    simple = shared_api.get("/me", headers=headers)
    preflight = shared_api.request("OPTIONS", WEBHOOKS, key="", headers=headers)

    for answer in (simple, preflight):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_get_and_head_change_nothing(api, stocked):
    def everything() -> list[list[str]]:
        # A row of this table contains when the key was last used, which every request may change.
        tables = [table for table in schema.metadata.tables if table != "api_keys"]
        with api.world.database.read() as tx:
            return [sorted(repr(tuple(row.values())) for row in tx.all(f"SELECT * FROM {table}")) for table in tables]

    before = everything()
    statuses = []
    for each in operations(application()):
        if each.method == "GET":
            path = each.path.removeprefix("/api/v1").format(**stocked.path_parameters)
            statuses.append(api.get(path, key=api.admin).status)
            statuses.append(api.request("HEAD", path, key=api.admin).status)

    assert set(statuses) == {200}
    assert everything() == before


# Strict JSON


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not JSON"),
        (b'{"name": NaN}', "NaN"),
        (b'{"name": Infinity}', "Infinity"),
        (b'{"name": "a", "name": "b"}', "twice"),
        (b'{"name": "a", "signature_options": {"a": 1, "\\u0061": 2}}', "twice"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"name": "\xff"}', "UTF-8"),
        (b"[" * 600 + b"]" * 600, "nested"),
        (b"name=x", "form"),
    ],
    ids=["incomplete", "NaN", "Infinity", "duplicate key", "inner duplicate key", "mark", "not UTF-8", "deep", "form"],
)
def test_body_that_is_not_strict_json_is_refused_with_the_reason(shared_api, body, reason):
    answer = shared_api.post(WEBHOOKS, raw=body)

    assert answer.problem == (400, "malformed_json")
    assert reason in answer.json["detail"]


def test_missing_body_is_refused(shared_api):
    answer = shared_api.post(WEBHOOKS, headers={"Content-Type": "application/json"})

    assert answer.problem == (400, "malformed_json")


def test_body_over_64_kilobytes_is_refused(api):
    largest = b'{"name": "a"}' + b" " * (BYTES_MAX - 13)

    assert api.post(WEBHOOKS, raw=largest).status == 201
    refused = api.post(WEBHOOKS, raw=largest + b" ")
    without_length = api.world.request(
        "POST",
        f"/api/v1{WEBHOOKS}",
        headers={"Authorization": f"Bearer {api.manager}", "Content-Type": "application/json"},
        body=iter([largest, b" "]),
    )

    assert (refused.status, without_length.status) == (413, 413)
    assert refused.json["code"] == "body_too_large"
    assert refused.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/factories/default/automations", {"name": "x", "prompt": "x", "triggers": [{}]}),
        ("/factories/default/backtests", {"last": 0}),
        ("/factories/default/filter-tests", {}),
    ],
)
def test_body_with_a_prompt_or_a_filter_may_have_a_megabyte(shared_api, path, fields):
    body = json.dumps(fields).encode()
    largest = body + b" " * (LARGE_BYTES_MAX - len(body))

    assert shared_api.post(path, raw=largest).status == 422
    assert shared_api.post(path, raw=largest + b" ").status == 413


def test_request_without_a_key_is_refused_before_its_body_is_read(shared_api):
    def body():
        raise AssertionError("the body was read")
        yield b""

    assert shared_api.world.request("POST", f"/api/v1{WEBHOOKS}", body=body()).status == 401


# Sizes of refusals


def test_body_with_very_many_fields_is_refused_with_one_error(shared_api):
    fields = {f"k{number}": 1 for number in range(80_000)}

    answer = shared_api.post("/factories/default/automations", fields)

    assert answer.problem == (422, "invalid")
    assert [error["pointer"] for error in answer.json["errors"]] == [""]
    assert len(answer.body) < 1_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/factories/default/webhooks", {f"k{number}": 1 for number in range(FIELDS_MAX)}),
        ("/factories/default/backtests", {"webhook_ids": ["x"] * 100_000}),
        ("/factories/default/backtests", {"webhook_ids": ["x"] * 90}),
        ("/factories/default/backtests", {"filter": {f"k{number}": 1 for number in range(60)}}),
        (
            "/factories/default/automations",
            {
                "name": "x",
                "prompt": "x",
                "triggers": [received("wh_0", payload={f"k{number}": 1 for number in range(50_000)})],
            },
        ),
    ],
    ids=["fields", "long list", "list", "filter", "trigger"],
)
def test_refusal_lists_at_most_20_errors(shared_api, path, body):
    answer = shared_api.post(path, body)

    assert answer.status == 422
    assert 1 <= len(answer.json["errors"]) <= ERRORS_MAX
    assert len(answer.json["detail"]) <= DETAIL_CHARACTERS_MAX
    assert len(answer.body) < 10_000


# Text


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (WEBHOOKS, b'{"name": "a\\ud800"}', "/name"),
        (WEBHOOKS, b'{"name": "a\\u0000"}', "/name"),
        (WEBHOOKS, b'{"name": "x", "signature_options": {"header": "\\uDC00"}}', "/signature_options/header"),
        (
            WEBHOOKS,
            b'{"name": "x", "signature_options": {"a": [1, {"b": "\\ud800\\ud800"}]}}',
            "/signature_options/a/1/b",
        ),
        (WEBHOOKS, b'{"name": "x", "a\\ud800": 1}', "/a\\ud800"),
        ("/factories/default/backtests", b'{"webhook_ids": ["wh_0", "wh_\\u0000"]}', "/webhook_ids/1"),
        ("/factories/default/backtests", b'{"filter": {"a": ["\\udfff"]}}', "/filter/a/0"),
        (
            "/factories/default/automations",
            b'{"name": "x", "prompt": "x", "triggers": [{"filter": {"webhook_ids": ["wh_\\ud800"]}}]}',
            "/triggers/0/filter/webhook_ids/0",
        ),
    ],
)
def test_text_with_invalid_characters_is_refused_with_its_pointer(shared_api, path, body, pointer):
    answer = shared_api.post(path, raw=body)

    assert answer.problem == (422, "invalid")
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]


def test_escaped_surrogate_pair_and_backslash_are_accepted(api):
    answer = api.post(WEBHOOKS, raw=b'{"name": "\\ud83d\\ude00 \\\\u0000"}')

    assert (answer.status, answer.json["name"]) == (201, "\U0001f600 \\u0000")


# Error messages


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/factories", {"name": "x", "nmae": "y"}, "Unknown field. Allowed fields: name."),
        (
            "/factories/default/filter-tests",
            {"delivery_id": "dlv_" + "0" * 32, "x": 1},
            "Unknown field. Allowed fields: delivery_id, event, filter, webhook_ids.",
        ),
        ("/factories/default/backtests", {"last": 0}, f"Use a number from 1 to {BACKTEST_DELIVERIES_MAX}."),
        ("/factories/default/backtests", {"last": "many"}, f"Use a number from 1 to {BACKTEST_DELIVERIES_MAX}."),
        ("/factories/default/backtests", {"webhook_ids": "wh_0"}, "Use a list."),
        ("/factories/default/backtests", {"webhook_ids": ["wh_0"] * 101}, "Use at most 100 items."),
        (
            "/factories/default/backtests",
            {"webhook_ids": ["orders"]},
            "Use a webhook's uid, not its name, such as wh_01",
        ),
        ("/factories/default/backtests", {"filter": []}, "Use an object."),
        ("/factories/default/filter-tests", {"delivery_id": "7"}, "Use a delivery's id: dlv_ and 32 hexadecimal"),
        (
            "/factories/default/secrets",
            {"name": "a-b"},
            "Use a letter, then at most 63 letters, digits and underscores",
        ),
        ("/factories", {}, "This field is required."),
        ("/factories", {"name": 7}, "Use a string."),
        ("/factories", {"name": ""}, "Use at least 1 character."),
        ("/factories", {"name": "x" * 101}, "Use at most 100 characters."),
        ("/members", {"email": "x@example.com", "name": "x", "is_admin": "no"}, "Use true or false."),
        ("/keys", {"name": "x", "role": "owner"}, "Choose one of: 'viewer'"),
        (WEBHOOKS, {}, "name must be text of 1 to 100 characters."),
        (WEBHOOKS, [], "Use an object."),
        ("/keys", {"name": "x", "role": "admin", "expires_at": "soon"}, "A time looks like 2026-11-21T09:12:36Z."),
    ],
)
def test_message_about_an_invalid_field_says_what_to_do(shared_api, path, body, message):
    answer = shared_api.post(path, body, key=shared_api.admin)

    assert answer.status == 422
    assert answer.json["errors"][0]["detail"].startswith(message)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "Use a number from 1 to 200."),
        ("limit=many", "Use a number from 1 to 200."),
        ("label=accept", "Choose one of: 'Accepted', 'Duplicate'"),
        ("since=yesterday", "A time looks like 2026-11-21T09:12:36Z."),
        ("identity=%00", "The text contains a NUL character. Remove it."),
        ("cursor=%20", "Use the next_cursor of a page of this list."),
    ],
)
def test_message_about_an_invalid_parameter_says_what_to_do(shared_api, query, message):
    answer = shared_api.get(f"/factories/default/deliveries?{query}")

    assert answer.json["errors"][0]["detail"].startswith(message)


def patterns_in(schema: object) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set[str]()
        return own.union(*map(patterns_in, schema.values()))
    return set[str]().union(*map(patterns_in, schema)) if isinstance(schema, list) else set()


def test_every_pattern_has_a_message():
    document = openapi_document(application())
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    patterns = patterns_in(document["components"]["schemas"]) | patterns_in(
        [each for operation in operations for each in operation.get("parameters", ()) if each["in"] != "path"]
    )
    # Errors about specs come from the domain, which has a text for each.
    patterns -= patterns_in(list(spec.schemas(AutomationSpec, WebhookSpec, ref_template="{name}")))

    assert len(patterns) > 5
    assert patterns <= set(PATTERN_HINTS)


# Slow bodies


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (WEBHOOKS, {"name": "too late"}),
        ("/factories/default/backtests", {}),
    ],
    ids=["a change", "a backtest"],
)
def test_key_that_is_revoked_while_the_body_arrives_is_refused(api, path, body):
    created = api.management.keys.create(api.team, "to be revoked", Role.MANAGER, factory="default")

    def slow_body():
        yield b" "
        api.management.keys.revoke(api.team, created.key.id)
        yield json.dumps(body).encode()

    headers = {"Authorization": f"Bearer {created.token.reveal()}", "Content-Type": "application/json"}
    answer = api.world.request("POST", f"/api/v1{path}", headers=headers, body=slow_body())

    assert answer.problem == (401, "authentication_failed")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert api.get(WEBHOOKS).json["items"] == []


# Fields


COLUMNS = sorted({column.name for table in schema.metadata.tables.values() for column in table.columns})
CHANGEABLE_FIELDS = {
    "webhook": set(WebhookSpec.__struct_fields__),
    "automation": {"name", "prompt", "triggers", "runner", "enabled"},
    "member": {"is_admin"},
}


@pytest.mark.parametrize("noun", ["webhook", "automation", "member"])
def test_stored_column_that_is_not_a_field_cannot_be_set(api, stocked, noun):
    paths = {
        "webhook": f"{WEBHOOKS}/{stocked.webhook.webhook.uid}",
        "automation": f"/factories/default/automations/{stocked.automation.id}",
        "member": f"/members/{stocked.member}",
    }
    names = [name for name in COLUMNS if name not in CHANGEABLE_FIELDS[noun]]
    before = api.get(paths[noun], key=api.admin).body

    answers = {name: api.patch(paths[noun], {name: "x"}, key=api.admin) for name in names}

    assert len(names) > 40
    assert {answer.status for answer in answers.values()} == {422}
    assert {answer.json["errors"][0]["pointer"] for answer in answers.values()} == {f"/{name}" for name in names}
    assert api.get(paths[noun], key=api.admin).body == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (WEBHOOKS, {"name": "x", "state": "enabled"}),
        ("/factories/default/secrets", {"name": "X", "team_id": "team_other"}),
        ("/factories/default/automations", {"name": "x", "prompt": "x", "triggers": [{}], "version": 7}),
        ("/members", {"email": "x@example.com", "name": "x", "roles": {"default": "manager"}}),
        ("/keys", {"name": "x", "role": "admin", "token": "hmk_mine"}),
        ("/factories", {"name": "x", "defined_by_files": True}),
    ],
)
def test_field_that_only_the_service_sets_is_refused_at_creation(shared_api, path, body):
    answer = shared_api.post(path, body, key=shared_api.admin)

    assert answer.status == 422
    assert answer.json["errors"][0]["detail"].startswith("Unknown field")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": 5}, "/name"),
        ({"name": None}, "/name"),
        ({"enabled": "false"}, "/enabled"),
        ({"enabled": 0}, "/enabled"),
        ({"name": "x", "delivery_id_header": "a b"}, "/delivery_id_header"),
        ({"a/b~c": 1}, "/a~1b~0c"),
        ({"allowed_networks": ["192.0.2.0/24", "10.1.2.3/8"]}, "/allowed_networks/1"),
        ({"allowed_networks": ["192.0.2.0/24", 5]}, "/allowed_networks/1"),
        ({"allowed_networks": [f"10.0.0.{number}" for number in range(65)]}, "/allowed_networks"),
        ({"expect_every": "31d"}, "/expect_every"),
    ],
)
def test_invalid_field_is_named_by_its_json_pointer(api, stocked, body, pointer):
    answer = api.patch(f"{WEBHOOKS}/{stocked.webhook.webhook.uid}", body)

    assert answer.status == 422
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (WEBHOOKS, {"name": "x", "enabled": "true"}, "/enabled"),
        (WEBHOOKS, {"name": "x", "answers_handshakes": 1}, "/answers_handshakes"),
        (WEBHOOKS, {"name": "x", "auth_mode": "none"}, "/auth_mode"),
        ("/factories/default/backtests", {"last": "50"}, "/last"),
        ("/factories/default/backtests", {"last": 501}, "/last"),
        ("/factories/default/filter-tests", {"delivery_id": "dlv_1"}, "/delivery_id"),
        ("/members", {"email": "x@example.com", "name": "x", "is_admin": "yes"}, "/is_admin"),
        ("/members", {"email": "x", "name": "x"}, "/email"),
        ("/keys", {"name": "x", "role": "owner"}, "/role"),
        ("/keys", {"name": "x", "role": "viewer"}, "/factory"),
        ("/keys", {"name": "x", "role": "admin", "expires_at": 4102444800}, "/expires_at"),
        ("/keys", {"name": "x", "role": "admin", "expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
    ],
)
def test_value_of_another_type_is_refused_and_not_converted(shared_api, path, body, pointer):
    answer = shared_api.post(path, body, key=shared_api.admin)

    assert answer.problem == (422, "invalid")
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]


def test_every_error_in_a_filter_is_named_by_its_json_pointer(api, stocked):
    triggers = [received(stocked.webhook.webhook.uid, payload={"a": {"in": 5}, "b": {}})]

    answer = api.post("/factories/default/automations", {"name": "x", "prompt": PROMPT, "triggers": triggers})

    assert answer.problem == (422, "invalid")
    assert {error["pointer"] for error in answer.json["errors"]} == {
        "/triggers/0/filter/payload/a/in",
        "/triggers/0/filter/payload/b",
    }


# Parameters and paths


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=many", "limit"),
        ("limit=5&limit=6", "limit"),
        ("lable=Accepted", "lable"),
        ("label=accept", "label"),
        ("since=yesterday", "since"),
        ("since=1900000000", "since"),
        ("until=2026-11-21T09:12:36", "until"),
        ("identity=%00", "identity"),
        ("cursor=zzz", "cursor"),
        ("cursor=WyJ4Il0", "cursor"),
        ("cursor=W10", "cursor"),
    ],
)
def test_unknown_or_invalid_parameter_is_refused_by_name(shared_api, query, parameter):
    answer = shared_api.get(f"/factories/default/deliveries?{query}")

    assert answer.status == 422
    assert [error["parameter"] for error in answer.json["errors"]] == [parameter]


@pytest.mark.parametrize(
    "path",
    [
        "/factories/default/webhooks/",
        "/factories//webhooks",
        "//me",
        "/me/",
        "/me/../me",
        "/%6de",
        "/factories/default%2Fwebhooks",
        "/factories/%ff",
        "/factories/default/webhooks/wh_%00",
        "/factories/default/webhooks/my%20name",
        "/factories/default/deliveries/dlv_12",
        "/factories/default/runs/..%2f..%2fme",
        "/schemas/webhook.schema.json/",
        "/schemas/..%2fwebhook.schema.json",
        "/docs/..%2f__init__.py",
        "/nothing",
    ],
)
def test_any_other_spelling_of_a_path_is_not_found(shared_api, path):
    answer = shared_api.get(path, key=shared_api.admin)

    assert answer.problem == (404, "not_found")
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "name", ["a/b", "a?b#c", "<script>alert(1)</script>", "naïve ✓", '"; DROP TABLE webhooks', "%2e"]
)
def test_name_with_special_characters_is_one_segment_of_the_path(shared_api, name):
    created = shared_api.post("/factories", {"name": name}, key=shared_api.admin)
    path = created.headers["location"].removeprefix("/api/v1")

    assert created.status == 201
    assert shared_api.get(path, key=shared_api.admin).json["name"] == name
    assert shared_api.post(f"{path}/webhooks", {"name": name}, key=shared_api.admin).json["name"] == name
    assert shared_api.get(f"{path}/webhooks", key=shared_api.admin).json["items"][0]["name"] == name


def test_405_and_options_list_the_methods_of_the_path(shared_api):
    refused = shared_api.request("PUT", WEBHOOKS)
    options = shared_api.request("OPTIONS", WEBHOOKS, key="")

    assert refused.problem == (405, "method_not_allowed")
    assert refused.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert (options.status, options.headers["allow"], options.body) == (204, "GET, HEAD, OPTIONS, POST", b"")


def test_head_is_answered_like_get_without_a_body(api, stocked):
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"

    head, get = api.request("HEAD", path), api.get(path)

    assert (head.status, head.body) == (200, b"")
    assert head.headers["etag"] == get.headers["etag"]
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize(
    "forged",
    [
        {"Host": "evil"},
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "gopher"},
        {"Forwarded": "host=evil.example"},
    ],
    ids=lambda headers: " ".join(headers),
)
def test_urls_do_not_contain_a_forged_host(api, forged):
    created = api.post(WEBHOOKS, {"name": "x", "auth_mode": "url_token"}, headers=forged)
    webhook = api.get(f"{WEBHOOKS}/{created.json['uid']}", headers=forged)
    not_found = api.get(f"{WEBHOOKS}/", headers=forged)
    page = api.get("/docs", headers=forged)

    assert created.json["url"].startswith("https://hooks.test/webhooks/w/")
    assert created.headers["location"].startswith("/api/v1/")
    for answer in (created, webhook, not_found, page):
        assert "evil" not in json.dumps(dict(answer.headers)) + answer.body.decode()


def test_ambiguous_request_is_refused(shared_api):
    answer = shared_api.get("/me", headers=[("Host", "a.test"), ("Host", "b.test")])

    assert answer.problem == (400, "malformed_request")


@pytest.mark.parametrize("number", ["0.12345678901234567890123", "1e400", "-1.5e-400"])
def test_numbers_of_a_filter_are_saved_without_rounding(api, number):
    webhook = api.world.webhook("exact")
    body = {
        "name": "exact",
        "prompt": "Look.",
        "triggers": [received(webhook.webhook.uid, payload={"amount": {"$gte": "NUMBER", "$lte": "NUMBER"}})],
    }
    raw = json.dumps(body).replace('"NUMBER"', number).encode()

    assert api.post("/factories/default/automations", raw=raw).status == 201

    api.world.post(webhook, b'{"amount": %s}' % number.encode())
    assert len(api.world.runs(webhook)) == 1


def test_cost_with_more_digits_than_a_float_has_is_rounded():
    body = {"state": "succeeded", "cost_usd": Decimal("0.10000000000000000555")}

    assert AttemptReport.model_validate(body).cost_usd == 0.1
