"""Corners of the verifier that the vectors alone don't reach: tokens, signed URLs, values inside the body."""

import base64
import hashlib
import hmac
import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.key import prepare_key
from hookmill.domain.signatures.reading import RequestValues, SignedRequest, body_reader
from hookmill.domain.signatures.verify import Failure, Unverified, Verified, provider_event_id, verify

from .examples import example

NOW = 1_760_000_000
SECRET = "the shared secret"
BODY = b'{"event":"room_started"}'
HEX = hashlib.sha256(BODY).hexdigest()
B64 = base64.b64encode(hashlib.sha256(BODY).digest()).decode()


def segment(value):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


def token(claims, head=None, digest="sha256", secret=SECRET):
    signed = segment({"alg": "HS256"} if head is None else head) + b"." + segment(claims)
    return signed + b"." + segment(hmac.new(secret.encode(), signed, digest).digest())


def judge(name, headers, body=BODY, url="https://h.example/w", secret=SECRET):
    scheme = catalogue.find(name)
    return verify(
        scheme, [prepare_key(scheme, secret)], SignedRequest(headers, frozenset(), body, url), NOW * 1_000_000
    )


def netlify(claims=None, **how):
    claims = {"iss": "netlify", "sha256": HEX} if claims is None else claims
    return judge("netlify", {b"x-webhook-signature": token(claims, **how)})


def livekit(**claims):
    return judge("livekit", {b"authorization": token({"sha256": B64, "exp": NOW + 60, **claims})})


def test_a_token_that_claims_the_body_verifies():
    assert isinstance(netlify(), Verified)
    assert isinstance(livekit(), Verified)


@pytest.mark.parametrize(
    "head",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "HS512"},
        {"alg": "hs256"},
        {"alg": "RS256"},
        {"alg": ["HS256"]},
        {"alg": None},
        {},
        [],
        "HS256",
        {"alg": "HS256", "crit": ["b64"], "b64": False},
        b"not json",
        b"[" * 600,
        b"\xff",
        b"",
    ],
)
def test_a_token_of_another_algorithm_is_refused_though_its_mac_is_right(head):
    assert netlify(head=head) == Unverified(Failure.WRONG_ENCODING)


def test_an_unsigned_token_is_refused():
    claims = segment({"iss": "netlify", "sha256": HEX})

    for written in (segment({"alg": "none"}) + b"." + claims + b".", segment({"alg": "HS256"}) + b"." + claims + b"."):
        assert judge("netlify", {b"x-webhook-signature": written}) == Unverified(Failure.WRONG_ENCODING)


@pytest.mark.parametrize(
    "written", [b"a", b"a.b", b"a.b.c.d", b"..", b"e30.e30.e30.", b"e30=.e30.e30", b"e30.e30.\xff"]
)
def test_what_is_no_token_is_refused(written):
    assert judge("netlify", {b"x-webhook-signature": written}) == Unverified(Failure.WRONG_ENCODING)


def test_a_token_signed_with_another_secret_or_digest_is_refused():
    assert netlify(secret="another") == Unverified(Failure.MISMATCH)
    assert netlify(digest="sha512") == Unverified(Failure.MISMATCH)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        [],
        "text",
        {"iss": "netlify"},
        {"iss": "netlify", "sha256": None},
        {"iss": "netlify", "sha256": 7},
        {"iss": "netlify", "sha256": ""},
        {"iss": "netlify", "sha256": HEX[:-1]},
        {"iss": "netlify", "sha256": "\ud83d"},
        {"iss": "netlify", "sha256": B64},
        {"iss": "somebody", "sha256": HEX},
        {"iss": ["netlify"], "sha256": HEX},
        {"sha256": HEX},
        b"not json",
    ],
)
def test_a_token_without_the_right_claims_is_refused(claims):
    assert netlify(claims) == Unverified(Failure.WRONG_CLAIMS)


def test_a_token_for_another_body_is_refused():
    signed = token({"iss": "netlify", "sha256": HEX})

    assert judge("netlify", {b"x-webhook-signature": signed}, body=BODY + b" ") == Unverified(Failure.BODY_CHANGED)


def test_a_token_may_be_a_minute_past_its_time():
    assert isinstance(livekit(exp=NOW - 60), Verified)
    assert livekit(exp=NOW - 61) == Unverified(Failure.STALE, 61)
    assert isinstance(livekit(nbf=NOW + 60), Verified)
    assert livekit(nbf=NOW + 61) == Unverified(Failure.AHEAD, 61)
    assert isinstance(livekit(exp=NOW + 0.5, nbf=None), Verified)


@pytest.mark.parametrize(
    "claims", [b'"exp":1e999999999', b'"exp":-1e99', b'"exp":true', b'"exp":"1"', b'"exp":null', b'"nbf":-1']
)
def test_a_token_whose_time_is_none_is_refused(claims):
    expiry = b"" if b"exp" in claims else b'"exp":%d,' % (NOW + 60)
    text = b'{"sha256":"' + B64.encode() + b'",' + expiry + claims + b"}"

    assert judge("livekit", {b"authorization": token(text)}) == Unverified(Failure.WRONG_CLAIMS)


def test_a_token_that_must_expire_says_when():
    assert judge("livekit", {b"authorization": token({"sha256": B64})}) == Unverified(Failure.WRONG_CLAIMS)


# A signed URL


def twilio(query):
    url = f"https://h.example/w?{query}"
    mac = base64.b64encode(hmac.new(SECRET.encode(), url.encode(), "sha1").digest())
    return judge("twilio", {b"x-twilio-signature": mac}, url=url)


def test_the_signed_url_must_name_this_body_once():
    assert isinstance(twilio(f"bodySHA256={HEX}"), Verified)
    assert isinstance(twilio(f"a=1&bodySHA256={HEX.upper()}&b=2"), Verified)
    for query in (
        "",
        "bodySHA256=",
        f"bodySHA256={HEX[:-2]}",
        f"bodySHA256={HEX}&bodySHA256={HEX}",
        f"bodysha256={HEX}",
        f"xbodySHA256={HEX}",
        f"bodySHA256={hashlib.sha256(b'').hexdigest()}",
    ):
        assert twilio(query) == Unverified(Failure.BODY_CHANGED), query


@pytest.mark.parametrize("name", ["square", "trello", "hubspot_v3", "twilio", "contentful"])
def test_another_url_is_refused(name):
    given = example(name)

    for url in (given.request.url + "/", given.request.url + "x", "https://h.example/", "", "\ud800"):
        assert isinstance(given.judge(replace(given.request, url=url)), Unverified)


@pytest.mark.parametrize("name", ["hubspot_v3", "contentful"])
def test_another_method_is_refused(name):
    given = example(name)

    assert isinstance(given.judge(replace(given.request, method="PUT")), Unverified)


# Values inside the body


def test_a_second_adyen_notification_would_be_unsigned_and_is_refused():
    given = example("adyen")
    body = json.loads(given.request.body)
    body["notificationItems"].append(body["notificationItems"][0])

    assert given.judge(replace(given.request, body=json.dumps(body).encode())) == Unverified(Failure.NO_SIGNATURE)


@pytest.mark.parametrize(
    ("field", "value"),
    [("success", "false"), ("pspReference", "1"), ("eventCode", "REFUND"), ("amount", {"value": 1, "currency": "EUR"})],
)
def test_a_signed_adyen_field_can_not_be_changed(field, value):
    given = example("adyen")
    body = json.loads(given.request.body)
    body["notificationItems"][0]["NotificationRequestItem"][field] = value

    assert given.judge(replace(given.request, body=json.dumps(body).encode())) == Unverified(Failure.MISMATCH)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"a":"x"}', b"x"),
        (b'{"a":17}', b"17"),
        (b'{"a":0}', b"0"),
        (b'{"a":true}', b"true"),
        (b'{"a":false}', b"false"),
        (b'{"a":null}', None),
        (b'{"a":1.5}', None),
        (b'{"a":[]}', None),
        (b'{"a":{}}', None),
        (b'{"a":"\\ud83d"}', b"\xed\xa0\xbd"),
        (b'{"a":18446744073709551615}', b"18446744073709551615"),
        (b'{"a":18446744073709551616}', None),
        (b'{"b":1}', None),
        (b"[]", None),
        (b"7", None),
        (b"", None),
    ],
)
def test_a_value_in_the_body_is_read_as_text(body, text):
    assert body_reader("a")(RequestValues(SignedRequest({}, frozenset(), body, ""))) == text


def test_the_first_delivery_id_that_is_there_counts():
    given = example("heroku")

    assert provider_event_id(given.scheme, replace(given.request, body=b'{"id":"second"}')) == b"second"
    assert (
        provider_event_id(
            catalogue.find("gitlab_token"), SignedRequest({b"x-gitlab-event-uuid": b"u"}, frozenset(), b"", "")
        )
        == b"u"
    )
    assert (
        provider_event_id(catalogue.find("github"), SignedRequest({b"x-github-delivery": b" "}, frozenset(), b"", ""))
        is None
    )


# Several headers


def test_of_two_signature_headers_that_are_both_meant_either_counts():
    given = example("box")
    wrong = base64.b64encode(bytes(32))

    for header in (b"box-signature-primary", b"box-signature-secondary"):
        scheme_key = {b"box-signature-primary": "SampleSecondaryKey", b"box-signature-secondary": "SamplePrimaryKey"}
        request = replace(given.request, headers={**given.request.headers, header: wrong})
        key = prepare_key(given.scheme, scheme_key[header])
        assert isinstance(verify(given.scheme, [key], request, given.at * 1_000_000), Verified)


def test_more_than_16_numbered_headers_are_refused():
    given = example("docusign")
    right = given.request.headers[b"x-docusign-signature-2"]

    def numbered(count):
        headers = {b"x-docusign-signature-%d" % number: right for number in range(1, count + 1)}
        return given.judge(replace(given.request, headers=headers))

    assert isinstance(numbered(16), Verified)
    assert numbered(17) == Unverified(Failure.TOO_MANY)
    assert numbered(100) == Unverified(Failure.TOO_MANY)


def test_a_signature_header_of_8_kib_is_read_and_a_longer_one_is_not():
    given = example("stripe")
    value = given.request.headers[b"stripe-signature"]

    for size, wanted in ((8192, Verified()), (8193, Unverified(Failure.TOO_LONG))):
        headers = {**given.request.headers, b"stripe-signature": value + b",x=" + b"y" * (size - len(value) - 3)}
        verdict = given.judge(replace(given.request, headers=headers))
        assert isinstance(verdict, type(wanted))
        assert isinstance(verdict, Verified) or verdict == wanted


def test_svix_headers_are_accepted_by_standard_webhooks_and_the_reverse():
    for name, other in (("svix", "standard_webhooks"), ("standard_webhooks", "svix")):
        given = example(name)
        scheme = catalogue.find(other)
        key = prepare_key(scheme, given.secret)
        assert isinstance(verify(scheme, [key], given.request, given.at * 1_000_000), Verified)


# Contentful signs the headers that it lists


def test_a_signed_header_that_came_twice_or_not_at_all_is_refused():
    given = example("contentful")
    topic = b"x-contentful-topic"
    without = {name: value for name, value in given.request.headers.items() if name != topic}

    assert given.judge(replace(given.request, conflicting_headers=frozenset({topic}))) == Unverified(Failure.INCOMPLETE)
    assert given.judge(replace(given.request, headers=without)) == Unverified(Failure.INCOMPLETE)
    assert given.judge(replace(given.request, headers={**given.request.headers, topic: b"x"})) == Unverified(
        Failure.MISMATCH
    )


def test_a_list_of_more_than_100_signed_headers_is_refused():
    given = example("contentful")
    names = b",".join([b"x-contentful-topic"] * 101)
    headers = {**given.request.headers, b"x-contentful-signed-headers": names}

    assert given.judge(replace(given.request, headers=headers)) == Unverified(Failure.INCOMPLETE)


# Public keys


def public_pem(private):
    public = private.public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def test_weak_and_foreign_public_keys_are_refused():
    for name, private in (
        ("wise", rsa.generate_private_key(public_exponent=65537, key_size=1024)),
        ("sendgrid", ec.generate_private_key(ec.SECP384R1())),
    ):
        with pytest.raises(Invalid, match="not the kind of public key"):
            prepare_key(catalogue.find(name), public_pem(private))


# Time


@pytest.mark.parametrize("place", [0, 7, 15])
@pytest.mark.parametrize("right_key", [0, 1])
def test_every_signature_is_compared_with_every_key(monkeypatch, place, right_key):
    given = example("stripe")
    compared = []

    class Counting:
        digest = staticmethod(hmac.digest)

        @staticmethod
        def compare_digest(one, other):
            compared.append((type(one), type(other), len(one) == len(other)))
            return hmac.compare_digest(one, other)

    monkeypatch.setattr("hookmill.domain.signatures.verify.hmac", Counting)
    entries = ["v1=" + "0" * 64] * 16
    entries[place] = "v1=" + given.signatures()[0]
    header = ",".join([f"t={given.at}", *entries]).encode()
    keys = [prepare_key(given.scheme, "another")] * 2
    keys[right_key] = given.key
    request = replace(given.request, headers={b"stripe-signature": header})

    assert isinstance(verify(given.scheme, keys, request, given.at * 1_000_000), Verified)
    assert compared == [(bytes, bytes, True)] * 32
