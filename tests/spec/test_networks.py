"""A webhook with allowed networks: what other clients get, what its owner sees, and when a change takes effect."""

from collections.abc import Iterator

import pytest

from hookmill.domain.webhook import AuthMode
from tests.spec import shows
from tests.support.sqlite_usually import store_url

__all__ = ["store_url"]

EVERY_MODE = pytest.mark.parametrize(
    "choices",
    [
        {"auth_mode": AuthMode.TOKEN},
        {"auth_mode": AuthMode.URL_TOKEN},
        {"auth_mode": AuthMode.SIGNATURE, "signature_scheme": "github", "secret": "agreed upon"},
    ],
    ids=["token", "url_token", "signature"],
)
ALLOWED = "198.51.100.0/24"
INSIDE = {"X-Forwarded-For": "198.51.100.4"}
OUTSIDE = {"X-Forwarded-For": "203.0.113.9"}
REASON = "the client's address 203.0.113.9 is not in the allowed networks"


@shows("AUTH-6")
@EVERY_MODE
def test_client_outside_the_networks_gets_the_same_401_as_others(world, choices):
    limited = world.webhook("limited", allowed_networks=[ALLOWED], **choices)
    open_to_all = world.webhook("open", **choices)
    parts_read: list[bytes] = []

    refused = world.post(limited, recording_body(parts_read), headers=OUTSIDE)
    failed = world.post(open_to_all, b"{}", token="wrong")

    assert (refused.status, refused) == (401, failed)
    assert [(row.label.wording, row.reason, row.client) for row in world.log(limited)] == [
        ("Rejected (auth)", REASON, "203.0.113.9")
    ]
    # Even if the body is needed for the signature, it is not read.
    assert parts_read == []


@shows("AUTH-6")
@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.URL_TOKEN])
def test_client_inside_the_networks_still_needs_the_secret(world, mode):
    limited = world.webhook(auth_mode=mode, allowed_networks=["2001:db8::/32", ALLOWED])

    answers = [
        world.post(limited, b"1", headers=INSIDE),
        world.post(limited, b"2", headers={"X-Forwarded-For": "2001:db8::5"}),
        world.post(limited, b"3", headers=INSIDE, token="wrong"),
    ]

    assert [answer.status for answer in answers] == [202, 202, 401]


def test_wrong_signature_from_inside_is_diagnosed(world):
    limited = world.webhook(
        auth_mode=AuthMode.SIGNATURE, signature_scheme="github", secret="agreed-secret", allowed_networks=[ALLOWED]
    )

    answer = world.post(limited, b"{}", headers=INSIDE)

    assert answer.status == 401
    assert "x-hub-signature-256" in str(world.log(limited)[0].reason)


@shows("AUTH-6")
@EVERY_MODE
def test_refused_clients_use_up_the_limit_of_failed_authentications_only(world, choices):
    limited = world.webhook(allowed_networks=[ALLOWED], **choices)

    answers = [world.post(limited, headers=OUTSIDE).status for _ in range(62)]

    assert answers == [401] * 60 + [429] * 2
    assert world.dropped_attempts(limited) == {"failed_authentications": 2}
    if choices["auth_mode"] is not AuthMode.SIGNATURE:
        assert world.post(limited, headers=INSIDE).status == 202


def test_disabled_webhook_answers_404_whatever_the_address(world):
    limited = world.webhook(allowed_networks=[ALLOWED], enabled=False)

    assert [world.post(limited, headers=headers).status for headers in (INSIDE, OUTSIDE)] == [404, 404]


@shows("AUTH-7")
def test_change_of_the_networks_takes_effect_in_every_process(world):
    other = world.another_process()
    webhook = world.webhook()
    assert {each.post(webhook, headers=OUTSIDE).status for each in (world, other)} == {202}

    world.management.webhooks.change(world.may, "source", {"allowed_networks": [ALLOWED]})
    limited = [each.post(webhook, headers=headers).status for each in (world, other) for headers in (INSIDE, OUTSIDE)]
    other.management.webhooks.change(world.may, "source", {"allowed_networks": []})
    opened = [each.post(webhook, headers=OUTSIDE).status for each in (world, other)]

    assert limited == [202, 401, 202, 401]
    assert opened == [202, 202]


def test_networks_that_change_while_a_body_arrives_apply_to_it(world):
    webhook = world.webhook(auth_mode=AuthMode.SIGNATURE, signature_scheme="github", secret="agreed-secret")
    world.post(webhook)
    world.clock.advance(seconds=1)

    def body():
        yield b"{"
        world.management.webhooks.change(world.may, "source", {"allowed_networks": [ALLOWED]})
        yield b"}"

    assert world.post(webhook, body(), headers=OUTSIDE).status == 401
    # The reason is the network, not the missing signature.
    assert world.log(webhook)[0].reason == REASON


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("X-Forwarded-For", "198.51.100.4, 203.0.113.9")], 401),
        # A proxy that adds a second header must not make the client's forged one count.
        ([("X-Forwarded-For", "198.51.100.4"), ("X-Forwarded-For", "203.0.113.9")], 401),
        ([("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-For", "198.51.100.4")], 202),
        ([("X-Forwarded-For", "198.51.100.4"), ("X-Real-IP", "203.0.113.9")], 202),
        ([], 401),
    ],
)
def test_forged_address_does_not_pass(world, headers, status):
    limited = world.webhook(allowed_networks=[ALLOWED])

    assert world.post(limited, headers=headers).status == status


def recording_body(parts_read: list[bytes]) -> Iterator[bytes]:
    parts_read.append(b"{}")
    yield b"{}"
