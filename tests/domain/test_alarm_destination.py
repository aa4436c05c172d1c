"""Destinations are checked when they are created, and shown without their secrets."""

import pytest

from hookmill.domain.alarm import AlarmKind
from hookmill.domain.alarm_destination import (
    DestinationKind,
    EmailTarget,
    SlackTarget,
    WebhookTarget,
    parsed_url,
    shown_target,
    target_from_json,
    target_to_json,
    usable_alarm_kinds,
    usable_email,
    usable_url,
)
from hookmill.domain.errors import Invalid
from hookmill.domain.secret import SecretValue

URL = "https://hooks.example.com/T0/secret?token=secret"


@pytest.mark.parametrize(
    ("url", "origin", "host_header", "target"),
    [
        (URL, "https://hooks.example.com", "hooks.example.com", "/T0/secret?token=secret"),
        ("HTTPS://Hooks.Example.com", "https://hooks.example.com", "hooks.example.com", "/"),
        ("https://hooks.example.com.:8443?a=b", "https://hooks.example.com:8443", "hooks.example.com:8443", "/?a=b"),
        ("https://h:443/x", "https://h", "h", "/x"),
        ("https://[2A00::1]/x", "https://[2a00::1]", "[2a00::1]", "/x"),
        ("https://[2a00::1]:8443/x", "https://[2a00::1]:8443", "[2a00::1]:8443", "/x"),
        ("https://1.1.1.1/x", "https://1.1.1.1", "1.1.1.1", "/x"),
    ],
)
def test_url_is_divided_into_its_parts(url, origin, host_header, target):
    parts = parsed_url(usable_url(f" {url}\n", allows_http=False))

    assert (parts.origin, parts.host_header, parts.target) == (origin, host_header, target)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "secret",
        "http://hooks.example.com/secret",
        "ftp://hooks.example.com/secret",
        "file:///secret",
        "https:///secret",
        "https://:443/secret",
        "https://user:secret@hooks.example.com/",
        "https://hooks.example.com@127.0.0.1/secret",
        "https://hooks.example.com\\@127.0.0.1/secret",
        "https://hooks.example.com:0/secret",
        "https://hooks.example.com:65536/secret",
        "https://hooks.example.com:secret/",
        "https://hooks.example.com/secret#fragment",
        "https://hooks.example.com/secret\r\nX-Injected: 1",
        "https://hooks.example.com/secret HTTP/1.1",
        "https://hooks.example.com/secret\x00",
        "https://hooks.example.com/sécret-secret",
        "https://[::1%25eth0]/secret",
        "https://[::1/secret",
        f"https://hooks.example.com/secret{'x' * 2_000}",
    ],
)
def test_unusable_url_is_refused_without_showing_it(url):
    with pytest.raises(Invalid, match="The destination's URL must") as refusal:
        usable_url(url, allows_http=False)

    assert "secret" not in str(refusal.value)


def test_http_url_is_allowed_only_with_the_setting():
    assert usable_url("http://h/x", allows_http=True) == SecretValue("http://h/x")


@pytest.mark.parametrize(
    "address",
    ["ops@example.com", "a.b+c'd@x-y.example", "o@localhost", "o@mail_dev", "a..b.@example.jp", "öps@example.com"],
)
def test_email_address_is_accepted(address):
    assert usable_email(f" {address} ") == address


def test_host_in_another_script_gets_its_ascii_form():
    assert usable_email("ops@exämple.com") == "ops@xn--exmple-cua.com"
    assert parsed_url(SecretValue("https://exämple.com:8443/path")).origin == "https://xn--exmple-cua.com:8443"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ops",
        "ops@",
        "@example.com",
        "ops@example.com, other@example.com",
        "ops@example.com\r\nBcc: other@example.com",
        "ops@example.com\n",
        "Ops <ops@example.com>",
        '"ops"@example.com',
        "ops@exa mple.com",
        "o\u200dps@example.com",
        "ops@exam\u2028ple.com",
        "ops@[127.0.0.1]",
        f"ops@{'x' * 254}.com",
    ],
)
def test_other_text_is_no_email_address(address):
    # White space at the ends is trimmed, so only this text would be an address.
    if address.strip() == "ops@example.com":
        address = "ops@example.com\n.example"
    with pytest.raises(Invalid, match="is not an e-mail address"):
        usable_email(address)


@pytest.mark.parametrize(
    ("kind", "target", "shown"),
    [
        (DestinationKind.EMAIL, EmailTarget("ops@example.com"), "ops@example.com"),
        (DestinationKind.SLACK, SlackTarget(SecretValue(URL)), "https://hooks.example.com/…"),
        (
            DestinationKind.WEBHOOK,
            WebhookTarget(SecretValue("https://h:8443"), SecretValue("whsec_secret")),
            "https://h:8443",
        ),
    ],
)
def test_target_is_stored_whole_and_shown_without_secrets(kind, target, shown):
    assert shown_target(target) == shown
    assert target_from_json(kind, target_to_json(target)) == target
    assert "hooks" not in repr(target)
    assert "whsec" not in repr(target)


def test_alarm_kinds_are_sorted_and_unknown_ones_refused():
    assert usable_alarm_kinds(["disk_low", "webhook_quiet", "disk_low"]) == (
        AlarmKind.WEBHOOK_QUIET,
        AlarmKind.DISK_LOW,
    )
    with pytest.raises(Invalid, match=r"There is no alarm kind 'nothing'\. Kinds are: webhook_quiet, "):
        usable_alarm_kinds(["nothing"])
