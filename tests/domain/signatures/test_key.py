"""How the secret that a user enters is decoded to a key, and which secrets are refused."""

import base64

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.key import Key, make_secret, prepare_key, service_makes_secrets
from hookmill.domain.signatures.verify import Verified, verify
from tests.support.example_keys import example_pair
from tests.support.for_each import for_each

from .vector import NAMES, vector_of

RAW = bytes(range(248, 256)) * 4


def key_of(name, text):
    return prepare_key(catalogue.find(name), text)


@pytest.mark.parametrize("prefix", ["", "whsec_", "v1,whsec_"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("padding", [b"=", b""])
def test_standard_webhooks_secret_is_accepted_in_every_base64_format(prefix, encode, padding):
    text = prefix + encode(RAW).rstrip(b"=").decode() + padding.decode()

    assert key_of("standard_webhooks", text).secret_bytes == RAW


def test_stripe_secret_is_not_decoded():
    assert key_of("stripe", "whsec_abc").secret_bytes == b"whsec_abc"


def test_text_secret_that_looks_like_base64_is_not_decoded():
    text = "dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ=="

    for name in ("zendesk", "pagerduty", "docusign", "github", "polar"):
        assert key_of(name, text).secret_bytes == text.encode()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("standard_webhooks", "whsec_not base64!", "not base64 after whsec_"),
        ("standard_webhooks", "whsec_", "not base64"),
        ("standard_webhooks", "whsec_QUJDR", "not base64"),
        ("standard_webhooks", "whsec_QUJD\n", "not base64"),
        ("standard_webhooks", "whsec_QU+JD_==", "not base64"),
        ("standard_webhooks", "whpk_QUJD", "begins with whpk_"),
        ("svix", "whsk_QUJD", "begins with whsk_"),
        ("adyen", "44782DEF5", "not hexadecimal"),
        ("adyen", "xyz", "not hexadecimal"),
        ("airtable", "ÄÖÜ", "not base64"),
        ("github", "", "too short"),
        ("github", "a\x00b", "contains a NUL"),
        ("github", "\ud800", "not text that UTF-8 can encode"),
        ("contentful", "a" * 63, "at least 64 bytes"),
        ("discord", "abc", "64 hexadecimal digits"),
        ("discord", "ab" * 31, "64 hexadecimal digits"),
        ("telnyx", "abc!", "32 bytes in base64"),
        ("sendgrid", "abc", "expected PEM"),
        ("sendgrid", "-----BEGIN PUBLIC KEY-----", "expected PEM"),
        ("wise", "é", "expected PEM"),
        ("wise", "", "expected PEM"),
    ],
)
def test_unusable_secret_is_refused_with_the_reason(name, text, message):
    with pytest.raises(Invalid, match=message) as refused:
        key_of(name, text)

    assert len(text) < 7 or text not in str(refused.value)
    assert catalogue.find(name).title in str(refused.value)


@pytest.mark.parametrize(("name", "other"), [("sendgrid", "wise"), ("wise", "sendgrid")])
def test_public_key_of_another_algorithm_is_refused(name, other):
    with pytest.raises(Invalid, match="not the kind of public key"):
        key_of(name, vector_of(other).secret)


def test_public_key_can_be_pem_or_the_base64_inside_it():
    sendgrid = vector_of("sendgrid")
    lines = "\n".join(sendgrid.secret[start : start + 64] for start in range(0, len(sendgrid.secret), 64))
    pem = f"-----BEGIN PUBLIC KEY-----\n{lines}\n-----END PUBLIC KEY-----\n"

    for text in (pem, lines, f" {sendgrid.secret}\n"):
        key = prepare_key(sendgrid.scheme, text)
        assert isinstance(verify(sendgrid.scheme, [key], sendgrid.request, 0), Verified)


@for_each("name", NAMES)
def test_printed_key_reveals_nothing(name):
    key = vector_of(name).key

    assert f"{key!r} {key} {[key]}" == "Key(…) Key(…) [Key(…)]"


def test_only_standard_webhooks_secrets_are_generated():
    assert [name for name in NAMES if service_makes_secrets(catalogue.find(name), name)] == ["standard_webhooks"]


def test_generated_secret_contains_256_bits_and_is_a_key():
    scheme = catalogue.find("standard_webhooks")
    secret = make_secret(scheme, RAW).reveal()

    assert secret == "whsec_" + base64.b64encode(RAW).decode()
    assert prepare_key(scheme, secret).secret_bytes == RAW


@for_each("name", NAMES)
def test_example_secret_is_a_key(name):
    pair = example_pair(catalogue.find(name), bytes(range(64)))

    assert isinstance(prepare_key(catalogue.find(name), pair.webhook_secret), Key)
