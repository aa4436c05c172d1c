"""Authentication by secret: which requests are authenticated, how failures are answered and logged, and their limit."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hookmill.domain.secret import SecretValue
from hookmill.domain.webhook import AuthMode
from tests.spec import shows
from tests.support.sqlite_usually import store_url

__all__ = ["store_url"]

BOTH_MODES = pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.URL_TOKEN])


@shows("AUTH-1")
def test_sender_presents_the_secret_as_a_bearer_token(world):
    webhook = world.webhook()
    headers = {"Authorization": f"Bearer {webhook.reveal()}"}

    answer = world.request("POST", f"/webhooks/w/{webhook.webhook.uid}", headers=headers, body=b"{}")

    assert answer.status == 202
    assert world.labels(webhook) == ["Accepted"]


@shows("AUTH-2")
def test_url_alone_authenticates_at_a_url_token_webhook(world):
    webhook = world.webhook(auth_mode=AuthMode.URL_TOKEN)

    answer = world.request("POST", webhook.url.removeprefix("https://hooks.test"), body=b"{}")

    assert answer.status == 202


@shows("AUTH-3", "AUTH-4")
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "no Authorization header"),
        ({"Authorization": ""}, "the Authorization header is not of the form Bearer <secret>"),
        ({"Authorization": "Bearer"}, "the Authorization header is not of the form Bearer <secret>"),
        ({"Authorization": "Bearer wrong"}, "the bearer token is not this webhook's secret"),
        ({"Authorization": "Bearer \xe9\xff"}, "the bearer token is not this webhook's secret"),
        ({"Authorization": "Basic d3Jvbmc="}, "the Authorization header is not of the form Bearer <secret>"),
        ({"X-Authorization": "Bearer {secret}"}, "no Authorization header"),
        ({"Proxy-Authorization": "Bearer {secret}"}, "no Authorization header"),
    ],
)
def test_request_without_the_secret_is_refused_and_the_log_says_why(world, headers, reason):
    webhook = world.webhook()
    formatted = {name: value.format(secret=webhook.reveal()) for name, value in headers.items()}

    answer = world.request("POST", f"/webhooks/w/{webhook.webhook.uid}", headers=formatted, body=b"{}")

    assert answer.status == 401
    assert [(row.label.wording, row.reason) for row in world.log(webhook)] == [("Rejected (auth)", reason)]


@BOTH_MODES
def test_secret_rotated_in_another_process_is_refused_with_its_reason(world, mode):
    webhook = world.webhook(auth_mode=mode)
    other = world.another_process()
    assert other.post(webhook, b"[]").status == 202

    world.management.webhooks.rotate(world.may, webhook.webhook.uid)
    world.clock.advance(seconds=1)

    assert other.post(webhook).status == 401
    assert "is not this webhook's secret" in (world.log(webhook)[0].reason or "")


def test_log_contains_the_clients_address_of_each_attempt(world):
    webhook = world.webhook()
    path = f"/webhooks/w/{webhook.webhook.uid}"

    world.request("POST", path, body=b"{}")
    world.clock.advance(seconds=1)
    world.request("POST", path, headers={"X-Forwarded-For": "1.1.1.1, 198.51.100.4"}, body=b"{}")
    world.clock.advance(seconds=1)
    world.post(webhook)

    assert [row.client for row in world.log(webhook)] == [None, "198.51.100.4", "192.0.2.7"]


@shows("AUTH-3")
def test_missing_or_wrong_token_segment_is_answered_401(world):
    webhook = world.webhook(auth_mode=AuthMode.URL_TOKEN)
    path = f"/webhooks/w/{webhook.webhook.uid}"

    missing = world.request("POST", path, headers={"Authorization": f"Bearer {webhook.reveal()}"}, body=b"{}")
    world.clock.advance(seconds=1)
    wrong = world.request("POST", f"{path}/wrong", body=b"{}")

    assert (missing.status, wrong.status) == (401, 401)
    assert [row.reason for row in world.log(webhook)] == [
        "the URL's token is not this webhook's secret",
        "the URL lacks its token segment",
    ]


@shows("AUTH-4")
def test_every_401_is_identical_whatever_was_wrong(world):
    webhook = world.webhook()
    path = f"/webhooks/w/{webhook.webhook.uid}"
    attempts = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}, {"Authorization": "Bearer \xff"}]

    answers = [world.request("POST", path, headers=headers, body=b"{}") for headers in attempts]

    assert [answer.status for answer in answers] == [401] * 4
    assert all(answer == answers[0] for answer in answers)


@BOTH_MODES
def test_unauthenticated_body_is_not_read(world, mode):
    webhook = world.webhook(auth_mode=mode)
    read: list[bytes] = []

    answer = world.post(webhook, recorded_chunks([b'{"a": ', b"1}"], read), token="wrong")

    assert (answer.status, read) == (401, [])


@shows("AUTH-5", "STATE-7")
@BOTH_MODES
def test_rotated_secret_is_rejected_immediately(world, mode):
    old = world.webhook(auth_mode=mode)
    world.post(old)

    new = world.management.webhooks.rotate(world.may, "source")

    assert (world.post(old).status, world.post(new, b"[]").status) == (401, 202)
    assert new.webhook.state == "enabled"


@shows("AUTH-5")
def test_rotation_takes_effect_in_every_process_before_it_returns(world):
    other = world.another_process()
    old = world.webhook()
    assert {world.post(old, b"1").status, other.post(old, b"2").status} == {202}

    new = world.management.webhooks.rotate(world.may, "source")

    assert [each.post(old, b"3").status for each in (world, other)] == [401, 401]
    assert [each.post(new, b"4").status for each in (world, other)] == [202, 202]


def test_rotation_accepts_a_supplied_secret(world):
    world.webhook()

    new = world.management.webhooks.rotate(world.may, "source", "my own value")

    assert new.reveal() == "my own value"
    assert world.post(new).status == 202


@shows("STATE-7")
def test_disabled_webhook_can_be_rotated_and_stays_disabled(world):
    old = world.webhook()
    world.management.webhooks.set_enabled(world.may, "source", False)

    new = world.management.webhooks.rotate(world.may, "source")

    assert new.webhook.state == "disabled"
    assert (world.post(old).status, world.post(new).status) == (404, 404)
    world.management.webhooks.set_enabled(world.may, "source", True)
    assert (world.post(old).status, world.post(new).status) == (401, 202)


def test_delivery_is_refused_if_its_secret_is_rotated_meanwhile(world):
    old = world.webhook()
    world.post(old, b"0")
    world.clock.advance(seconds=1)

    def body():
        yield b"[1"
        world.management.webhooks.rotate(world.may, "source")
        yield b"]"

    assert world.post(old, body()).status == 401
    assert world.labels(old) == ["Rejected (auth)", "Accepted"]


@shows("LIMIT-5")
@BOTH_MODES
def test_61st_failed_authentication_in_a_minute_gets_429_and_retry_after(world, mode):
    webhook = world.webhook(auth_mode=mode)
    failures = [world.post(webhook, token="wrong").status for _ in range(60)]
    world.clock.advance(seconds=12.5)

    answer = world.post(webhook, token="wrong")

    assert failures == [401] * 60
    assert (answer.status, answer.headers["retry-after"]) == (429, "48")


@shows("LIMIT-6")
@BOTH_MODES
def test_failed_authentications_never_block_the_authenticated_sender(world, mode):
    webhook = world.webhook(auth_mode=mode)
    for _ in range(200):
        world.post(webhook, token="wrong")

    assert [world.post(webhook, b"%d" % i).status for i in range(60)] == [202] * 60


@shows("LOG-2")
def test_failures_over_the_limit_are_counted_and_not_logged(world):
    webhook = world.webhook()

    for _ in range(200):
        world.post(webhook, token="wrong")

    assert world.labels(webhook) == ["Rejected (auth)"] * 60
    assert world.dropped_attempts(webhook) == {"failed_authentications": 140}


@shows("LIMIT-6")
def test_failures_and_deliveries_have_separate_rate_limits(world):
    webhook = world.webhook()
    for i in range(60):
        world.post(webhook, b"%d" % i)

    assert world.post(webhook, b"60").status == 429
    assert [world.post(webhook, token="wrong").status for _ in range(61)] == [401] * 60 + [429]


def test_each_webhook_has_its_own_failure_limit(world):
    one, other = world.webhook("one"), world.webhook("other")
    for _ in range(61):
        world.post(one, token="wrong")

    assert (world.post(one, token="wrong").status, world.post(other, token="wrong").status) == (429, 401)


def test_failure_limit_holds_across_all_processes(world):
    other = world.another_process()
    webhook = world.webhook()

    answers = [each.post(webhook, token="wrong").status for _ in range(40) for each in (world, other)]

    assert sorted(answers) == [401] * 60 + [429] * 20


def test_simultaneous_failures_leave_60_rows(world):
    webhook = world.webhook()
    with_wrong_secret = replace(webhook, secret=SecretValue("wrong"))

    answers = world.post_many([(with_wrong_secret, b"{}")] * 403)

    assert sorted(answer.status for answer in answers) == [401] * 60 + [429] * 343
    assert len(world.log(webhook)) == 60


def test_failure_with_a_huge_content_length_is_logged_with_size_0(world):
    webhook = world.webhook()

    world.post(webhook, token="wrong", headers={"Content-Length": "99999999999999999999"})

    assert [row.size for row in world.log(webhook)] == [0]


def recorded_chunks(chunks: list[bytes], read: list[bytes]) -> Iterator[bytes]:
    """A body that adds each chunk to `read` when the service reads it."""
    for chunk in chunks:
        read.append(chunk)
        yield chunk
