"""A webhook's path, its name, and the headers that it reads the event's id and type from."""

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.domain.name import usable_name
from hookmill.domain.webhook import (
    AuthMode,
    Webhook,
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
