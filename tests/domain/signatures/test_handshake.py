"""Challenges of providers, and the replies that they expect."""

import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.handshake import handshake_reply
from tests.support.for_each import for_each

from .vector import NAMES, vector_of


def reply_to(name, body, **headers):
    provider = vector_of(name)
    further_headers = {header.replace("_", "-").encode(): value.encode() for header, value in headers.items()}
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = replace(provider.request, body=text, headers={**provider.request.headers, **further_headers})
    return handshake_reply(provider.scheme, [provider.key], request)


def test_reply_to_slack_is_the_challenge():
    reply = reply_to("slack", {"type": "url_verification", "challenge": "3eZbrw1aBm2r"})

    assert (reply.status, reply.content_type, reply.body) == (200, "text/plain; charset=utf-8", b"3eZbrw1aBm2r")


def test_reply_to_zoom_contains_the_token_and_its_hmac():
    reply = reply_to("zoom", {"event": "endpoint.url_validation", "payload": {"plainToken": "qgg8vlvZRS6UYooatFL8Aw"}})
    expected = hmac.new(vector_of("zoom").secret.encode(), b"qgg8vlvZRS6UYooatFL8Aw", hashlib.sha256).hexdigest()

    assert (reply.status, reply.content_type) == (200, "application/json")
    assert json.loads(reply.body) == {"plainToken": "qgg8vlvZRS6UYooatFL8Aw", "encryptedToken": expected}


def test_reply_to_discord_is_a_pong():
    reply = reply_to("discord", {"type": 1})

    assert (reply.status, json.loads(reply.body)) == (200, {"type": 1})


def test_discord_webhook_event_is_not_a_challenge():
    event = {"type": "ENTITLEMENT_CREATE", "timestamp": "2026-11-21T09:12:36.000000", "data": {}}

    assert reply_to("discord", {"version": 1, "application_id": "1", "type": 1, "event": event}) is None


def test_reply_to_twitch_is_the_challenge():
    reply = reply_to("twitch", {"challenge": "pogchamp"}, twitch_eventsub_message_type="webhook_callback_verification")

    assert (reply.status, reply.body) == (200, b"pogchamp")


@pytest.mark.parametrize("name", ["line", "xero"])
def test_reply_to_line_and_xero_without_events_is_empty(name):
    reply = reply_to(name, {"events": [], "entropy": "S0m3"})

    assert (reply.status, reply.body) == (200, b"")


@for_each("name", NAMES)
def test_event_is_not_a_challenge(name):
    event = vector_of(name)

    assert handshake_reply(event.scheme, [event.key], event.request) is None


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
def test_invalid_challenge_gets_no_reply(name, body):
    assert reply_to(name, body) is None


def test_challenge_gets_no_reply_without_a_key():
    discord = vector_of("discord")

    assert handshake_reply(discord.scheme, [], replace(discord.request, body=b'{"type":1}')) is None


def test_six_schemes_have_challenges():
    names = [scheme.name for scheme in catalogue.schemes() if scheme.handshake]

    assert names == ["discord", "line", "slack", "twitch", "xero", "zoom"]
