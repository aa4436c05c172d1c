"""What a request must be like: said to be JSON, strict, with no field or parameter that is not known."""

import json

import pytest

from hookmill.domain.limits import BACKTEST_DELIVERIES_MAX
from hookmill.domain.permission import Role
from hookmill.store import schema
from hookmill.web.api import application, operations
from hookmill.web.api.body import BYTES_MAX, FIELDS_MAX, LARGE_BYTES_MAX
from hookmill.web.api.fields import PATTERN_HINTS
from hookmill.web.api.openapi import openapi_document
from hookmill.web.api.problems import DETAIL_CHARACTERS_MAX, ERRORS_MAX
from tests.api.client import PROMPT, Api, Stocked

WEBHOOKS = "/factories/default/webhooks"
BODY = b'{"name": "made by a form"}'


# Sent by a page of another site


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
def test_a_body_that_does_not_say_to_be_json_is_refused(shared_api: Api, content_type):
    answer = shared_api.post(WEBHOOKS, raw=BODY, headers={"Content-Type": content_type})

    assert (answer.status, answer.json["code"]) == (415, "unsupported_media_type")
    assert shared_api.get(WEBHOOKS).json["items"] == []


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=UTF-8"])
def test_a_body_may_say_so_in_any_spelling(api: Api, content_type):
    assert api.post(WEBHOOKS, raw=BODY, headers={"Content-Type": content_type}).status == 201


def test_two_content_types_are_none(api: Api):
    both = [("Content-Type", "application/json"), ("Content-Type", "text/plain")]

    assert api.post(WEBHOOKS, raw=BODY, headers=both).status == 415


def test_the_answers_invite_no_other_site(shared_api: Api):
    asked = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}

    for answer in (shared_api.get("/me", headers=asked), shared_api.ask("OPTIONS", WEBHOOKS, key="", headers=asked)):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_looking_changes_nothing(api: Api, stocked: Stocked):
    def everything() -> list[list[str]]:
        # When a key was last used is no more than a note of the look itself.
        tables = [table for table in schema.metadata.tables if table != "api_keys"]
        with api.world.database.read() as tx:
            return [sorted(repr(tuple(row.values())) for row in tx.all(f"SELECT * FROM {table}")) for table in tables]

    before = everything()
    looked = []
    for each in operations(application()):
        if each.method == "GET":
            path = each.path.removeprefix("/api/v1").format(**stocked.places)
            looked.append(api.get(path, key=api.admin).status)
            looked.append(api.ask("HEAD", path, key=api.admin).status)

    assert set(looked) == {200}
    assert everything() == before


# Strict JSON


@pytest.mark.parametrize(
    ("body", "says"),
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
    ids=["cut", "NaN", "Infinity", "a key twice", "a key twice, inside", "mark", "not UTF-8", "deep", "a form"],
)
def test_what_is_no_strict_json_is_refused_with_the_reason(shared_api: Api, body, says):
    answer = shared_api.post(WEBHOOKS, raw=body)

    assert (answer.status, answer.json["code"]) == (400, "malformed_json")
    assert says in answer.json["detail"]


def test_a_body_that_is_needed_must_be_there(shared_api: Api):
    answer = shared_api.post(WEBHOOKS, headers={"Content-Type": "application/json"})

    assert (answer.status, answer.json["code"]) == (400, "malformed_json")


def test_a_body_has_at_most_64_kilobytes(api: Api):
    whole = b'{"name": "a"}' + b" " * (BYTES_MAX - 13)

    assert api.post(WEBHOOKS, raw=whole).status == 201
    refused = api.post(WEBHOOKS, raw=whole + b" ")
    undeclared = api.world.request(
        "POST",
        f"/api/v1{WEBHOOKS}",
        headers={"Authorization": f"Bearer {api.manager}", "Content-Type": "application/json"},
        body=iter([whole, b" "]),
    )

    assert (refused.status, undeclared.status) == (413, 413)
    assert refused.json["code"] == "body_too_large"
    assert refused.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("path", "least"),
    [
        ("/factories/default/automations", {"name": "x", "prompt": "x", "triggers": [{}]}),
        ("/factories/default/backtests", {"last": 0}),
        ("/factories/default/filter-tests", {}),
    ],
)
def test_where_a_prompt_or_a_filter_is_taken_it_has_at_most_a_megabyte(shared_api: Api, path, least):
    body = json.dumps(least).encode()
    whole = body + b" " * (LARGE_BYTES_MAX - len(body))

    assert shared_api.post(path, raw=whole).status == 422
    assert shared_api.post(path, raw=whole + b" ").status == 413


def test_a_request_without_a_key_is_refused_before_its_body_is_read(shared_api: Api):
    def body():
        raise AssertionError("it was read")
        yield b""

    assert shared_api.world.request("POST", f"/api/v1{WEBHOOKS}", body=body()).status == 401


# What it costs to say no


def test_a_body_of_very_many_fields_is_one_fault(shared_api: Api):
    fields = {f"k{number}": 1 for number in range(80_000)}

    answer = shared_api.post("/factories/default/automations", fields)

    assert (answer.status, answer.json["code"]) == (422, "invalid")
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
                "triggers": [
                    {
                        "provider": "webhook",
                        "event": "received",
                        "filter": {"webhook_ids": ["wh_0"], "payload": {f"k{number}": 1 for number in range(50_000)}},
                    }
                ],
            },
        ),
    ],
    ids=["fields", "a long list", "a list", "a filter", "a trigger"],
)
def test_no_refusal_names_more_than_twenty_places(shared_api: Api, path, body):
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
def test_what_is_no_text_is_refused_at_its_place(shared_api: Api, path, body, pointer):
    answer = shared_api.post(path, raw=body)

    assert (answer.status, answer.json["code"]) == (422, "invalid")
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]


def test_an_escaped_pair_and_a_backslash_are_text(api: Api):
    made = api.post(WEBHOOKS, raw=b'{"name": "\\ud83d\\ude00 \\\\u0000"}')

    assert (made.status, made.json["name"]) == (201, "\U0001f600 \\u0000")


# Words


@pytest.mark.parametrize(
    ("path", "body", "says"),
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
        (WEBHOOKS, {}, "This field is required."),
        (WEBHOOKS, {"name": 7}, "Use a string."),
        (WEBHOOKS, {"name": ""}, "Use at least 1 character."),
        (WEBHOOKS, {"name": "x" * 101}, "Use at most 100 characters."),
        (WEBHOOKS, {"name": "x", "enabled": "no"}, "Use true or false."),
        (WEBHOOKS, {"name": "x", "auth_mode": "none"}, "Choose one of: 'token'"),
        (WEBHOOKS, {"name": "x", "delivery_id_header": "a b"}, "Use the name of a header"),
        (WEBHOOKS, [], "Use an object."),
        ("/keys", {"name": "x", "role": "admin", "expires_at": "soon"}, "A time looks like 2026-11-21T09:12:36Z."),
    ],
)
def test_a_wrong_field_is_described_in_our_words(shared_api: Api, path, body, says):
    answer = shared_api.post(path, body, key=shared_api.admin)

    assert answer.status == 422
    assert answer.json["errors"][0]["detail"].startswith(says)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("limit=0", "Use a number from 1 to 200."),
        ("limit=many", "Use a number from 1 to 200."),
        ("label=accept", "Choose one of: 'Accepted', 'Duplicate'"),
        ("since=yesterday", "A time looks like 2026-11-21T09:12:36Z."),
        ("identity=%00", "The text contains a NUL character. Remove it."),
        ("cursor=%20", "Use the next_cursor of a page of this list."),
    ],
)
def test_a_wrong_parameter_is_described_in_our_words(shared_api: Api, query, says):
    answer = shared_api.get(f"/factories/default/deliveries?{query}")

    assert answer.json["errors"][0]["detail"].startswith(says)


def test_every_form_that_is_asked_for_has_its_words():
    told = openapi_document(application())
    asked: set[str] = set()

    def collect(schema: object) -> None:
        if isinstance(schema, dict):
            asked.update([schema["pattern"]] if isinstance(schema.get("pattern"), str) else [])
            for inner in schema.values():
                collect(inner)
        elif isinstance(schema, list):
            for inner in schema:
                collect(inner)

    collect(told["components"]["schemas"])
    for methods in told["paths"].values():
        for operation in methods.values():
            collect([each for each in operation.get("parameters", ()) if each["in"] != "path"])

    assert len(asked) > 5
    assert asked <= set(PATTERN_HINTS)


# A body that is held back


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (WEBHOOKS, {"name": "too late"}),
        ("/factories/default/backtests", {}),
    ],
    ids=["a change", "a look"],
)
def test_a_key_that_is_revoked_while_its_body_is_held_back_does_nothing(api: Api, path, body):
    made = api.management.keys.create(api.team, "to be revoked", Role.MANAGER, factory="default")

    def held_back():
        yield b" "
        api.management.keys.revoke(api.team, made.key.id)
        yield json.dumps(body).encode()

    headers = {"Authorization": f"Bearer {made.token.reveal()}", "Content-Type": "application/json"}
    answer = api.world.request("POST", f"/api/v1{path}", headers=headers, body=held_back())

    assert (answer.status, answer.json["code"]) == (401, "authentication_failed")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert api.get(WEBHOOKS).json["items"] == []


# Fields


STORED = sorted({column.name for table in schema.metadata.tables.values() for column in table.columns})
WRITABLE = {
    "webhook": {"name", "enabled", "delivery_id_header", "event_header"},
    "automation": {"name", "prompt", "triggers", "runner", "enabled"},
    "member": {"is_admin"},
}


@pytest.mark.parametrize("noun", ["webhook", "automation", "member"])
def test_no_stored_column_can_be_set_that_is_no_field(api: Api, stocked: Stocked, noun):
    paths = {
        "webhook": f"{WEBHOOKS}/{stocked.webhook.webhook.uid}",
        "automation": f"/factories/default/automations/{stocked.automation.id}",
        "member": f"/members/{stocked.member}",
    }
    names = [name for name in STORED if name not in WRITABLE[noun]]
    before = api.get(paths[noun], key=api.admin).body

    answered = {name: api.patch(paths[noun], {name: "x"}, key=api.admin) for name in names}

    assert len(names) > 40
    assert {answer.status for answer in answered.values()} == {422}
    assert {answer.json["errors"][0]["pointer"] for answer in answered.values()} == {f"/{name}" for name in names}
    assert api.get(paths[noun], key=api.admin).body == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (WEBHOOKS, {"name": "x", "uid": "wh_mine"}),
        (WEBHOOKS, {"name": "x", "factory_id": "fac_other"}),
        (WEBHOOKS, {"name": "x", "state": "enabled"}),
        ("/factories/default/secrets", {"name": "X", "team_id": "team_other"}),
        ("/factories/default/automations", {"name": "x", "prompt": "x", "triggers": [{}], "version": 7}),
        ("/members", {"email": "x@example.com", "name": "x", "roles": {"default": "manager"}}),
        ("/keys", {"name": "x", "role": "admin", "token": "hmk_mine"}),
        ("/factories", {"name": "x", "defined_by_files": True}),
    ],
)
def test_a_new_thing_takes_no_field_that_is_not_its_creators_to_choose(shared_api: Api, path, body):
    answer = shared_api.post(path, body, key=shared_api.admin)

    assert answer.status == 422
    assert answer.json["errors"][0]["detail"].startswith("Unknown field. Allowed fields: ")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": 5}, "/name"),
        ({"name": None}, "/name"),
        ({"enabled": "false"}, "/enabled"),
        ({"enabled": 0}, "/enabled"),
        ({"name": "x", "delivery_id_header": "a b"}, "/delivery_id_header"),
        ({"a/b~c": 1}, "/a~1b~0c"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named_by_its_json_pointer(api: Api, stocked: Stocked, body, pointer):
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
def test_nothing_is_guessed_from_a_value_of_another_kind(shared_api: Api, path, body, pointer):
    answer = shared_api.post(path, body, key=shared_api.admin)

    assert (answer.status, answer.json["code"]) == (422, "invalid")
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]


def test_every_fault_of_a_filter_is_named_by_its_json_pointer(api: Api, stocked: Stocked):
    triggers = [
        {
            "provider": "webhook",
            "event": "received",
            "filter": {"webhook_ids": [stocked.webhook.webhook.uid], "payload": {"a": {"in": 5}, "b": []}},
        }
    ]

    answer = api.post("/factories/default/automations", {"name": "x", "prompt": PROMPT, "triggers": triggers})

    assert (answer.status, answer.json["code"]) == (422, "invalid")
    assert {error["pointer"] for error in answer.json["errors"]} == {
        "/triggers/0/filter/payload/a/in",
        "/triggers/0/filter/payload/b",
    }


def test_what_is_left_out_of_a_change_stays_and_null_takes_away(api: Api):
    made = api.post(WEBHOOKS, {"name": "x", "delivery_id_header": "X-Event-Id", "event_header": "X-Kind"}).json

    kept = api.patch(f"{WEBHOOKS}/{made['uid']}", {"enabled": False}).json
    taken = api.patch(f"{WEBHOOKS}/{made['uid']}", {"delivery_id_header": None, "event_header": None}).json

    assert (kept["delivery_id_header"], kept["event_header"], kept["enabled"]) == ("X-Event-Id", "X-Kind", False)
    assert (taken["delivery_id_header"], taken["event_header"], taken["enabled"]) == (None, None, False)


# Parameters and addresses


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
def test_a_parameter_that_is_unknown_or_wrong_is_refused_and_named(shared_api: Api, query, parameter):
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
def test_there_is_one_spelling_of_an_address(shared_api: Api, path):
    answer = shared_api.get(path, key=shared_api.admin)

    assert (answer.status, answer.json["code"]) == (404, "not_found")
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "name", ["a/b", "a?b#c", "<script>alert(1)</script>", "naïve ✓", '"; DROP TABLE webhooks', "%2e"]
)
def test_a_name_may_hold_anything_and_stays_one_segment(shared_api: Api, name):
    made = shared_api.post("/factories", {"name": name}, key=shared_api.admin)
    where = made.headers["location"].removeprefix("/api/v1")

    assert made.status == 201
    assert shared_api.get(where, key=shared_api.admin).json["name"] == name
    assert shared_api.post(f"{where}/webhooks", {"name": name}, key=shared_api.admin).json["name"] == name
    assert shared_api.get(f"{where}/webhooks", key=shared_api.admin).json["items"][0]["name"] == name


def test_a_405_lists_the_methods_of_the_address(shared_api: Api):
    answer = shared_api.ask("PUT", WEBHOOKS)
    asked = shared_api.ask("OPTIONS", WEBHOOKS, key="")

    assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert (asked.status, asked.headers["allow"], asked.body) == (204, "GET, HEAD, OPTIONS, POST", b"")


def test_head_is_get_without_the_body(api: Api, stocked: Stocked):
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"

    head, get = api.ask("HEAD", path), api.get(path)

    assert (head.status, head.body) == (200, b"")
    assert head.headers["etag"] == get.headers["etag"]
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize(
    "spoofed",
    [
        {"Host": "evil"},
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "gopher"},
        {"Forwarded": "host=evil.example"},
    ],
    ids=lambda headers: " ".join(headers),
)
def test_no_address_repeats_what_a_client_says_of_the_host(api: Api, spoofed):
    made = api.post(WEBHOOKS, {"name": "x", "auth_mode": "url_token"}, headers=spoofed)
    seen = api.get(f"{WEBHOOKS}/{made.json['uid']}", headers=spoofed)
    redirected = api.get(f"{WEBHOOKS}/", headers=spoofed)
    page = api.get("/docs", headers=spoofed)

    assert made.json["url"].startswith("https://hooks.test/webhooks/w/")
    assert made.headers["location"].startswith("/api/v1/")
    for answer in (made, seen, redirected, page):
        assert "evil" not in json.dumps(dict(answer.headers)) + answer.body.decode()


def test_a_request_that_could_be_read_in_two_ways_is_refused_before(shared_api: Api):
    answer = shared_api.get("/me", headers=[("Host", "a.test"), ("Host", "b.test")])

    assert (answer.status, answer.json["code"]) == (400, "malformed_request")
