"""Error answers: their statuses and bodies, and the order of the checks."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest
from msgspec import structs

from hookmill.domain.webhook import AuthMode
from hookmill.management import WebhookWithSecret
from tests.spec import shows
from tests.support.service import Answer
from tests.support.sqlite_usually import store_url
from tests.support.world import World

__all__ = ["store_url"]

BODY_MAX = 262_144


@shows("ERROR-2")
@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.URL_TOKEN])
def test_unknown_disabled_and_deleted_webhooks_get_identical_404s(world, mode):
    disabled, deleted = [world.webhook(name, auth_mode=mode) for name in ("disabled", "deleted")]
    world.post(disabled)
    world.management.webhooks.set_enabled(world.may, "disabled", False)
    world.management.webhooks.delete(world.may, "deleted")
    unknown = replace(disabled, webhook=structs.replace(disabled.webhook, uid="wh_" + "0" * 27))

    answers = [world.post(each, token=token) for each in (unknown, disabled, deleted) for token in (None, "wrong")]

    assert answers[0].status == 404
    assert all(answer == answers[0] for answer in answers)


def test_token_segment_at_a_token_webhook_is_answered_404(world):
    webhook = world.webhook()
    path = f"/webhooks/w/{webhook.webhook.uid}"
    secret = webhook.reveal()

    answers = [
        world.request("POST", f"{path}/{secret}", headers={"Authorization": f"Bearer {secret}"}, body=b"{}"),
        world.request("POST", f"{path}/wrong", body=b"{}"),
        world.request("POST", "/webhooks/w/wh_unknown", body=b"{}"),
        world.request("POST", "/webhooks/w/wh_unknown/wrong", body=b"{}"),
        world.request("POST", "/elsewhere", body=b"{}"),
    ]

    assert answers[0].status == 404
    assert all(answer == answers[0] for answer in answers)
    assert world.log(webhook) == []


@shows("LOG-2")
def test_404_of_a_disabled_webhook_is_counted_and_not_logged(world):
    webhook = world.webhook()
    world.management.webhooks.set_enabled(world.may, "source", False)

    answers = [world.post(webhook, token=token).status for token in (None, "wrong", None)]

    assert answers == [404, 404, 404]
    assert (world.log(webhook), world.dropped_attempts(webhook)) == ([], {"not_found": 3})


def test_404_does_not_wait_for_the_body(world):
    webhook = world.webhook()
    world.management.webhooks.set_enabled(world.may, "source", False)
    # The snapshot may not have the change yet. After this request, it does.
    assert world.post(webhook, b"{}").status == 404

    assert world.post(webhook, unread_body()).status == 404


@shows("ERROR-1")
def test_invalid_json_is_answered_400_and_logged_with_its_position(world):
    webhook = world.webhook()

    answer = world.post(webhook, b'{"a": tru}')

    assert answer.status == 400
    assert [(row.label.wording, row.reason) for row in world.log(webhook)] == [
        ("Rejected (invalid JSON)", "not JSON at line 1, column 7")
    ]


@shows("ERROR-3")
def test_body_one_byte_over_256_kb_is_answered_413(world):
    webhook = world.webhook()

    answer = world.post(webhook, json_of(BODY_MAX + 1))

    assert answer.status == 413
    assert [(row.label.wording, row.size) for row in world.log(webhook)] == [("Rejected (too large)", BODY_MAX + 1)]


@pytest.mark.parametrize("declared", ["2147483647", "2147483648", "999999999999999", "9" * 30])
def test_any_declared_length_over_the_limit_is_answered_413(world, declared):
    webhook, other = world.webhook(), world.webhook("other")
    huge = {"Content-Length": declared}

    assert world.post(webhook, unread_body(), headers=huge).status == 413
    assert world.labels(webhook) == ["Rejected (too large)"]
    assert world.post(webhook, unread_body(), headers=huge, token="wrong").status == 401
    assert world.post(other).status == 202


def test_body_without_a_length_is_read_only_up_to_the_limit(world):
    webhook = world.webhook()
    read: list[bytes] = []

    answer = world.post(webhook, endless_body(b" " * 65_536, read))

    assert (answer.status, len(read)) == (413, 5)
    assert world.labels(webhook) == ["Rejected (too large)"]


@shows("ENDPOINT-7", "IDENTITY-6")
def test_delivery_and_its_duplicate_are_both_answered_202(world):
    webhook = world.webhook()

    assert [world.post(webhook).status for _ in range(2)] == [202, 202]
    assert sorted(world.labels(webhook)) == ["Accepted", "Duplicate"]


@shows("ERROR-4")
def test_every_error_is_problem_json_with_the_same_fields(world):
    for status, answer in every_error(world).items():
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["content-length"] == str(len(answer.body))
        assert answer.headers["cache-control"] == "no-store"
        assert set(answer.json) == {"type", "title", "status", "code"}
        assert (answer.json["type"], answer.json["status"]) == ("about:blank", status)


@shows("ERROR-4")
def test_every_error_has_its_own_code(world):
    codes = {status: answer.json["code"] for status, answer in every_error(world).items()}

    assert codes == {
        400: "invalid_json",
        401: "authentication_failed",
        404: "not_found",
        405: "method_not_allowed",
        413: "body_too_large",
        429: "too_many_requests",
        503: "unavailable",
    }


def test_no_error_echoes_the_request(world):
    webhook = world.webhook()
    canary = {"Authorization": "Bearer canary", "X-Canary": "canary"}

    answers = [
        world.post(webhook, b'"canary', headers=canary),
        world.post(webhook, b'canary"'),
        world.request("POST", "/webhooks/w/canary/canary?canary", headers=canary, body=b"canary"),
        world.request("CANARY", "/webhooks/w/canary", body=b"canary"),
    ]

    assert [answer.status for answer in answers] == [401, 400, 404, 405]
    assert [answer for answer in answers if b"canary" in answer.body or "canary" in str(answer.headers).lower()] == []


def test_401_names_the_bearer_scheme(world):
    assert world.post(world.webhook(), token="wrong").headers["www-authenticate"] == "Bearer"


# The order of the checks: each of these attempts would also fail a later check.


@shows("ERROR-6")
def test_framing_is_checked_before_the_method(sqlite_world):
    two_hosts = [("Host", "a"), ("Host", "b")]

    assert sqlite_world.request("GET", "/webhooks/w/wh_unknown", headers=two_hosts).status == 400


@shows("ERROR-6")
def test_method_is_checked_before_the_webhook(world):
    assert world.request("PUT", "/webhooks/w/wh_unknown").status == 405


@shows("ERROR-6")
def test_webhook_is_checked_before_the_credential(world):
    webhook = world.webhook()
    world.management.webhooks.set_enabled(world.may, "source", False)

    assert world.post(webhook, token="wrong").status == 404


@shows("ERROR-6")
def test_credential_is_checked_before_the_size(world):
    webhook = world.webhook()

    assert world.post(webhook, json_of(BODY_MAX + 1), token="wrong").status == 401
    assert world.labels(webhook) == ["Rejected (auth)"]


@shows("ERROR-6")
def test_size_is_checked_before_the_json(world):
    webhook = world.webhook()

    assert world.post(webhook, b"x" * (BODY_MAX + 1)).status == 413
    assert world.labels(webhook) == ["Rejected (too large)"]


def test_rate_limit_is_checked_before_the_json(world):
    webhook = at_rate_limit(world, world.webhook())

    assert world.post(webhook, b"no json").status == 429
    assert "Rejected (invalid JSON)" not in world.labels(webhook)


@shows("ERROR-6")
def test_json_is_checked_before_the_identity(world):
    webhook = world.webhook()
    headers = {"X-Service-Delivery-Id": "event-1"}
    world.post(webhook, b"{}", headers=headers)

    assert world.post(webhook, b"no json", headers=headers).status == 400


# Faults of the service are never answered with a 4xx


@shows("ERROR-5")
@pytest.mark.parametrize("table", ["webhooks", "deliveries", "identities", "payloads"])
def test_database_failure_is_answered_503_and_the_retry_is_accepted(world, table):
    webhook = world.webhook()
    with world.database.write() as tx:
        tx.run(f"ALTER TABLE {table} RENAME TO renamed")

    failed = world.post(webhook, b"[1]")

    assert (failed.status, failed.headers["retry-after"]) == (503, "5")
    with world.database.write() as tx:
        tx.run(f"ALTER TABLE renamed RENAME TO {table}")
    assert world.post(webhook, b"[1]").status == 202
    assert world.labels(webhook) == ["Accepted"]
    assert world.failures != []
    world.failures.clear()


@shows("ERROR-5")
@pytest.mark.parametrize("token", [None, "wrong"], ids=["right secret", "wrong secret"])
def test_database_failure_is_never_answered_401_or_404(world, token):
    webhook = world.webhook()
    world.post(webhook)
    with world.database.write() as tx:
        tx.run("ALTER TABLE webhooks RENAME TO renamed")

    answers = [world.post(webhook, b"1", token=token), world.request("POST", "/webhooks/w/wh_unknown", body=b"{}")]

    assert [answer.status for answer in answers] == [503, 503]
    world.failures.clear()


@shows("ERROR-5")
@pytest.mark.parametrize("token", [None, "wrong"], ids=["right secret", "wrong secret"])
def test_nearly_full_disk_is_answered_503_and_nothing_is_written(world, token):
    webhook = world.webhook()
    world.has_room = False

    answer = world.post(webhook, token=token)

    assert (answer.status, answer.headers["retry-after"], world.log(webhook)) == (503, "5", [])
    world.has_room = True
    assert world.post(webhook).status == 202


def test_404_is_answered_on_a_nearly_full_disk(world):
    world.has_room = False

    assert world.request("POST", "/webhooks/w/wh_unknown", body=b"{}").status == 404


def test_full_database_is_answered_503_and_accepts_smaller_deliveries(sqlite_world):
    webhook = sqlite_world.webhook()
    sqlite_world.post(webhook, b"0")
    with sqlite_world.database.write() as tx:
        pages = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 10}")

    answers = [sqlite_world.post(webhook, json_of(BODY_MAX)).status, sqlite_world.post(webhook, b"1").status]

    assert answers == [503, 202]
    assert [(where, "its disk is full" in why) for where, why in sqlite_world.failures] == [("admission", True)]
    sqlite_world.failures.clear()


def test_closed_database_connections_fail_at_most_one_delivery(postgres_world):
    webhook = postgres_world.webhook()
    postgres_world.post(webhook, b"0")
    end_connections(postgres_world)

    answers = [postgres_world.post(webhook, b"%d" % i).status for i in range(1, 4)]

    # The first use of an ended connection replaces all of them. A read in the background may be this first use.
    assert answers[0] in {202, 503}
    assert answers[1:] == [202, 202]
    postgres_world.failures.clear()


def end_connections(world: World):
    """Make the database server end all connections to the database, and wait for it: until then, one may be used."""
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def every_error(world: World) -> dict[int, Answer]:
    """One answer for each status of an error."""
    webhook = world.webhook()
    requests: dict[int, Callable[[], Answer]] = {
        400: lambda: world.post(webhook, b"{"),
        401: lambda: world.post(webhook, token="wrong"),
        404: lambda: world.request("POST", "/webhooks/w/wh_unknown", body=b"{}"),
        405: lambda: world.request("GET", f"/webhooks/w/{webhook.webhook.uid}"),
        413: lambda: world.post(webhook, json_of(BODY_MAX + 1)),
        429: lambda: world.post(at_rate_limit(world, world.webhook("full")), b"60"),
    }
    answers = {status: request() for status, request in requests.items()}
    world.has_room = False
    answers[503] = world.post(webhook)
    return answers


def at_rate_limit(world: World, webhook: WebhookWithSecret) -> WebhookWithSecret:
    """The webhook, after so many deliveries that the next one gets 429."""
    world.post_many([(webhook, b"%d" % i) for i in range(60)])
    return webhook


def json_of(size: int) -> bytes:
    """A JSON text with this many bytes."""
    return b'"' + b"x" * (size - 2) + b'"'


def unread_body() -> Iterator[bytes]:
    """A body that fails the test if the service reads it."""
    raise AssertionError("the body was read")
    yield b""


def endless_body(chunk: bytes, read: list[bytes]) -> Iterator[bytes]:
    """A body without an end that adds each chunk to `read` when the service reads it."""
    while True:
        read.append(chunk)
        yield chunk
