"""Every answer but 202: its status, its body, and the order of the checks."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest

from hookmill.domain.webhook import AuthMode
from hookmill.management import WebhookWithSecret
from tests.spec import shows
from tests.support.service import Answer
from tests.support.world import World

BODY_MAX = 262_144


@shows("ERROR-2")
@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.URL_TOKEN])
def test_unknown_disabled_and_deleted_webhooks_get_identical_404s(world, mode):
    disabled, deleted = [world.webhook(name, auth_mode=mode) for name in ("disabled", "deleted")]
    world.post(disabled)
    world.management.webhooks.set_enabled(world.may, "disabled", False)
    world.management.webhooks.delete(world.may, "deleted")
    unknown = replace(disabled, webhook=replace(disabled.webhook, uid="wh_" + "0" * 27))

    answers = [world.post(each, token=token) for each in (unknown, disabled, deleted) for token in (None, "wrong")]

    assert answers[0].status == 404
    assert all(answer == answers[0] for answer in answers)


def test_token_segment_at_a_token_webhook_is_answered_404(world):
    made = world.webhook()
    path = f"/webhooks/w/{made.webhook.uid}"
    secret = made.reveal()

    answers = [
        world.request("POST", f"{path}/{secret}", headers={"Authorization": f"Bearer {secret}"}, body=b"{}"),
        world.request("POST", f"{path}/wrong", body=b"{}"),
        world.request("POST", "/webhooks/w/wh_unknown", body=b"{}"),
        world.request("POST", "/webhooks/w/wh_unknown/wrong", body=b"{}"),
        world.request("POST", "/elsewhere", body=b"{}"),
    ]

    assert answers[0].status == 404
    assert all(answer == answers[0] for answer in answers)
    assert world.log(made) == []


@shows("LOG-2")
def test_404_of_a_disabled_webhook_is_counted_and_not_logged(world):
    made = world.webhook()
    world.management.webhooks.set_enabled(world.may, "source", False)

    answers = [world.post(made, token=token).status for token in (None, "wrong", None)]

    assert answers == [404, 404, 404]
    assert (world.log(made), world.dropped_attempts(made)) == ([], {"not_found": 3})


def test_404_does_not_wait_for_the_body(world):
    made = world.webhook()
    world.management.webhooks.set_enabled(world.may, "source", False)

    assert world.post(made, never_read()).status == 404


@shows("ERROR-1")
def test_invalid_json_is_answered_400_and_the_log_says_where(world):
    made = world.webhook()

    answer = world.post(made, b'{"a": tru}')

    assert answer.status == 400
    assert [(row.label.wording, row.reason) for row in world.log(made)] == [
        ("Rejected (invalid JSON)", "not JSON at line 1, column 7")
    ]


@shows("ERROR-3")
def test_body_one_byte_over_256_kb_is_answered_413(world):
    made = world.webhook()

    answer = world.post(made, json_of(BODY_MAX + 1))

    assert answer.status == 413
    assert [(row.label.wording, row.size) for row in world.log(made)] == [("Rejected (too large)", BODY_MAX + 1)]


def test_body_declared_too_large_is_refused_unread(world):
    made = world.webhook()

    answer = world.post(made, never_read(), headers={"Content-Length": str(BODY_MAX + 1)})

    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert [(row.label.wording, row.size) for row in world.log(made)] == [("Rejected (too large)", BODY_MAX + 1)]


@pytest.mark.parametrize("declared", ["2147483647", "2147483648", "999999999999999", "9" * 30])
def test_any_declared_length_over_the_limit_is_answered_413(world, declared):
    made, other = world.webhook(), world.webhook("other")
    huge = {"Content-Length": declared}

    assert world.post(made, never_read(), headers=huge).status == 413
    assert world.labels(made) == ["Rejected (too large)"]
    assert world.post(made, never_read(), headers=huge, token="wrong").status == 401
    assert world.post(other).status == 202


def test_body_without_a_length_is_read_only_up_to_the_limit(world):
    made = world.webhook()
    read: list[bytes] = []

    answer = world.post(made, noting(b" " * 65_536, read))

    assert (answer.status, len(read)) == (413, 5)
    assert world.labels(made) == ["Rejected (too large)"]


@shows("ENDPOINT-7", "IDENTITY-6")
def test_delivery_and_its_duplicate_are_both_answered_202(world):
    made = world.webhook()

    assert [world.post(made).status for _ in range(2)] == [202, 202]
    assert sorted(world.labels(made)) == ["Accepted", "Duplicate"]


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
    made = world.webhook()
    canary = {"Authorization": "Bearer canary", "X-Canary": "canary"}

    answers = [
        world.post(made, b'"canary', headers=canary),
        world.post(made, b'canary"'),
        world.request("POST", "/webhooks/w/canary/canary?canary", headers=canary, body=b"canary"),
        world.request("CANARY", "/webhooks/w/canary", body=b"canary"),
    ]

    assert [answer.status for answer in answers] == [401, 400, 404, 405]
    assert [answer for answer in answers if b"canary" in answer.body or "canary" in str(answer.headers).lower()] == []


def test_401_names_the_bearer_scheme(world):
    assert world.post(world.webhook(), token="wrong").headers["www-authenticate"] == "Bearer"


# The order of the checks: each of these attempts fails a later check, too.


@shows("ERROR-6")
def test_framing_is_checked_before_the_method(sqlite_world):
    twice = [("Host", "a"), ("Host", "b")]

    assert sqlite_world.request("GET", "/webhooks/w/wh_unknown", headers=twice).status == 400


@shows("ERROR-6")
def test_method_is_checked_before_the_webhook(world):
    assert world.request("PUT", "/webhooks/w/wh_unknown").status == 405


@shows("ERROR-6")
def test_webhook_is_checked_before_the_credential(world):
    made = world.webhook()
    world.management.webhooks.set_enabled(world.may, "source", False)

    assert world.post(made, token="wrong").status == 404


@shows("ERROR-6")
def test_credential_is_checked_before_the_size(world):
    made = world.webhook()

    assert world.post(made, json_of(BODY_MAX + 1), token="wrong").status == 401
    assert world.labels(made) == ["Rejected (auth)"]


@shows("ERROR-6")
def test_size_is_checked_before_the_json(world):
    made = world.webhook()

    assert world.post(made, b"x" * (BODY_MAX + 1)).status == 413
    assert world.labels(made) == ["Rejected (too large)"]


def test_rate_is_checked_before_the_json(world):
    made = full(world, world.webhook())

    assert world.post(made, b"no json").status == 429
    assert "Rejected (invalid JSON)" not in world.labels(made)


@shows("ERROR-6")
def test_json_is_checked_before_the_identity(world):
    made = world.webhook()
    headers = {"X-Service-Delivery-Id": "event-1"}
    world.post(made, b"{}", headers=headers)

    assert world.post(made, b"no json", headers=headers).status == 400


# A fault of the service is never answered with a 4xx.


@shows("ERROR-5")
@pytest.mark.parametrize("table", ["webhooks", "deliveries", "identities", "payloads"])
def test_database_failure_is_answered_503_and_the_retry_is_accepted(world, table):
    made = world.webhook()
    with world.database.write() as tx:
        tx.run(f"ALTER TABLE {table} RENAME TO gone")

    failed = world.post(made, b"[1]")

    assert (failed.status, failed.headers["retry-after"]) == (503, "5")
    with world.database.write() as tx:
        tx.run(f"ALTER TABLE gone RENAME TO {table}")
    assert world.post(made, b"[1]").status == 202
    assert world.labels(made) == ["Accepted"]
    assert world.failures != []
    world.failures.clear()


@shows("ERROR-5")
@pytest.mark.parametrize("token", [None, "wrong"], ids=["right secret", "wrong secret"])
def test_database_failure_is_never_answered_with_a_refusal(world, token):
    made = world.webhook()
    world.post(made)
    with world.database.write() as tx:
        tx.run("ALTER TABLE webhooks RENAME TO gone")

    answers = [world.post(made, b"1", token=token), world.request("POST", "/webhooks/w/wh_unknown", body=b"{}")]

    assert [answer.status for answer in answers] == [503, 503]
    world.failures.clear()


@shows("ERROR-5")
@pytest.mark.parametrize("token", [None, "wrong"], ids=["right secret", "wrong secret"])
def test_nearly_full_disk_is_answered_503_and_nothing_is_written(world, token):
    made = world.webhook()
    world.has_room = False

    answer = world.post(made, token=token)

    assert (answer.status, answer.headers["retry-after"], world.log(made)) == (503, "5", [])
    world.has_room = True
    assert world.post(made).status == 202


def test_404_is_answered_on_a_nearly_full_disk(world):
    world.has_room = False

    assert world.request("POST", "/webhooks/w/wh_unknown", body=b"{}").status == 404


def test_full_database_is_answered_503_and_smaller_deliveries_pass(sqlite_world):
    made = sqlite_world.webhook()
    sqlite_world.post(made, b"0")
    with sqlite_world.database.write() as tx:
        pages = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 10}")

    answers = [sqlite_world.post(made, json_of(BODY_MAX)).status, sqlite_world.post(made, b"1").status]

    assert answers == [503, 202]
    assert [(where, "its disk is full" in why) for where, why in sqlite_world.failures] == [("admission", True)]
    sqlite_world.failures.clear()


def test_read_only_database_is_answered_503(postgres_world):
    made = postgres_world.webhook()
    # A connection that is still being opened would miss both the setting and the end of all connections.
    assert postgres_world.post(made).status == 202

    with setting(postgres_world, "default_transaction_read_only", "on"):
        while_read_only = [postgres_world.post(made).status for _ in range(3)]
    afterwards = [postgres_world.post(made).status for _ in range(3)]

    # The first delivery after each change gets a connection that has ended.
    assert (while_read_only, afterwards) == ([503, 503, 503], [503, 202, 202])
    postgres_world.failures.clear()


def test_closed_database_connections_fail_at_most_one_delivery(postgres_world):
    made = postgres_world.webhook()
    postgres_world.post(made, b"0")
    ended(postgres_world)

    answers = [postgres_world.post(made, b"%d" % i).status for i in range(1, 4)]

    # The first use of an ended connection replaces them all; that may be a background read.
    assert answers[0] in {202, 503}
    assert answers[1:] == [202, 202]
    postgres_world.failures.clear()


@contextlib.contextmanager
def setting(world: World, name: str, value: str) -> Iterator[None]:
    database = world.url.rpartition("/")[2]
    with world.database.write() as tx:
        tx.run(f"ALTER DATABASE {database} SET {name} = {value}")
    ended(world)
    yield
    with world.database.write() as tx:
        tx.run("SET TRANSACTION READ WRITE")
        tx.run(f"ALTER DATABASE {database} RESET {name}")
    ended(world)


def ended(world: World) -> None:
    """Makes the database end every connection to it."""
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s",
            [connection.info.backend_pid],
        )


def every_error(world: World) -> dict[int, Answer]:
    made = world.webhook()
    ways: dict[int, Callable[[], Answer]] = {
        400: lambda: world.post(made, b"{"),
        401: lambda: world.post(made, token="wrong"),
        404: lambda: world.request("POST", "/webhooks/w/wh_unknown", body=b"{}"),
        405: lambda: world.request("GET", f"/webhooks/w/{made.webhook.uid}"),
        413: lambda: world.post(made, json_of(BODY_MAX + 1)),
        429: lambda: world.post(full(world, world.webhook("full")), b"60"),
    }
    answers = {status: way() for status, way in ways.items()}
    world.has_room = False
    answers[503] = world.post(made)
    return answers


def full(world: World, made: WebhookWithSecret) -> WebhookWithSecret:
    world.post_many([(made, b"%d" % i) for i in range(60)])
    return made


def json_of(size: int) -> bytes:
    return b'"' + b"x" * (size - 2) + b'"'


def never_read() -> Iterator[bytes]:
    raise AssertionError("the body was read")
    yield b""


def noting(piece: bytes, read: list[bytes]) -> Iterator[bytes]:
    while True:
        read.append(piece)
        yield piece
