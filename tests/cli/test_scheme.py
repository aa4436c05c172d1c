"""`hookmill scheme`, and webhooks with the mode `signature`."""

import hashlib
import hmac
import time

import pytest

from tests.cli.terminal import terminal_output

SECRET = "a secret from GitHub"


def test_schemes_are_listed_without_an_installation(hookmill):
    output = hookmill("scheme", "list").out
    names = [scheme["name"] for scheme in hookmill("scheme", "list", "--json").json["items"]]

    assert len(names) >= 85
    assert all(name in output for name in names)


def test_no_color_leaves_no_styles_on_a_terminal(hookmill):
    assert "\x1b[1m" in terminal_output("scheme", "list")
    assert "\x1b" not in terminal_output("scheme", "list", variables={"NO_COLOR": "1"})


def test_show_has_the_setup_and_the_signed_parts(hookmill):
    output = hookmill("scheme", "show", "stripe").out

    assert "Stripe" in output
    assert "body, time, event id" in output
    assert "1. " in output
    assert hookmill("scheme", "show", "stripe", "--json").json["covers_time"] is True


def test_show_says_where_the_event_type_is_and_whether_it_is_signed(hookmill):
    github, stripe = hookmill("scheme", "show", "github").out, hookmill("scheme", "show", "stripe").out
    gitlab = hookmill("scheme", "show", "gitlab", "--json").json

    assert "- Event type: header `x-github-event`, not signed: only the sender's claim.\n" in github
    assert "- Event type: field `type` of the body, signed.\n" in stripe
    assert (gitlab["event"], gitlab["covers_event"]) == ("header:x-gitlab-event", False)


def test_alias_without_an_event_type_shows_none(hookmill):
    output = hookmill("scheme", "show", "replicate").out
    alias = hookmill("scheme", "show", "replicate", "--json").json

    assert "Event type" not in output
    assert (alias["event"], alias["covers_event"]) == (None, False)
    assert alias["alias_events"]["replicate"] is None


def test_unconfirmed_scheme_is_shown_as_experimental(hookmill):
    experimental = [
        scheme["name"] for scheme in hookmill("scheme", "list", "--json").json["items"] if scheme["experimental"]
    ]

    assert "(experimental)" in hookmill("scheme", "show", experimental[0]).out


def test_generic_scheme_shows_its_options(hookmill):
    assert "timestamp_header" in hookmill("scheme", "show", "hmac").out
    assert "content" in hookmill("scheme", "show", "hmac", "--json").json["options"]


def test_show_names_the_command_that_stores_the_secret_of_the_provider(hookmill):
    assert hookmill("scheme", "show", "github").out.endswith("webhook rotate NAME --secret-from-stdin\n")


def test_webhook_without_the_secret_of_the_provider_says_what_to_do(log, hookmill):
    output = hookmill("webhook", "create", "source", "--mode", "signature", "--scheme", "github").out
    shown = hookmill("webhook", "show", "source").out

    assert "disabled until it has the provider's secret" in output
    assert "webhook rotate" in output
    assert "waiting for the provider's secret" in shown
    assert "has no secret yet" in hookmill("webhook", "enable", "source", exit_code=1).err

    hookmill("webhook", "rotate", "source", "--secret-from-stdin", stdin=SECRET.encode())
    assert hookmill("webhook", "enable", "source", "--json").json["enabled"] is True


def test_webhook_without_a_secret_has_null_as_its_secret_in_json(log, hookmill):
    webhook = hookmill("webhook", "create", "source", "--mode", "signature", "--scheme", "github", "--json").json

    assert (webhook["secret"], webhook["has_secret"], webhook["state"]) == (None, False, "disabled")


@pytest.fixture
def github_webhook(log, hookmill):
    """The JSON that the creation of the webhook `source` printed. Deliveries to it are signed by GitHub's scheme."""
    create = (
        "webhook",
        "create",
        "source",
        "--mode",
        "signature",
        "--scheme",
        "github",
        "--secret-from-stdin",
        "--json",
    )
    return hookmill(*create, stdin=SECRET.encode()).json


def test_sample_is_signed_by_the_scheme_of_the_webhook(github_webhook, hookmill, receiver):
    hookmill("send", "source", "--data", '{"a": 1}', "--id", "event-1", "--url", receiver.url)

    ((path, headers, body),) = receiver.requests
    assert (path, body) == (f"/webhooks/w/{github_webhook['uid']}", b'{"a": 1}')
    assert headers["x-hub-signature-256"] == "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["x-github-delivery"] == "event-1"


def test_sample_is_signed_by_another_scheme_with_another_time(github_webhook, hookmill, receiver):
    hookmill("send", "source", "--scheme", "stripe", "--clock-skew", "-86400", "--url", receiver.url)

    ((_, headers, body),) = receiver.requests
    timestamp = headers["stripe-signature"].removeprefix("t=").partition(",")[0]
    signature = hmac.new(SECRET.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["stripe-signature"] == f"t={timestamp},v1={signature}"
    assert 86_300 < time.time() - int(timestamp) < 86_500


def test_send_requires_the_private_key_if_the_webhook_has_the_public_key(log, hookmill):
    create = ("webhook", "create", "source", "--mode", "signature", "--scheme", "discord", "--secret-from-stdin")
    hookmill(*create, stdin=b"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")

    assert "--signing-key" in hookmill("send", "source", exit_code=1).err


def test_scheme_option_is_refused_for_a_webhook_with_a_token(webhook, hookmill):
    assert "does not verify signatures" in hookmill("send", "source", "--scheme", "github", exit_code=1).err


def test_signature_options_are_parsed_as_json(log, hookmill):
    create = ("webhook", "create", "source", "--mode", "signature", "--scheme", "hmac", "--secret-from-stdin")

    webhook = hookmill(*create, "--signature", '{"header": "X-Signature"}', "--json", stdin=b"at least 8").json
    assert webhook["signature_options"] == {"header": "X-Signature"}
    assert "is not JSON" in hookmill(*create, "--signature", "{", stdin=b"at least 8", exit_code=1).err
    assert "header" in hookmill(*create, "--signature", "{}", stdin=b"at least 8", exit_code=1).err
    assert "must be an object" in hookmill(*create, "--signature", "[1]", stdin=b"at least 8", exit_code=1).err
