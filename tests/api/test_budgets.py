"""How often one may ask: each key has its budget and each address its failures; nobody uses up what is another's."""

from collections.abc import Iterator

import pytest

from hookmill.domain.client import client_network
from hookmill.domain.permission import Role
from hookmill.web.api import rate_limit
from hookmill.web.api.rate_limit import RateLimiter
from tests.api.client import Api, living_api
from tests.support.world import Clock


@pytest.fixture
def strictly_limited_api(sqlite_store: str) -> Iterator[Api]:
    """Three requests a minute for each key, and three failures for each address."""
    yield from living_api(sqlite_store, requests_per_minute=3, failures_per_minute=3)


def test_every_answer_to_a_key_says_what_is_left(strictly_limited_api: Api):
    answers = [
        strictly_limited_api.get(path) for path in ("/me", "/factories/nowhere", "/factories/default/webhooks?limit=0")
    ]

    assert [answer.status for answer in answers] == [200, 404, 422]
    assert [answer.headers["ratelimit-remaining"] for answer in answers] == ["2", "1", "0"]
    assert {answer.headers["ratelimit-limit"] for answer in answers} == {"3"}
    assert {answer.headers["ratelimit-reset"] for answer in answers} == {"60"}


def test_a_key_that_has_used_its_minute_up_waits_for_the_next_one(strictly_limited_api: Api):
    for _ in range(3):
        strictly_limited_api.get("/me")
    strictly_limited_api.world.clock.advance(seconds=20)

    over = strictly_limited_api.get("/me")
    strictly_limited_api.world.clock.advance(seconds=40)

    assert (over.status, over.json["code"]) == (429, "too_many_requests")
    assert (over.headers["retry-after"], over.headers["ratelimit-remaining"]) == ("40", "0")
    assert strictly_limited_api.get("/me").status == 200


def test_a_key_above_its_rate_limit_does_nothing(strictly_limited_api: Api):
    for _ in range(3):
        strictly_limited_api.get("/me")

    refused = strictly_limited_api.post("/factories/default/webhooks", {"name": "x"})

    assert refused.status == 429
    assert strictly_limited_api.management.webhooks.all(strictly_limited_api.world.may) == []


def test_each_key_has_its_own_rate_limit(strictly_limited_api: Api):
    for _ in range(4):
        strictly_limited_api.get("/me")

    assert strictly_limited_api.get("/me", key=strictly_limited_api.viewer).status == 200


def test_an_address_that_fails_too_often_is_answered_429(strictly_limited_api: Api):
    failures = [strictly_limited_api.get("/me", key="hmk_wrong") for _ in range(4)]

    assert [answer.status for answer in failures] == [401, 401, 401, 429]
    assert failures[-1].headers["retry-after"] == "60"
    assert "ratelimit-limit" not in failures[-1].headers


def test_a_valid_key_works_from_an_address_with_many_failures(strictly_limited_api: Api):
    for _ in range(10):
        strictly_limited_api.get("/me", key="hmk_wrong")

    assert strictly_limited_api.get("/me").status == 200


def test_failures_at_one_address_are_not_held_against_another(strictly_limited_api: Api):
    for _ in range(10):
        strictly_limited_api.get("/me", key="hmk_wrong", headers={"X-Forwarded-For": "198.51.100.1"})

    assert strictly_limited_api.get("/me", key="hmk_wrong", headers={"X-Forwarded-For": "198.51.100.2"}).status == 401


def test_an_address_that_the_client_made_up_is_not_believed(strictly_limited_api: Api):
    # What the trusted proxy wrote stands last, in a line of its own or not.
    made_up = [[("X-Forwarded-For", f"198.51.100.{number}, 203.0.113.9")] for number in range(3)] + [
        [("X-Forwarded-For", "198.51.100.9"), ("X-Forwarded-For", "203.0.113.9")]
    ]

    answers = [strictly_limited_api.get("/me", key="hmk_wrong", headers=headers) for headers in made_up]

    assert [answer.status for answer in answers] == [401, 401, 401, 429]


def test_the_audit_log_has_the_address_that_the_trusted_proxy_saw(strictly_limited_api: Api):
    strictly_limited_api.post(
        "/factories/default/webhooks", {"name": "x"}, headers={"X-Forwarded-For": "10.0.0.1, 203.0.113.77"}
    )

    entry = strictly_limited_api.get("/factories/default/audit-log?limit=1").json["items"][0]

    assert (entry["action"], entry["client"], entry["channel"]) == ("webhook.create", "203.0.113.77", "api")
    assert (entry["actor"]["kind"], entry["actor"]["name"]) == ("key", "a manager")


def test_a_revoked_key_opens_nothing_from_then_on(strictly_limited_api: Api):
    token = strictly_limited_api.key("to be revoked", Role.VIEWER, "default")
    (key,) = [
        each
        for each in strictly_limited_api.get("/keys", key=strictly_limited_api.admin).json["items"]
        if each["name"] == "to be revoked"
    ]

    before = strictly_limited_api.get("/me", key=token).status
    revoked = strictly_limited_api.delete(f"/keys/{key['key_id']}", key=strictly_limited_api.admin)

    assert (before, revoked.status, strictly_limited_api.get("/me", key=token).status) == (200, 200, 401)
    assert revoked.json["revoked_at"] is not None


def test_a_clock_that_was_set_back_shuts_nobody_out():
    clock = Clock()
    counted = RateLimiter(1, clock)
    counted.count("somebody")
    clock.advance(days=-1)

    assert not counted.count("somebody").is_exceeded


def test_a_rate_limit_remembers_a_bounded_number_of_callers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rate_limit, "CALLERS_MAX", 3)
    counted = RateLimiter(1, Clock())
    for number in range(10):
        counted.count(f"caller {number}")

    assert len(counted._windows) == 3
    assert counted.count("caller 9").is_exceeded


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
    ],
)
def test_whoever_holds_a_network_of_ipv6_is_one_client(one, other, same):
    assert (client_network(one) == client_network(other)) is same
