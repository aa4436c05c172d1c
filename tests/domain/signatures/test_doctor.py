"""The diagnosis of a refused signature, which the webhook's owner reads. It never reveals a secret or a signature."""

import base64
import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.doctor import diagnose
from hookmill.domain.signatures.key import prepare_key
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.sign import sign
from tests.support.for_each import for_each

from .vector import NAMES, names_where, vector_of

NOW = 1_760_000_000
URL = "https://hooks.example.com/w"
BODY = b'{"canary":"body-canary"}'
SECRET = "c2VjcmV0LWNhbmFyeS1vZi0zMi1ieXRlcw=="


def diagnosis_of_signed(
    name, sender_secret=SECRET, body=BODY, at=NOW, received_body=None, previous=(), webhook_secret=SECRET
):
    """The diagnosis of a request that the sender signed with its secret."""
    scheme = catalogue.find(name)
    signed = sign(scheme, sender_secret, body, URL, at * 1_000_000)
    headers = {header.lower().encode(): value.encode() for header, value in signed.headers}
    request = SignedRequest(headers, frozenset(), received_body or signed.body, signed.url)
    return diagnosis_of(name, request, webhook_secret, previous)


def diagnosis_of(name, request, webhook_secret=SECRET, previous=()):
    scheme = catalogue.find(name)
    keys, previous_keys = [prepare_key(scheme, webhook_secret)], [prepare_key(scheme, each) for each in previous]
    sentence = diagnose(scheme, keys, previous_keys, request, NOW * 1_000_000)
    for value in (*request.headers.values(), webhook_secret.encode(), request.body):
        assert len(value) < 12 or value.decode("latin-1") not in sentence
    assert sentence.endswith(".")
    return sentence


def mac(key):
    return hmac.new(key, BODY, hashlib.sha256).hexdigest().encode()


def make_request(headers):
    return SignedRequest(headers, frozenset(), BODY, URL)


def test_valid_signature_is_diagnosed_as_valid():
    assert diagnosis_of_signed("stripe") == "The signature is valid."


def test_absent_signature_is_diagnosed():
    assert "no signature in the header x-hub-signature-256" in diagnosis_of("github", make_request({}))
    assert "no signature in the body's field passcode" in diagnosis_of("figma", make_request({}))


def test_old_signature_is_diagnosed():
    assert diagnosis_of_signed("stripe", at=NOW - 1000).startswith("The signature is 1000 s old and 300 s are allowed")


def test_signature_from_the_future_is_diagnosed():
    assert diagnosis_of_signed("stripe", at=NOW + 1000).startswith("The signature is from 1000 s in the future")


def test_expired_token_is_diagnosed():
    vector = vector_of("livekit")
    sentence = diagnose(vector.scheme, [vector.key], [], vector.request, (vector.at + 400) * 1_000_000)

    assert sentence.startswith("The signed token expired 100 s ago")


def test_previous_secret_is_diagnosed():
    assert diagnosis_of_signed("github", sender_secret="the old one", previous=["the old one"]) == (
        "The signature matches the previous secret: give the sender the new one."
    )


def test_previous_secret_is_diagnosed_for_an_old_signature():
    assert "previous secret" in diagnosis_of_signed(
        "stripe", sender_secret="the old one", previous=["the old one"], at=NOW - 10_000
    )


def test_white_space_around_the_body_is_diagnosed():
    assert "without the white space around the body" in diagnosis_of_signed("github", received_body=BODY + b"\n")
    assert "with a line break after the body" in diagnosis_of_signed("github", body=BODY + b"\n", received_body=BODY)


def test_white_space_around_the_secret_is_diagnosed():
    assert "white space after the secret" in diagnosis_of_signed("github", sender_secret=SECRET + "\n")
    assert "without the white space around the secret" in diagnosis_of_signed("github", webhook_secret=SECRET + "\n")


def test_text_secret_decoded_as_base64_is_diagnosed():
    header = {b"x-hub-signature-256": b"sha256=" + mac(base64.b64decode(SECRET))}

    assert "decoded as base64, which GitHub doesn't do" in diagnosis_of("github", make_request(header))


def test_text_secret_decoded_as_hexadecimal_is_diagnosed():
    header = {b"x-hub-signature-256": b"sha256=" + mac(bytes.fromhex("ab" * 32))}

    assert "decoded as hexadecimal" in diagnosis_of("github", make_request(header), webhook_secret="ab" * 32)


@pytest.mark.parametrize("prefix", ["", "whsec_"])
def test_base64_secret_that_was_not_decoded_is_diagnosed(prefix):
    signed = base64.b64encode(hmac.digest((prefix + SECRET).encode(), b"m.%d." % NOW + BODY, "sha256"))
    headers = {b"webhook-id": b"m", b"webhook-timestamp": b"%d" % NOW, b"webhook-signature": b"v1," + signed}

    assert "not decoded, but Standard Webhooks decodes it" in diagnosis_of(
        "standard_webhooks", make_request(headers), webhook_secret=prefix + SECRET
    )


def test_scheme_with_a_weaker_algorithm_is_not_recommended():
    headers = {b"x-hub-signature": b"sha1=" + hmac.new(SECRET.encode(), BODY, "sha1").hexdigest().encode()}

    assert "intercom" not in diagnosis_of("jira", make_request(headers)), "SHA-1 must not be recommended"


def test_scheme_that_verifies_the_signature_is_recommended():
    headers = {b"x-hub-signature": b"sha256=" + hmac.new(SECRET.encode(), BODY, "sha256").hexdigest().encode()}

    assert diagnosis_of("intercom", make_request(headers)) == (
        "The signature is valid for the scheme bitbucket (Bitbucket): create a webhook with that scheme, and enter its "
        "URL at the sender."
    )


def test_headers_of_another_provider_are_diagnosed():
    headers = {b"x-slack-signature": b"v0=" + b"0" * 64, b"x-slack-request-timestamp": b"1"}

    assert diagnosis_of("github", make_request(headers)) == (
        "The request has no header x-hub-signature-256; it has headers of slack (Slack Events API)."
    )


def test_providers_that_share_a_header_are_named():
    sentence = diagnosis_of("github", make_request({b"x-hub-signature": b"sha256=" + b"0" * 64}))

    assert "bitbucket (Bitbucket), jira (Jira Cloud), snyk (Snyk)." in sentence


def test_at_most_three_providers_that_share_a_header_are_named():
    sentence = diagnosis_of("github", make_request({b"webhook-signature": b"0" * 64}))

    assert sentence.endswith(" among others.")
    assert sentence.count("(") == 3


def test_authorization_header_identifies_a_provider_only_by_its_prefix():
    assert "no signature in" in diagnosis_of("github", make_request({b"authorization": b"Bearer abcdefghijkl"}))
    assert "microsoft_teams_outgoing" in diagnosis_of("github", make_request({b"authorization": b"HMAC abcdefghijkl"}))


def test_wrong_prefix_is_diagnosed():
    sentence = diagnosis_of("github", make_request({b"x-hub-signature-256": mac(b"other")}))

    assert sentence.startswith("The signature does not begin with this scheme's prefix (sha256=)")


def test_wrong_encoding_is_diagnosed():
    sentence = diagnosis_of("github", make_request({b"x-hub-signature-256": b"sha256=" + b"Z" * 43 + b"="}))

    assert sentence.startswith("The signature is not in this scheme's encoding (64 hexadecimal digits)")


def test_list_without_an_entry_of_the_scheme_is_diagnosed():
    assert "has no entry of this scheme" in diagnosis_of(
        "stripe", make_request({b"stripe-signature": b"t=1,v0=abcdefghijkl"})
    )


def test_absent_or_invalid_time_is_diagnosed():
    wrong = b"v0=" + b"0" * 64

    assert "the signed time is absent" in diagnosis_of("slack", make_request({b"x-slack-signature": wrong})).lower()
    assert "not in this scheme's format" in diagnosis_of(
        "slack", make_request({b"x-slack-signature": wrong, b"x-slack-request-timestamp": b"soon"})
    )


def test_mismatch_is_diagnosed():
    assert diagnosis_of_signed("github", sender_secret="another secret").startswith("The signature does not match")


def test_repeated_header_is_diagnosed():
    vector = vector_of("github")
    request = replace(vector.request, conflicting_headers=frozenset({b"x-hub-signature-256"}))

    assert diagnosis_of("github", request, webhook_secret=vector.secret).startswith(
        "A signed header occurs more than once"
    )


def test_changed_body_with_a_signed_digest_is_diagnosed():
    vector = vector_of("twilio")

    assert "another body" in diagnosis_of("twilio", replace(vector.request, body=b"{}"), webhook_secret=vector.secret)


def test_too_many_or_too_long_signatures_are_diagnosed():
    assert "more than 16" in diagnosis_of("stripe", make_request({b"stripe-signature": b"t=1," + b"v1=00," * 20}))
    assert "8 KiB" in diagnosis_of("stripe", make_request({b"stripe-signature": b"v1=00," * 2000}))


def test_missing_secret_is_diagnosed():
    scheme = catalogue.find("github")

    assert "no secret" in diagnose(scheme, [], [], vector_of("github").request, 0)


@for_each("name", NAMES)
def test_diagnosis_never_reveals_a_secret_signature_or_header(name):
    vector = vector_of(name)
    canaries = {vector.secret, *vector.signatures(), *(value.decode() for value in vector.request.headers.values())}
    invalid_requests = [
        vector.with_signatures(lambda signature: signature[::-1]),
        vector.with_signatures(lambda signature: ""),
        vector.with_signatures(lambda signature: "\x00é" + signature),
        replace(vector.request, headers={}),
        replace(vector.request, body=b""),
        replace(vector.request, body=b"[" * 600),
        replace(vector.request, conflicting_headers=frozenset(vector.request.headers)),
    ]

    for request in invalid_requests:
        sentence = diagnose(vector.scheme, [vector.key], [vector.key], request, (vector.at + 10**7) * 1_000_000)

        assert sentence.endswith(".")
        assert "\n" not in sentence
        assert not [canary for canary in canaries if len(canary) > 11 and canary in sentence]


@for_each("name", names_where(lambda scheme: scheme.covers_body and not scheme.algorithm.uses_public_key))
def test_changed_indentation_of_the_body_is_diagnosed(name):
    vector = vector_of(name)
    try:
        body = json.dumps(json.loads(vector.request.body), indent=1).encode()
    except ValueError:
        body = vector.request.body + b"!"
    sentence = diagnose(vector.scheme, [vector.key], [], replace(vector.request, body=body), vector.at * 1_000_000)

    assert "does not match" in sentence or "another body" in sentence
