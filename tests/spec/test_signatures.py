"""Signature verification: which signatures are accepted, for how long, and what depends on the signed request.

The tests compute every signature as the provider's documentation says, without the service's code.
"""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from hookmill.domain.delivery import IdentityKind
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.signatures.rule import allowed_names
from hookmill.domain.webhook import AuthMode, WebhookState
from hookmill.management import WebhookWithSecret
from tests.spec import shows
from tests.support.sqlite_usually import store_url
from tests.support.world import Answer, World

__all__ = ["store_url"]

GITHUB_SECRET = "It's a Secret to Everybody"
STRIPE_SECRET = "whsec_a literal text"
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
BODY = b'{"action": "opened", "number": 7}'


def signed(world: World, scheme: str, name: str = "source", **choices: Any) -> WebhookWithSecret:
    return world.webhook(name, auth_mode=AuthMode.SIGNATURE, signature_scheme=scheme, **choices)


def send(world: World, webhook: WebhookWithSecret, headers: dict[str, str], body: bytes = BODY) -> Answer:
    # Each request is a millisecond later than the last one, so the order of the log is defined.
    world.clock.advance(seconds=0.001)
    return world.request("POST", f"/webhooks/w/{webhook.webhook.uid}", headers=headers, body=body)


def mac(secret: bytes, content: bytes) -> bytes:
    return hmac.new(secret, content, hashlib.sha256).digest()


def github_headers(body: bytes = BODY, *, secret: str = GITHUB_SECRET, event: str = "72d3162e") -> dict[str, str]:
    return {"X-Hub-Signature-256": "sha256=" + mac(secret.encode(), body).hex(), "X-GitHub-Delivery": event}


def standard_webhooks_headers(
    secret: str, at: int, body: bytes = BODY, *, event: str = "msg_1", family: str = "webhook"
) -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(mac(key, f"{event}.{at}.".encode() + body)).decode()
    return {f"{family}-id": event, f"{family}-timestamp": str(at), f"{family}-signature": f"v1,{signature}"}


def stripe_headers(at: int, body: bytes = BODY, secret: str = STRIPE_SECRET) -> dict[str, str]:
    return {"Stripe-Signature": f"t={at},v1={mac(secret.encode(), b'%d.' % at + body).hex()}"}


def slack_headers(at: int, body: bytes) -> dict[str, str]:
    signature = mac(SLACK_SECRET.encode(), b"v0:%d:" % at + body).hex()
    return {"X-Slack-Signature": f"v0={signature}", "X-Slack-Request-Timestamp": str(at)}


def seconds(world: World) -> int:
    return world.clock() // 1_000_000


@shows("SIGNATURE-4", "SECRET-3")
def test_signed_request_is_accepted_and_starts_its_run(world):
    webhook = signed(world, "github", secret=GITHUB_SECRET)
    world.automation("triage", webhook)

    answer = send(world, webhook, github_headers())

    assert answer.status == 202
    assert (world.labels(webhook), len(world.runs(webhook))) == (["Accepted"], 1)


@shows("SIGNATURE-5")
def test_unsigned_request_is_refused_despite_a_bearer_token(world):
    webhook = signed(world, "github", secret=GITHUB_SECRET)

    answer = send(world, webhook, {"Authorization": f"Bearer {GITHUB_SECRET}"})

    assert answer.status == 401
    assert world.labels(webhook) == ["Rejected (auth)"]


@shows("SIGNATURE-4")
def test_signed_body_with_one_more_space_is_refused(world):
    webhook = signed(world, "github", secret=GITHUB_SECRET)

    assert send(world, webhook, github_headers(), BODY + b" ").status == 401


@shows("AUTH-4")
def test_log_contains_the_reason_for_a_401_and_the_answer_does_not(world):
    webhook = signed(world, "github", secret=GITHUB_SECRET)
    refused_headers = [
        {},
        github_headers(secret="another"),
        {"X-Hub-Signature-256": "sha256=zz"},
        {"X-Hub-Signature-256": mac(GITHUB_SECRET.encode(), BODY).hex()},
        github_headers() | {"X-Hub-Signature-256": "ü" * 9000},
    ]

    answers = [send(world, webhook, headers) for headers in refused_headers]

    assert {(answer.status, answer.body) for answer in answers} == {(401, answers[0].body)}
    reasons = [row.reason or "" for row in world.log(webhook)]
    assert len(set(reasons)) >= 4
    assert all(reasons)
    assert not any(GITHUB_SECRET in reason or "opened" in reason for reason in reasons)


def test_signature_is_checked_before_the_json(world):
    webhook = signed(world, "github", secret=GITHUB_SECRET)

    assert send(world, webhook, github_headers(secret="another"), b"{").status == 401
    assert send(world, webhook, github_headers(b""), b"").status == 400
    assert world.labels(webhook) == ["Rejected (invalid JSON)", "Rejected (auth)"]


def test_repeated_signature_header_is_refused_if_its_values_differ(world):
    webhook = signed(world, "github", secret=GITHUB_SECRET)
    right = list(github_headers().items())
    wrong = list(github_headers(secret="another").items())

    def status(headers):
        return world.request("POST", f"/webhooks/w/{webhook.webhook.uid}", headers=headers, body=BODY).status

    assert (status(right + wrong[:1]), status(wrong[:1] + right), status(right + right)) == (401, 401, 202)


@shows("SIGNATURE-6")
@pytest.mark.parametrize(("age", "status"), [(0, 202), (300, 202), (301, 401), (-300, 202), (-301, 401)])
def test_signature_is_valid_for_five_minutes(world, age, status):
    standard = signed(world, "standard_webhooks")
    stripe = signed(world, "stripe", "paid", secret=STRIPE_SECRET)
    at = seconds(world) - age

    assert send(world, standard, standard_webhooks_headers(standard.reveal(), at)).status == status
    assert send(world, stripe, stripe_headers(at)).status == status


@shows("SIGNATURE-3")
@pytest.mark.parametrize("family", ["webhook", "svix"])
def test_standard_webhooks_accepts_webhook_and_svix_headers(world, family):
    webhook = signed(world, "standard_webhooks")

    headers = standard_webhooks_headers(webhook.reveal(), seconds(world), family=family)

    assert send(world, webhook, headers).status == 202


@shows("SECRET-4")
def test_missing_standard_webhooks_secret_is_generated(world):
    webhook = signed(world, "standard_webhooks")

    assert webhook.webhook.state is WebhookState.ENABLED
    assert len(base64.b64decode(webhook.reveal().removeprefix("whsec_"))) == 32
    assert send(world, webhook, standard_webhooks_headers(webhook.reveal(), seconds(world))).status == 202


@shows("SECRET-4")
def test_secret_that_only_the_provider_can_create_is_not_generated(world):
    assert signed(world, "openai").secret is None


@shows("SECRET-4")
def test_webhook_without_the_providers_secret_is_disabled(world):
    webhook = signed(world, "github")
    assert (webhook.webhook.state, webhook.webhook.has_secret, webhook.secret) == (WebhookState.DISABLED, False, None)
    assert webhook.url == f"https://hooks.test/webhooks/w/{webhook.webhook.uid}"
    assert send(world, webhook, github_headers(secret="")).status == 404

    with pytest.raises(Conflict, match="has no secret yet"):
        world.management.webhooks.set_enabled(world.may, "source", True)
    with pytest.raises(Invalid, match="Only the provider can make the secret"):
        world.management.webhooks.rotate(world.may, "source")

    world.management.webhooks.rotate(world.may, "source", GITHUB_SECRET)
    assert send(world, webhook, github_headers()).status == 404
    world.management.webhooks.set_enabled(world.may, "source", True)
    assert send(world, webhook, github_headers()).status == 202


@shows("SIGNATURE-1")
def test_signature_mode_and_signature_scheme_require_each_other(world):
    with pytest.raises(Invalid, match="signature scheme can only be used with auth mode signature"):
        world.webhook(signature_scheme="github")
    with pytest.raises(Invalid, match="Auth mode signature needs a signature scheme") as refused:
        world.webhook(auth_mode=AuthMode.SIGNATURE)
    assert all(name in str(refused.value) for name in allowed_names())


@shows("SIGNATURE-2")
def test_unknown_scheme_is_refused_with_the_allowed_names(world):
    with pytest.raises(Invalid, match="not a signature scheme") as refused:
        signed(world, "github-2")

    assert all(name in str(refused.value) for name in allowed_names())
    assert {"standard_webhooks", "github", "stripe", "sentry", "pagerduty", "vercel", "hmac"} <= set(allowed_names())


def test_malformed_signing_secret_is_refused_at_creation(world):
    with pytest.raises(Invalid, match="Standard Webhooks"):
        signed(world, "standard_webhooks", secret="whsec_not base64!")


@shows("IDENTITY-2", "SIGNATURE-7")
@pytest.mark.parametrize(
    ("scheme", "secret", "headers", "identity"),
    [
        ("github", GITHUB_SECRET, lambda at, body: github_headers(body), "72d3162e"),
        ("stripe", STRIPE_SECRET, stripe_headers, "evt_1"),
    ],
    ids=["in a header", "in the body"],
)
def test_providers_event_id_is_the_identity(world, scheme, secret, headers, identity):
    webhook = signed(world, scheme, secret=secret)
    first, second = (json.dumps({"id": "evt_1", "try": number}).encode() for number in (1, 2))

    answers = [send(world, webhook, headers(seconds(world), body), body) for body in (first, second)]

    assert [answer.status for answer in answers] == [202, 202]
    assert world.labels(webhook) == ["Duplicate", "Accepted"]
    assert [(row.identity_kind, row.identity) for row in world.log(webhook)] == [(IdentityKind.PROVIDER, identity)] * 2


def test_replayed_request_with_a_new_unsigned_id_is_a_duplicate(world):
    webhook = signed(world, "stripe", secret=STRIPE_SECRET, delivery_id_header="X-Event-Id")
    world.automation("triage", webhook)
    headers = stripe_headers(seconds(world))

    statuses = [send(world, webhook, headers | {"X-Event-Id": event}).status for event in ("1", "2", "3")]

    assert statuses == [202, 202, 202]
    assert world.labels(webhook) == ["Duplicate", "Duplicate", "Accepted"]
    original = world.log(webhook)[-1].key
    assert {row.duplicate_of for row in world.log(webhook)[:2]} == {original}
    assert len(world.runs(webhook)) == 1


def test_retry_with_a_new_signature_is_a_duplicate_by_its_id(world):
    webhook = signed(world, "standard_webhooks")
    now = seconds(world)

    for at in (now, now + 5):
        assert send(world, webhook, standard_webhooks_headers(webhook.reveal(), at)).status == 202

    assert world.labels(webhook) == ["Duplicate", "Accepted"]


@shows("AUTH-5")
def test_previous_signing_secret_is_refused_with_a_reason_in_the_log(world):
    webhook = signed(world, "github", secret=GITHUB_SECRET)
    assert send(world, webhook, github_headers()).status == 202

    world.management.webhooks.rotate(world.may, "source", "the next one")

    assert send(world, webhook, github_headers(event="2")).status == 401
    assert "previous" in (world.log(webhook)[0].reason or "")
    assert send(world, webhook, github_headers(secret="the next one", event="3")).status == 202


def test_signed_url_is_verified_against_the_configured_one(world):
    webhook = signed(world, "square", secret="asdf1234")

    def headers(url):
        signature = base64.b64encode(mac(b"asdf1234", url.encode() + BODY)).decode()
        return {"X-Square-HmacSha256-Signature": signature, "Host": "evil.example", "X-Forwarded-Host": "evil.example"}

    assert send(world, webhook, headers(webhook.url)).status == 202
    assert send(world, webhook, headers(webhook.url.replace("hooks.test", "evil.example"))).status == 401


def test_too_large_signed_body_counts_as_a_failed_authentication(world):
    webhook = signed(world, "github", secret=GITHUB_SECRET)
    body = b'"' + b"x" * 262_143 + b'"'

    assert [send(world, webhook, github_headers(body), body).status for _ in range(61)] == [413] * 60 + [429]
    assert {delivery.client for delivery in world.log(webhook)} == {"192.0.2.7"}
    assert send(world, webhook, github_headers()).status == 202


@shows("WEBHOOK-9")
@pytest.mark.parametrize("header", ["Stripe-Signature", "stripe-signature"])
def test_signature_header_cannot_be_the_delivery_id_header(world, header):
    with pytest.raises(Invalid, match="is part of Stripe's signature"):
        signed(world, "stripe", secret=STRIPE_SECRET, delivery_id_header=header)


@shows("SIGNATURE-7")
def test_hmac_scheme_verifies_signatures_as_configured(world):
    options = {
        "header": "X-Signature",
        "prefix": "v1=",
        "content": "{ts}:{body}",
        "timestamp_header": "X-Time",
        "tolerance_seconds": 60,
    }
    webhook = signed(world, "hmac", secret="a secret", signature_options=options)

    def headers(at):
        return {"X-Signature": "v1=" + mac(b"a secret", b"%d:" % at + BODY).hex(), "X-Time": str(at)}

    assert send(world, webhook, headers(seconds(world) - 60)).status == 202
    assert send(world, webhook, headers(seconds(world) - 61)).status == 401


def test_invalid_signature_option_is_named_in_the_refusal(world):
    with pytest.raises(Invalid, match="algorithm of the scheme hmac"):
        signed(world, "hmac", signature_options={"header": "X-Signature", "algorithm": "md5"})
    with pytest.raises(Invalid, match="github has none"):
        signed(world, "github", signature_options={"header": "X-Signature"})


CHALLENGE = b'{"type": "url_verification", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}'


def test_signed_challenge_is_answered_and_logged_and_starts_no_run(world):
    webhook = signed(world, "slack", secret=SLACK_SECRET, answers_handshakes=True)
    world.automation("triage", webhook)

    answers = [
        send(world, webhook, slack_headers(seconds(world) + number, CHALLENGE), CHALLENGE) for number in range(2)
    ]

    assert {(answer.status, answer.body) for answer in answers} == {(200, json.loads(CHALLENGE)["challenge"].encode())}
    assert answers[0].headers["content-type"].startswith("text/plain")
    assert world.labels(webhook) == ["Duplicate", "Accepted"]
    assert world.runs(webhook) == []
    assert send(world, webhook, slack_headers(seconds(world), BODY), BODY).status == 202
    assert len(world.runs(webhook)) == 1


def test_challenge_is_answered_only_if_it_is_signed_and_configured(world):
    not_answering = signed(world, "slack", secret=SLACK_SECRET)
    answering = signed(world, "slack", "answering", secret=SLACK_SECRET, answers_handshakes=True)
    other_signature = slack_headers(seconds(world), BODY)

    assert send(world, not_answering, slack_headers(seconds(world), CHALLENGE), CHALLENGE).status == 202
    assert send(world, answering, other_signature, CHALLENGE).status == 401


def test_answering_challenges_requires_a_provider_that_signs_them(world):
    with pytest.raises(Invalid, match="sends no signed challenge"):
        signed(world, "github", answers_handshakes=True)
    with pytest.raises(Invalid, match="can only be used with auth mode signature"):
        world.webhook(answers_handshakes=True)
