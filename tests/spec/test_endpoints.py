"""The endpoint: the methods, paths, headers and bodies that it accepts, and the answer to an accepted delivery."""

import contextlib
import gzip
import json
from collections.abc import Iterator

import pytest

from hookmill.domain.webhook import AuthMode
from hookmill.management import WebhookWithSecret
from tests.spec import shows
from tests.support.sqlite_usually import store_url
from tests.support.world import World

__all__ = ["store_url"]

METHODS = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "post", "PROPFIND"]


@shows("ENDPOINT-1")
def test_every_other_method_is_answered_405_with_allow_post(world):
    path = f"/webhooks/w/{world.webhook().webhook.uid}"

    answers = {method: world.request(method, path) for method in METHODS}

    assert {method: answer.status for method, answer in answers.items()} == dict.fromkeys(METHODS, 405)
    assert {answer.headers["allow"] for answer in answers.values()} == {"POST"}


@shows("ENDPOINT-1")
def test_request_with_another_method_leaves_no_row_in_the_log(world):
    webhook = world.webhook()

    world.request("PUT", f"/webhooks/w/{webhook.webhook.uid}", body=b"{}")

    assert world.log(webhook) == []


def test_method_is_checked_before_any_lookup(world):
    path = f"/webhooks/w/{world.webhook().webhook.uid}"

    with lookups_fail(world):
        assert world.request("GET", path).status == 405
        assert world.request("GET", "/webhooks/w/wh_unknown").status == 405
        assert world.request("POST", path).status == 503

    world.failures.clear()


def test_405_is_identical_for_known_and_unknown_webhooks(world):
    enabled, disabled = world.webhook("enabled"), world.webhook("disabled")
    world.management.webhooks.set_enabled(world.may, "disabled", False)

    uids = [enabled.webhook.uid, disabled.webhook.uid, "wh_unknown"]
    answers = [world.request("GET", f"/webhooks/w/{uid}") for uid in uids]

    assert answers[0] == answers[1] == answers[2]


@shows("ENDPOINT-2", "ENDPOINT-4")
def test_webhook_url_is_the_base_url_the_fixed_path_and_the_uid(world):
    webhook = world.webhook()

    assert webhook.url == f"https://hooks.test/webhooks/w/{webhook.webhook.uid}"
    assert world.post(webhook).status == 202


@shows("ENDPOINT-3")
def test_url_token_follows_the_uid_as_the_last_segment(world):
    webhook = world.webhook(auth_mode=AuthMode.URL_TOKEN)

    assert webhook.url == f"https://hooks.test/webhooks/w/{webhook.webhook.uid}/{webhook.reveal()}"
    assert world.request("POST", webhook.url.removeprefix("https://hooks.test"), body=b"{}").status == 202


@shows("ENDPOINT-2")
@pytest.mark.parametrize(
    "path",
    [
        "/webhooks/w/{uid}/",
        "/webhooks/w//{uid}",
        "/webhooks/w/{uid}//",
        "/webhooks/w/{uid}/x/y",
        "/webhooks/w/{upper}",
        "/webhooks/w/{encoded}",
        "/webhooks/w/./{uid}",
        "/webhooks/w/x/../{uid}",
        "/webhooks/w/{uid};x=1",
        "/webhooks/w/{uid}%2f",
        "/webhooks/w/{uid}%00",
        "/webhooks/w/",
        "/webhooks/w",
        "/webhooks/W/{uid}",
        "/v1/webhooks/w/{uid}",
        "//webhooks/w/{uid}",
    ],
)
def test_any_other_spelling_of_the_path_is_not_found(sqlite_world, path):
    webhook = sqlite_world.webhook()
    uid = webhook.webhook.uid
    spelled = path.format(uid=uid, upper=uid.upper(), encoded=uid.replace("_", "%5F"))

    answer = sqlite_world.request("POST", spelled, headers=bearer(webhook), body=b"{}")

    assert (answer.status, sqlite_world.log(webhook)) == (404, [])


@shows("ENDPOINT-5")
def test_any_content_type_is_accepted_and_so_is_none(world):
    webhook = world.webhook()
    types = ["application/json", "text/plain", "application/x-www-form-urlencoded", "image/png", "", "???"]

    answers = [world.post(webhook, b'{"no": %d}' % i, headers={"Content-Type": each}) for i, each in enumerate(types)]

    assert {answer.status for answer in [world.post(webhook), *answers]} == {202}


def test_content_encoding_is_never_decoded(world):
    webhook = world.webhook()
    compressed = gzip.compress(b'{"a": 1}')

    gzip_body = world.post(webhook, compressed, headers={"Content-Encoding": "gzip"})
    json_body = world.post(webhook, b'{"a": 1}', headers={"Content-Encoding": "gzip"})

    assert (gzip_body.status, json_body.status) == (400, 202)
    assert world.management.log.payload(world.may, json_body.delivery_id) == b'{"a": 1}'


@shows("ENDPOINT-6", "LOG-8")
@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'"text"',
        b"0",
        b"-1.5e3",
        b"true",
        b"null",
        b' \t\r\n{"a": [1, {"b": null}]}\n',
        b'{"a": 1, "a": 2}',
        rb'"\ud83d"',
        b"1e400",
        b"9" * 5_000,
        b"[" * 512 + b"]" * 512,
        '"Überraschung \N{PARTY POPPER}"'.encode(),
    ],
)
def test_json_of_every_kind_is_accepted_and_stored_byte_for_byte(sqlite_world, body):
    webhook = sqlite_world.webhook()

    answer = sqlite_world.post(webhook, body)

    assert answer.status == 202
    assert sqlite_world.management.log.payload(sqlite_world.may, answer.delivery_id) == body


@shows("ENDPOINT-6", "ERROR-1")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b"{",
        b"{}x",
        b"{} {}",
        b"{'a': 1}",
        b"[1,]",
        b"01",
        b"+1",
        b"NaN",
        b"-Infinity",
        b"\xef\xbb\xbf{}",
        '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-32-le"),
        b'"\xff"',
        b'"\xed\xa0\xbd"',
        b'"\x00"',
        b"[" * 513 + b"]" * 513,
        b"[" * 200_000,
        b"a=1&b=2",
        b"<xml/>",
    ],
)
def test_body_that_is_not_json_is_refused_with_400(sqlite_world, body):
    webhook = sqlite_world.webhook()

    assert sqlite_world.post(webhook, body).status == 400
    assert sqlite_world.labels(webhook) == ["Rejected (invalid JSON)"]


@shows("ENDPOINT-7")
def test_accepted_delivery_is_answered_202_with_its_id_as_json(world):
    webhook = world.webhook()

    answer = world.post(webhook)

    assert answer.status == 202
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert list(json.loads(answer.body)) == ["delivery_id"]
    assert isinstance(answer.json["delivery_id"], str)


def test_incomplete_body_is_refused_and_leaves_no_row(world):
    webhook = world.webhook()

    answer = world.post(webhook, disconnecting_after(b'{"a": '))

    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert world.log(webhook) == []


@pytest.mark.parametrize("chunks", [[b'{"a": 1}'], [b'{"a"', b": 1}"]], ids=["one", "two"])
def test_body_is_complete_with_its_last_declared_byte(sqlite_world, chunks):
    webhook = sqlite_world.webhook()

    answers = [
        sqlite_world.post(webhook, disconnecting_after(*chunks), headers={"Content-Length": length})
        for length in ("8", "9")
    ]

    assert [answer.status for answer in answers] == [202, 400]
    assert sqlite_world.labels(webhook) == ["Accepted"]


@pytest.mark.parametrize(
    "headers",
    [
        [("Content-Length", "2"), ("Transfer-Encoding", "chunked")],
        [("Content-Length", "2"), ("Content-Length", "2")],
        [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")],
        [("Host", "hooks.test"), ("Host", "elsewhere.test")],
    ],
    ids=["length and encoding", "two lengths", "two encodings", "two hosts"],
)
def test_ambiguous_framing_is_refused_and_closes_the_connection(sqlite_world, headers):
    webhook = sqlite_world.webhook()

    answer = sqlite_world.post(webhook, b"{}", headers=headers)

    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert sqlite_world.log(webhook) == []


def test_content_length_that_is_not_a_number_is_refused(sqlite_world):
    webhook = sqlite_world.webhook()

    answers = [
        sqlite_world.post(webhook, b"{}", headers={"Content-Length": each}) for each in ("-1", "+2", "2, 2", "0x2")
    ]

    assert [answer.status for answer in answers] == [400, 400, 400, 400]


def bearer(webhook: WebhookWithSecret) -> dict[str, str]:
    return {"Authorization": f"Bearer {webhook.reveal()}"}


def disconnecting_after(*chunks: bytes) -> Iterator[bytes]:
    """A body whose sender disconnects after these chunks."""
    yield from chunks
    raise ConnectionResetError


@contextlib.contextmanager
def lookups_fail(world: World) -> Iterator[None]:
    """Every lookup of a webhook fails while the block runs."""
    with world.database.write() as tx:
        tx.run("ALTER TABLE webhooks RENAME TO renamed_webhooks")
    yield
    with world.database.write() as tx:
        tx.run("ALTER TABLE renamed_webhooks RENAME TO webhooks")
