"""What the owner reads after a refused request. Every sentence, and that none of them gives anything away."""

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

from .examples import NAMES, example, those

NOW = 1_760_000_000
URL = "https://hooks.example.com/w"
BODY = b'{"canary":"body-canary"}'
SECRET = "c2VjcmV0LWNhbmFyeS1vZi0zMi1ieXRlcw=="


def seen(name, secret=SECRET, body=BODY, at=NOW, sent_body=None, previous=(), headers=None, held=SECRET):
    """The diagnosis of a request signed with `secret`, by a webhook that holds `held`."""
    scheme = catalogue.find(name)
    signed = sign(scheme, secret, body, URL, at * 1_000_000)
    sent = {header.lower().encode(): value.encode() for header, value in signed.headers}
    request = SignedRequest(headers if headers is not None else sent, frozenset(), sent_body or signed.body, signed.url)
    return told(name, request, held, previous)


def told(name, request, held=SECRET, previous=()):
    scheme = catalogue.find(name)
    keys, old = [prepare_key(scheme, held)], [prepare_key(scheme, one) for one in previous]
    sentence = diagnose(scheme, keys, old, request, NOW * 1_000_000)
    for value in (*request.headers.values(), held.encode(), request.body):
        assert len(value) < 12 or value.decode("latin-1") not in sentence
    assert sentence.endswith(".")
    return sentence


def mac(key, body=BODY):
    return hmac.new(key, body, hashlib.sha256).hexdigest().encode()


def request(headers, body=BODY):
    return SignedRequest(headers, frozenset(), body, URL)


def test_nothing_is_wrong():
    assert seen("stripe") == "The signature is valid."


def test_the_header_is_absent():
    assert "no signature in the header x-hub-signature-256" in seen("github", headers={})
    assert "no signature in the body's field passcode" in told("figma", request({}))


def test_it_is_stale():
    assert seen("stripe", at=NOW - 1000).startswith("The signature is 1000 s old and 300 s are allowed")


def test_it_is_from_the_future():
    assert seen("stripe", at=NOW + 1000).startswith("The signature is from 1000 s in the future")


def test_a_token_has_expired():
    given = example("livekit")
    sentence = diagnose(given.scheme, [given.key], [], given.request, (given.at + 400) * 1_000_000)

    assert sentence.startswith("The signed token expired 100 s ago")


def test_it_matches_the_previous_secret():
    assert seen("github", secret="the old one", previous=["the old one"]) == (
        "The signature matches the previous secret: give the sender the new one."
    )


def test_a_stale_one_that_matches_the_previous_secret_says_so():
    assert "previous secret" in seen("stripe", secret="the old one", previous=["the old one"], at=NOW - 10_000)


def test_white_space_around_the_body():
    assert "without the white space around the body" in seen("github", sent_body=BODY + b"\n")
    assert "with a line break after the body" in seen("github", body=BODY + b"\n", sent_body=BODY)


def test_white_space_around_the_secret():
    assert "white space after the secret" in seen("github", secret=SECRET + "\n")
    assert "without the white space around the secret" in seen("github", held=SECRET + "\n")


def test_the_secret_was_decoded_where_it_is_literal():
    header = {b"x-hub-signature-256": b"sha256=" + mac(base64.b64decode(SECRET))}

    assert "decoded as base64, which GitHub doesn't do" in told("github", request(header))


def test_the_secret_was_read_as_hexadecimal_where_it_is_literal():
    header = {b"x-hub-signature-256": b"sha256=" + mac(bytes.fromhex("ab" * 32))}

    assert "decoded as hexadecimal" in told("github", request(header), held="ab" * 32)


@pytest.mark.parametrize("prefix", ["", "whsec_"])
def test_the_secret_was_taken_literally_where_it_is_decoded(prefix):
    signed = base64.b64encode(hmac.digest((prefix + SECRET).encode(), b"m.%d." % NOW + BODY, "sha256"))
    headers = {b"webhook-id": b"m", b"webhook-timestamp": b"%d" % NOW, b"webhook-signature": b"v1," + signed}

    assert "not decoded, but Standard Webhooks decodes it" in told(
        "standard_webhooks", request(headers), held=prefix + SECRET
    )


def test_an_older_signature_that_is_sent_beside_is_not_recommended():
    headers = {b"x-hub-signature": b"sha1=" + hmac.new(SECRET.encode(), BODY, "sha1").hexdigest().encode()}

    assert "intercom" not in told("jira", request(headers)), "nobody should go back to SHA-1"


def test_another_scheme_that_is_no_weaker_verifies_it():
    headers = {b"x-hub-signature": b"sha256=" + hmac.new(SECRET.encode(), BODY, "sha256").hexdigest().encode()}

    assert told("intercom", request(headers)) == (
        "The signature is valid for the scheme bitbucket (Bitbucket): create a webhook with that scheme, and enter its "
        "URL at the sender."
    )


def test_the_headers_are_another_providers():
    headers = {b"x-slack-signature": b"v0=" + b"0" * 64, b"x-slack-request-timestamp": b"1"}

    assert told("github", request(headers)) == (
        "The request has no header x-hub-signature-256; it has headers of slack (Slack Events API)."
    )


def test_headers_that_several_providers_share_name_a_few():
    sentence = told("github", request({b"x-hub-signature": b"sha256=" + b"0" * 64}))

    assert "bitbucket (Bitbucket), jira (Jira Cloud), snyk (Snyk)." in sentence


def test_of_many_providers_that_share_a_header_three_are_named():
    sentence = told("github", request({b"webhook-signature": b"0" * 64}))

    assert sentence.endswith(" among others.")
    assert sentence.count("(") == 3


def test_an_authorization_header_alone_is_nobodys():
    assert "no signature in" in told("github", request({b"authorization": b"Bearer abcdefghijkl"}))
    assert "microsoft_teams_outgoing" in told("github", request({b"authorization": b"HMAC abcdefghijkl"}))


def test_the_prefix_is_wrong():
    sentence = told("github", request({b"x-hub-signature-256": mac(b"other")}))

    assert sentence.startswith("The signature does not begin with this scheme's prefix (sha256=)")


def test_the_encoding_is_wrong():
    sentence = told("github", request({b"x-hub-signature-256": b"sha256=" + b"Z" * 43 + b"="}))

    assert sentence.startswith("The signature is not in this scheme's encoding (64 hexadecimal digits)")


def test_there_is_no_entry_of_the_scheme():
    assert "has no entry of this scheme" in told("stripe", request({b"stripe-signature": b"t=1,v0=abcdefghijkl"}))


def test_the_time_is_absent_or_none():
    wrong = b"v0=" + b"0" * 64

    assert "the signed time is absent" in told("slack", request({b"x-slack-signature": wrong})).lower()
    assert "not in this scheme's format" in told(
        "slack", request({b"x-slack-signature": wrong, b"x-slack-request-timestamp": b"soon"})
    )


def test_it_simply_does_not_match():
    assert seen("github", secret="another secret").startswith("The signature does not match")


def test_a_header_came_twice():
    given = example("github")
    twice = replace(given.request, conflicting_headers=frozenset({b"x-hub-signature-256"}))

    assert told("github", twice, held=given.secret).startswith("A signed header occurs more than once")


def test_a_changed_body_under_a_signed_digest():
    given = example("twilio")

    assert "another body" in told("twilio", replace(given.request, body=b"{}"), held=given.secret)


def test_too_many_and_too_long():
    assert "more than 16" in told("stripe", request({b"stripe-signature": b"t=1," + b"v1=00," * 20}))
    assert "8 KiB" in told("stripe", request({b"stripe-signature": b"v1=00," * 2000}))


def test_a_secret_is_missing():
    scheme = catalogue.find("github")

    assert "no secret" in diagnose(scheme, [], [], example("github").request, 0)


@for_each("name", NAMES)
def test_whatever_is_wrong_the_sentence_gives_nothing_away(name):
    given = example(name)
    canaries = {given.secret, *given.signatures(), *(value.decode() for value in given.request.headers.values())}
    spoilt = [
        given.with_signatures(lambda one: one[::-1]),
        given.with_signatures(lambda one: ""),
        given.with_signatures(lambda one: "\x00é" + one),
        replace(given.request, headers={}),
        replace(given.request, body=b""),
        replace(given.request, body=b"[" * 600),
        replace(given.request, conflicting_headers=frozenset(given.request.headers)),
    ]

    for request in spoilt:
        sentence = diagnose(given.scheme, [given.key], [given.key], request, (given.at + 10**7) * 1_000_000)

        assert sentence.endswith(".")
        assert "\n" not in sentence
        assert not [one for one in canaries if len(one) > 11 and one in sentence]


@for_each("name", those(lambda scheme: scheme.covers_body and not scheme.algorithm.uses_public_key))
def test_every_scheme_is_diagnosed_when_the_body_was_re_indented(name):
    given = example(name)
    try:
        body = json.dumps(json.loads(given.request.body), indent=1).encode()
    except ValueError:
        body = given.request.body + b"!"
    sentence = diagnose(given.scheme, [given.key], [], replace(given.request, body=body), given.at * 1_000_000)

    assert "does not match" in sentence or "another body" in sentence
