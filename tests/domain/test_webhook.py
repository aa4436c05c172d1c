"""A webhook's path, its name, and the headers that it reads the event's id and type from."""

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.domain.name import usable_name
from hookmill.domain.spec import read
from hookmill.domain.webhook import (
    AuthMode,
    Webhook,
    WebhookSpec,
    WebhookState,
    usable_delivery_id_header,
    usable_event_header,
)


@pytest.mark.parametrize(
    ("mode", "path"),
    [
        (AuthMode.TOKEN, "/webhooks/w/wh_1"),
        (AuthMode.SIGNATURE, "/webhooks/w/wh_1"),
        (AuthMode.URL_TOKEN, "/webhooks/w/wh_1/{token}"),
    ],
)
def test_ingress_path_contains_a_placeholder_for_the_url_token(mode, path):
    assert make_webhook(mode).ingress_path() == path


@pytest.mark.parametrize("name", ["a", "Build status", "x" * 100, "日本", "a/b <c> 'd'", "\N{PARTY POPPER}"])
def test_name_of_up_to_100_printable_characters_is_accepted(name):
    assert usable_name("webhook", name) == name


def test_white_space_around_a_name_is_removed():
    assert usable_name("webhook", "  source\t") == "source"


@pytest.mark.parametrize(
    "name",
    ["", "   ", "x" * 101, "a\nb", "a\x00b", "a\x1b[31m", "a\x7fb", "a\x85b", "a\u2028b", "a\ud83db"],
)
def test_empty_long_or_unprintable_name_is_refused(name):
    with pytest.raises(Invalid, match="A webhook's name must have 1 to 100 characters"):
        usable_name("webhook", name)


def test_error_message_escapes_and_truncates_the_refused_name():
    with pytest.raises(Invalid) as refused:
        usable_name("webhook", "\x1b]0;\n" + "x" * 1_000)

    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", ["X-Event-Id", "x-github-delivery", "Idempotency-Key", "a", "X_1.2~!"])
def test_header_can_contain_the_id_or_type_of_an_event(name):
    assert (usable_delivery_id_header(name), usable_event_header(name)) == (name, name)


@pytest.mark.parametrize("name", ["", "X Event", "X:Y", "X-É", "X\r\nY", "X\n", "x" * 101, '"X"', "(x)"])
def test_text_that_is_not_a_header_name_is_refused(name):
    for usable in (usable_delivery_id_header, usable_event_header):
        with pytest.raises(Invalid, match="is not a header name"):
            usable(name)


@pytest.mark.parametrize(
    "name", ["Authorization", "authorization", "Proxy-Authorization", "Cookie", "COOKIE", "Set-Cookie"]
)
def test_header_that_carries_credentials_is_refused(name):
    for usable in (usable_delivery_id_header, usable_event_header):
        with pytest.raises(Invalid, match="carries credentials"):
            usable(name)


@pytest.mark.parametrize(
    "name",
    [
        "Connection",
        "Keep-Alive",
        "Proxy-Authenticate",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Length",
        "Host",
    ],
)
def test_header_that_belongs_to_the_connection_is_refused(name):
    for usable in (usable_delivery_id_header, usable_event_header):
        with pytest.raises(Invalid, match="belongs to the connection"):
            usable(name)


def faults_of(source: dict[str, object]) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as refused:
        read(WebhookSpec, {"name": "source", **source})
    return [(fault.pointer, fault.message) for fault in refused.value.faults]


GITHUB = {"auth_mode": "signature", "signature_scheme": "github"}
HMAC = {"auth_mode": "signature", "signature_scheme": "hmac"}


@pytest.mark.parametrize(
    ("source", "pointer", "message"),
    [
        ({"name": 7}, "/name", "name must be text of 1 to 100 characters."),
        ({"name": "a\nb"}, "/name", "A webhook's name must have 1 to 100 characters"),
        ({"auth_mode": "basic"}, "/auth_mode", "auth_mode must be token, url_token or signature."),
        ({"eventHeader": "X"}, "/eventHeader", "Unknown field 'eventHeader'. Did you mean event_header?"),
        ({"secret_name": "a-b"}, "/secret_name", "This can't name a team secret."),
        ({"delivery_id_header": "Host"}, "/delivery_id_header", "Host belongs to the connection"),
        ({"event_header": 5}, "/event_header", "event_header must be the name of a header."),
        ({"allowed_networks": "10.0.0.0/8"}, "/allowed_networks", "allowed_networks must be a list of networks"),
        ({"allowed_networks": ["::1", "x"]}, "/allowed_networks/1", "'x' is not a network."),
        ({"allowed_networks": ["10.0.0.1"] * 65}, "/allowed_networks", "There are 65 networks, and a webhook can have"),
        ({"expect_every": "31d"}, "/expect_every", "'31d' is not between 5m and 30d"),
        ({"signature_scheme": "github"}, "/signature_scheme", "A signature scheme can only be used with auth mode"),
        ({"signature_options": {}}, "/signature_options", "Signature options can only be used with auth mode"),
        ({"answers_handshakes": True}, "/answers_handshakes", "Answering handshakes can only be used with auth mode"),
        ({"auth_mode": "signature"}, "/signature_scheme", "Auth mode signature needs a signature scheme. Allowed are:"),
        (
            GITHUB | {"signature_scheme": "gihub"},
            "/signature_scheme",
            "'gihub' is not a signature scheme.",
        ),
        (GITHUB | {"signature_options": {}}, "/signature_options", "Only the scheme hmac has signature options"),
        (GITHUB | {"answers_handshakes": True}, "/answers_handshakes", "GitHub sends no signed challenges."),
        (GITHUB | {"event_header": "X-Kind"}, "/event_header", "The event type of github is read from the header"),
        (
            GITHUB | {"delivery_id_header": "X-Hub-Signature-256"},
            "/delivery_id_header",
            "X-Hub-Signature",
        ),
        (HMAC, "/signature_options", "The options of the scheme hmac can't be read: Object missing"),
        (HMAC | {"signature_options": {"header": 5}}, "/signature_options/header", "The options of the scheme hmac"),
        (HMAC | {"signature_options": {"header": "X", "content": "x"}}, "/signature_options/content", "content of the"),
    ],
)
def test_fault_of_a_spec_has_its_pointer(source, pointer, message):
    [(found, text)] = faults_of(source)

    assert found == pointer
    assert text.startswith(message)


def test_all_faults_of_fields_are_reported_together():
    source = {"secret_name": "9", "event_header": "Cookie", "allowed_networks": ["x", "y"], "enabled": 1}

    assert [pointer for pointer, _ in faults_of(source)] == [
        "/secret_name",
        "/event_header",
        "/allowed_networks/0",
        "/allowed_networks/1",
        "/enabled",
    ]


def test_fields_get_their_normal_form():
    spec = read(WebhookSpec, {"name": " a ", "allowed_networks": ["::1/128", "10.0.0.1"], "expect_every": "24h"})

    assert (spec.name, spec.allowed_networks, spec.expect_every) == ("a", ("10.0.0.1", "::1"), "1d")


def make_webhook(mode: AuthMode) -> Webhook:
    return Webhook(
        uid=WebhookUid("wh_1"),
        no=1,
        factory_id=FactoryId("fac_1"),
        name="source",
        auth_mode=mode,
        state=WebhookState.ENABLED,
        secret_name="WEBHOOK_SOURCE_SECRET",
        revision=1,
        created_at=0,
    )
