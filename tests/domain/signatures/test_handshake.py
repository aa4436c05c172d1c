"""Challenges that providers sign, and the answers that they wait for."""

import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.handshake import handshake_reply
from tests.support.for_each import for_each

from .examples import NAMES, example


def asked(name, body, **headers):
    given = example(name)
    extra = {header.replace("_", "-").encode(): value.encode() for header, value in headers.items()}
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = replace(given.request, body=text, headers={**given.request.headers, **extra})
    return handshake_reply(given.scheme, [given.key], request)


def test_slack_hears_its_challenge():
    reply = asked("slack", {"type": "url_verification", "challenge": "3eZbrw1aBm2r"})

    assert (reply.status, reply.content_type, reply.body) == (200, "text/plain; charset=utf-8", b"3eZbrw1aBm2r")


def test_zoom_hears_its_token_and_the_hmac_of_it():
    reply = asked("zoom", {"event": "endpoint.url_validation", "payload": {"plainToken": "qgg8vlvZRS6UYooatFL8Aw"}})
    expected = hmac.new(example("zoom").secret.encode(), b"qgg8vlvZRS6UYooatFL8Aw", hashlib.sha256).hexdigest()

    assert (reply.status, reply.content_type) == (200, "application/json")
    assert json.loads(reply.body) == {"plainToken": "qgg8vlvZRS6UYooatFL8Aw", "encryptedToken": expected}


def test_discord_hears_a_pong():
    reply = asked("discord", {"type": 1})

    assert (reply.status, json.loads(reply.body)) == (200, {"type": 1})


def test_a_webhook_event_of_discord_is_no_challenge():
    event = {"type": "ENTITLEMENT_CREATE", "timestamp": "2026-11-21T09:12:36.000000", "data": {}}

    assert asked("discord", {"version": 1, "application_id": "1", "type": 1, "event": event}) is None


def test_twitch_hears_its_challenge():
    reply = asked("twitch", {"challenge": "pogchamp"}, twitch_eventsub_message_type="webhook_callback_verification")

    assert (reply.status, reply.body) == (200, b"pogchamp")


@pytest.mark.parametrize("name", ["line", "xero"])
def test_line_and_xero_hear_200_for_a_test_without_events(name):
    reply = asked(name, {"events": [], "entropy": "S0m3"})

    assert (reply.status, reply.body) == (200, b"")


@for_each("name", NAMES)
def test_an_event_is_no_challenge(name):
    given = example(name)

    assert handshake_reply(given.scheme, [given.key], given.request) is None


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("slack", {"type": "url_verification"}),
        ("slack", {"type": "url_verification", "challenge": None}),
        ("slack", {"type": "url_verification", "challenge": {"a": 1}}),
        ("slack", {"type": "url_verification", "challenge": "x" * 9000}),
        ("slack", b"type=url_verification"),
        ("slack", b"[" * 600),
        ("zoom", {"event": "endpoint.url_validation"}),
        ("discord", {"type": True}),
        ("discord", {"type": "1"}),
        ("discord", b'{"type":1.0}'),
        ("line", {"events": [{}]}),
        ("line", {"events": {}}),
    ],
)
def test_a_challenge_that_is_incomplete_is_none(name, body):
    assert asked(name, body) is None


def test_without_a_key_nothing_is_answered():
    given = example("discord")

    assert handshake_reply(given.scheme, [], replace(given.request, body=b'{"type":1}')) is None


def test_the_challenges_that_the_data_knows():
    known = [scheme.name for scheme in catalogue.schemes() if scheme.handshake]

    assert known == ["discord", "line", "slack", "twitch", "xero", "zoom"]
