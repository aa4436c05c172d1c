"""Rate limits of the API: each key has its own for requests, and each client address for failed authentications."""

import pytest

from hookmill.domain.client import client_network
from hookmill.web.api import rate_limit
from hookmill.web.api.rate_limit import RateLimiter
from tests.api.client import api_for_test
from tests.support.world import Clock


@pytest.fixture
def strictly_limited_api(sqlite_store):
    """An API that permits three requests a minute for each key, and three failures for each address."""
    yield from api_for_test(sqlite_store, requests_per_minute=3, failures_per_minute=3)


def test_every_authenticated_answer_has_rate_limit_headers(strictly_limited_api):
    answers = [
        strictly_limited_api.get(path) for path in ("/me", "/factories/nowhere", "/factories/default/webhooks?limit=0")
    ]

    assert [answer.status for answer in answers] == [200, 404, 422]
    assert [answer.headers["ratelimit-remaining"] for answer in answers] == ["2", "1", "0"]
    assert {answer.headers["ratelimit-limit"] for answer in answers} == {"3"}
    assert {answer.headers["ratelimit-reset"] for answer in answers} == {"60"}


def test_key_at_its_rate_limit_is_answered_429_until_the_window_ends(strictly_limited_api):
    for _ in range(3):
        strictly_limited_api.get("/me")
    strictly_limited_api.world.clock.advance(seconds=20)

    refused = strictly_limited_api.get("/me")
    strictly_limited_api.world.clock.advance(seconds=40)

    assert refused.problem == (429, "too_many_requests")
    assert (refused.headers["retry-after"], refused.headers["ratelimit-remaining"]) == ("40", "0")
    assert strictly_limited_api.get("/me").status == 200


def test_request_over_the_rate_limit_changes_nothing(strictly_limited_api):
    for _ in range(3):
        strictly_limited_api.get("/me")

    refused = strictly_limited_api.post("/factories/default/webhooks", {"name": "x"})

    assert refused.status == 429
    assert strictly_limited_api.management.webhooks.all(strictly_limited_api.world.may) == []


def test_each_key_has_its_own_rate_limit(strictly_limited_api):
    for _ in range(4):
        strictly_limited_api.get("/me")

    assert strictly_limited_api.get("/me", key=strictly_limited_api.viewer).status == 200


def test_address_with_too_many_failures_is_answered_429(strictly_limited_api):
    failures = [strictly_limited_api.get("/me", key="hmk_wrong") for _ in range(4)]

    assert [answer.status for answer in failures] == [401, 401, 401, 429]
    assert failures[-1].headers["retry-after"] == "60"
    assert "ratelimit-limit" not in failures[-1].headers


def test_valid_key_works_from_an_address_with_many_failures(strictly_limited_api):
    for _ in range(10):
        strictly_limited_api.get("/me", key="hmk_wrong")

    assert strictly_limited_api.get("/me").status == 200


def test_each_address_has_its_own_failure_limit(strictly_limited_api):
    for _ in range(10):
        strictly_limited_api.get("/me", key="hmk_wrong", headers={"X-Forwarded-For": "198.51.100.1"})

    assert strictly_limited_api.get("/me", key="hmk_wrong", headers={"X-Forwarded-For": "198.51.100.2"}).status == 401


def test_forged_client_address_does_not_evade_the_failure_limit(strictly_limited_api):
    # The trusted proxy appends the real address, to the header's last line or as a line of its own.
    forged = [[("X-Forwarded-For", f"198.51.100.{number}, 203.0.113.9")] for number in range(3)] + [
        [("X-Forwarded-For", "198.51.100.9"), ("X-Forwarded-For", "203.0.113.9")]
    ]

    answers = [strictly_limited_api.get("/me", key="hmk_wrong", headers=headers) for headers in forged]

    assert [answer.status for answer in answers] == [401, 401, 401, 429]


def test_audit_log_contains_the_address_that_the_trusted_proxy_added(strictly_limited_api):
    strictly_limited_api.post(
        "/factories/default/webhooks", {"name": "x"}, headers={"X-Forwarded-For": "10.0.0.1, 203.0.113.77"}
    )

    entry = strictly_limited_api.get("/factories/default/audit-log?limit=1").json["items"][0]

    assert (entry["action"], entry["client"], entry["channel"]) == ("webhook.create", "203.0.113.77", "api")
    assert (entry["actor"]["kind"], entry["actor"]["name"]) == ("key", "a manager")


def test_clock_that_is_set_back_blocks_no_caller():
    clock = Clock()
    limiter = RateLimiter(1, clock)
    limiter.count("caller")
    clock.advance(days=-1)

    assert not limiter.count("caller").is_exceeded


def test_rate_limiter_stores_a_limited_number_of_callers(monkeypatch):
    monkeypatch.setattr(rate_limit, "CALLERS_MAX", 3)
    limiter = RateLimiter(1, Clock())
    for number in range(10):
        limiter.count(f"caller {number}")

    assert len(limiter._windows) == 3
    assert limiter.count("caller 9").is_exceeded


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
    ],
)
def test_ipv6_addresses_of_one_64_bit_network_are_one_client(one, other, same):
    assert (client_network(one) == client_network(other)) is same
