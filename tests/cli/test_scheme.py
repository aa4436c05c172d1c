"""`hookmill scheme`, and webhooks whose senders sign."""

import hashlib
import hmac
import time
from typing import Any

import pytest

from tests.cli.conftest import Hookmill, LogWriter, Receiver

SECRET = "a secret of GitHub's"


def test_the_schemes_are_listed_without_any_installation(hookmill: Hookmill):
    listed = hookmill("scheme", "list").out
    names = [scheme["name"] for scheme in hookmill("scheme", "list", "--json").json["schemes"]]

    assert len(names) >= 85
    assert all(name in listed for name in names)


def test_a_scheme_says_how_to_set_it_up_and_what_it_covers(hookmill: Hookmill):
    printed = hookmill("scheme", "show", "stripe").out

    assert "Stripe" in printed
    assert "body, time, event id" in printed
    assert "1. " in printed
    assert hookmill("scheme", "show", "stripe", "--json").json["covers_time"] is True


def test_a_scheme_says_where_the_events_type_is_and_whether_it_is_signed(hookmill: Hookmill):
    hub, payments = hookmill("scheme", "show", "github").out, hookmill("scheme", "show", "stripe").out
    alias = hookmill("scheme", "show", "gitlab", "--json").json

    assert "- Event type: header `x-github-event`, not signed: only the sender's claim.\n" in hub
    assert "- Event type: field `type` of the body, signed.\n" in payments
    assert (alias["event"], alias["covers_event"]) == ("header:x-gitlab-event", False)


def test_an_alias_without_an_event_type_shows_none(hookmill: Hookmill):
    printed = hookmill("scheme", "show", "replicate").out
    alias = hookmill("scheme", "show", "replicate", "--json").json

    assert "Event type" not in printed
    assert (alias["event"], alias["covers_event"]) == (None, False)
    assert alias["alias_events"]["replicate"] is None


def test_a_scheme_that_nothing_independent_confirmed_says_so(hookmill: Hookmill):
    doubtful = [one["name"] for one in hookmill("scheme", "list", "--json").json["schemes"] if one["experimental"]]

    assert "(experimental)" in hookmill("scheme", "show", doubtful[0]).out


def test_the_scheme_to_fill_in_shows_its_fields(hookmill: Hookmill):
    assert "timestamp_header" in hookmill("scheme", "show", "hmac").out
    assert "content" in hookmill("scheme", "show", "hmac", "--json").json["options"]


def test_an_unknown_scheme_is_refused_with_the_nearest(hookmill: Hookmill):
    printed = hookmill("scheme", "show", "githup", exit_code=1).err

    assert printed.startswith("'githup' is not a signature scheme. Did you mean github? Allowed are: ")


def test_a_scheme_whose_secret_is_pasted_says_with_which_command(hookmill: Hookmill):
    assert hookmill("scheme", "show", "github").out.endswith("webhook rotate NAME --secret-from-stdin\n")


def test_a_webhook_that_waits_for_its_providers_secret_says_what_to_do(log: LogWriter, hookmill: Hookmill):
    printed = hookmill("webhook", "create", "source", "--mode", "signature", "--scheme", "github").out
    shown = hookmill("webhook", "show", "source").out

    assert "disabled until it has the provider's secret" in printed
    assert "webhook rotate" in printed
    assert "waiting for the provider's secret" in shown
    assert "has no secret yet" in hookmill("webhook", "enable", "source", exit_code=1).err

    hookmill("webhook", "rotate", "source", "--secret-from-stdin", stdin=SECRET.encode())
    assert hookmill("webhook", "enable", "source", "--json").json["enabled"] is True


def test_a_webhook_that_waits_is_null_where_the_secret_would_be(log: LogWriter, hookmill: Hookmill):
    made = hookmill("webhook", "create", "source", "--mode", "signature", "--scheme", "github", "--json").json

    assert (made["secret"], made["has_secret"], made["state"]) == (None, False, "disabled")


@pytest.fixture
def signed(log: LogWriter, hookmill: Hookmill) -> Any:
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


def test_a_sample_is_signed_as_the_webhooks_provider_does(signed: Any, hookmill: Hookmill, receiver: Receiver):
    hookmill("send", "source", "--data", '{"a": 1}', "--id", "event-1", "--url", receiver.url)

    ((path, headers, body),) = receiver.requests
    assert (path, body) == (f"/webhooks/w/{signed['uid']}", b'{"a": 1}')
    assert headers["x-hub-signature-256"] == "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["x-github-delivery"] == "event-1"


def test_a_sample_can_be_signed_at_another_time_and_as_another_provider(
    signed: Any,
    hookmill: Hookmill,
    receiver: Receiver,
):
    hookmill("send", "source", "--scheme", "stripe", "--clock-skew", "-86400", "--url", receiver.url)

    ((_, headers, body),) = receiver.requests
    at = headers["stripe-signature"].removeprefix("t=").partition(",")[0]
    wanted = hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["stripe-signature"] == f"t={at},v1={wanted}"
    assert 86_300 < time.time() - int(at) < 86_500


def test_a_private_key_is_needed_where_the_webhook_has_the_public_one(log: LogWriter, hookmill: Hookmill):
    create = ("webhook", "create", "source", "--mode", "signature", "--scheme", "discord", "--secret-from-stdin")
    hookmill(*create, stdin=b"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")

    assert "--signing-key" in hookmill("send", "source", exit_code=1).err


def test_a_signature_is_nothing_for_a_webhook_with_a_token(webhook: Any, hookmill: Hookmill):
    assert "does not verify signatures" in hookmill("send", "source", "--scheme", "github", exit_code=1).err


def test_a_description_of_a_sender_is_read_as_json(log: LogWriter, hookmill: Hookmill):
    create = ("webhook", "create", "source", "--mode", "signature", "--scheme", "hmac", "--secret-from-stdin")

    made = hookmill(*create, "--signature", '{"header": "X-Signature"}', "--json", stdin=b"s").json
    assert made["signature_options"] == {"header": "X-Signature"}
    assert "is not JSON" in hookmill(*create, "--signature", "{", stdin=b"s", exit_code=1).err
    assert "header" in hookmill(*create, "--signature", "{}", stdin=b"s", exit_code=1).err
    assert "JSON object" in hookmill(*create, "--signature", "[1]", stdin=b"s", exit_code=1).err
