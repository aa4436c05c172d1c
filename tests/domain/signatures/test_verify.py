"""Cases that the vectors don't cover: tokens, signed URLs, values in the body, several headers, public keys."""

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

from .vector import vector_of

NOW = 1_760_000_000
SECRET = "the shared secret"
BODY = b'{"event":"room_started"}'
HEX = hashlib.sha256(BODY).hexdigest()
B64 = base64.b64encode(hashlib.sha256(BODY).digest()).decode()


def segment(value):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


def token(claims, header=None, digest="sha256", secret=SECRET):
    signed = segment({"alg": "HS256"} if header is None else header) + b"." + segment(claims)
    return signed + b"." + segment(hmac.new(secret.encode(), signed, digest).digest())


def result_of(name, headers, body=BODY, url="https://h.example/w", secret=SECRET):
    scheme = catalogue.find(name)
    return verify(
        scheme, [prepare_key(scheme, secret)], SignedRequest(headers, frozenset(), body, url), NOW * 1_000_000
    )


def netlify_result(claims=None, **options):
    claims = {"iss": "netlify", "sha256": HEX} if claims is None else claims
    return result_of("netlify", {b"x-webhook-signature": token(claims, **options)})


def livekit_result(**claims):
    return result_of("livekit", {b"authorization": token({"sha256": B64, "exp": NOW + 60, **claims})})


def test_token_with_the_digest_of_the_body_verifies():
    assert isinstance(netlify_result(), Verified)
    assert isinstance(livekit_result(), Verified)


@pytest.mark.parametrize(
    "header",
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
def test_token_with_another_header_is_refused_even_if_its_mac_is_valid(header):
    assert netlify_result(header=header) == Unverified(Failure.WRONG_ENCODING)


def test_unsigned_token_is_refused():
    claims = segment({"iss": "netlify", "sha256": HEX})

    for unsigned in (segment({"alg": "none"}) + b"." + claims + b".", segment({"alg": "HS256"}) + b"." + claims + b"."):
        assert result_of("netlify", {b"x-webhook-signature": unsigned}) == Unverified(Failure.WRONG_ENCODING)


@pytest.mark.parametrize("text", [b"a", b"a.b", b"a.b.c.d", b"..", b"e30.e30.e30.", b"e30=.e30.e30", b"e30.e30.\xff"])
def test_text_that_is_not_a_token_is_refused(text):
    assert result_of("netlify", {b"x-webhook-signature": text}) == Unverified(Failure.WRONG_ENCODING)


def test_token_signed_with_another_secret_or_digest_is_refused():
    assert netlify_result(secret="another") == Unverified(Failure.MISMATCH)
    assert netlify_result(digest="sha512") == Unverified(Failure.MISMATCH)


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
def test_token_with_absent_or_wrong_claims_is_refused(claims):
    assert netlify_result(claims) == Unverified(Failure.WRONG_CLAIMS)


def test_token_for_another_body_is_refused():
    signed_token = token({"iss": "netlify", "sha256": HEX})

    assert result_of("netlify", {b"x-webhook-signature": signed_token}, body=BODY + b" ") == Unverified(
        Failure.BODY_CHANGED
    )


def test_token_is_accepted_up_to_a_minute_outside_its_validity():
    assert isinstance(livekit_result(exp=NOW - 60), Verified)
    assert livekit_result(exp=NOW - 61) == Unverified(Failure.STALE, 61)
    assert isinstance(livekit_result(nbf=NOW + 60), Verified)
    assert livekit_result(nbf=NOW + 61) == Unverified(Failure.AHEAD, 61)
    assert isinstance(livekit_result(exp=NOW + 0.5, nbf=None), Verified)


@pytest.mark.parametrize(
    "claims", [b'"exp":1e999999999', b'"exp":-1e99', b'"exp":true', b'"exp":"1"', b'"exp":null', b'"nbf":-1']
)
def test_token_with_an_invalid_time_is_refused(claims):
    expiry = b"" if b"exp" in claims else b'"exp":%d,' % (NOW + 60)
    text = b'{"sha256":"' + B64.encode() + b'",' + expiry + claims + b"}"

    assert result_of("livekit", {b"authorization": token(text)}) == Unverified(Failure.WRONG_CLAIMS)


def test_token_without_the_required_expiry_is_refused():
    assert result_of("livekit", {b"authorization": token({"sha256": B64})}) == Unverified(Failure.WRONG_CLAIMS)


# A signed URL


def twilio_result(query):
    url = f"https://h.example/w?{query}"
    mac = base64.b64encode(hmac.new(SECRET.encode(), url.encode(), "sha1").digest())
    return result_of("twilio", {b"x-twilio-signature": mac}, url=url)


def test_signed_url_must_contain_the_digest_of_the_body_once():
    assert isinstance(twilio_result(f"bodySHA256={HEX}"), Verified)
    assert isinstance(twilio_result(f"a=1&bodySHA256={HEX.upper()}&b=2"), Verified)
    for query in (
        "",
        "bodySHA256=",
        f"bodySHA256={HEX[:-2]}",
        f"bodySHA256={HEX}&bodySHA256={HEX}",
        f"bodysha256={HEX}",
        f"xbodySHA256={HEX}",
        f"bodySHA256={hashlib.sha256(b'').hexdigest()}",
    ):
        assert twilio_result(query) == Unverified(Failure.BODY_CHANGED), query


@pytest.mark.parametrize("name", ["square", "trello", "hubspot_v3", "twilio", "contentful"])
def test_another_url_is_refused(name):
    vector = vector_of(name)

    for url in (vector.request.url + "/", vector.request.url + "x", "https://h.example/", "", "\ud800"):
        assert isinstance(vector.verify(replace(vector.request, url=url)), Unverified)


@pytest.mark.parametrize("name", ["hubspot_v3", "contentful"])
def test_another_method_is_refused(name):
    vector = vector_of(name)

    assert isinstance(vector.verify(replace(vector.request, method="PUT")), Unverified)


# Values in the body


def test_second_adyen_notification_is_refused_because_it_is_unsigned():
    vector = vector_of("adyen")
    body = json.loads(vector.request.body)
    body["notificationItems"].append(body["notificationItems"][0])

    assert vector.verify(replace(vector.request, body=json.dumps(body).encode())) == Unverified(Failure.NO_SIGNATURE)


@pytest.mark.parametrize(
    ("field", "value"),
    [("success", "false"), ("pspReference", "1"), ("eventCode", "REFUND"), ("amount", {"value": 1, "currency": "EUR"})],
)
def test_changed_field_that_adyen_signs_is_refused(field, value):
    vector = vector_of("adyen")
    body = json.loads(vector.request.body)
    body["notificationItems"][0]["NotificationRequestItem"][field] = value

    assert vector.verify(replace(vector.request, body=json.dumps(body).encode())) == Unverified(Failure.MISMATCH)


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
def test_value_in_the_body_is_read_as_text(body, text):
    assert body_reader("a")(RequestValues(SignedRequest({}, frozenset(), body, ""))) == text


def test_first_delivery_id_that_is_present_counts():
    vector = vector_of("heroku")

    assert provider_event_id(vector.scheme, replace(vector.request, body=b'{"id":"second"}')) == b"second"
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


@pytest.mark.parametrize(
    ("wrong_header", "secret_of_other_header"),
    [(b"box-signature-primary", "SampleSecondaryKey"), (b"box-signature-secondary", "SamplePrimaryKey")],
)
def test_either_of_two_signature_headers_is_enough(wrong_header, secret_of_other_header):
    vector = vector_of("box")
    wrong = base64.b64encode(bytes(32))
    request = replace(vector.request, headers={**vector.request.headers, wrong_header: wrong})
    key = prepare_key(vector.scheme, secret_of_other_header)

    assert isinstance(verify(vector.scheme, [key], request, vector.at * 1_000_000), Verified)


def test_more_than_16_numbered_headers_are_refused():
    vector = vector_of("docusign")
    signature = vector.request.headers[b"x-docusign-signature-2"]

    def result_with(count):
        headers = {b"x-docusign-signature-%d" % number: signature for number in range(1, count + 1)}
        return vector.verify(replace(vector.request, headers=headers))

    assert isinstance(result_with(16), Verified)
    assert result_with(17) == Unverified(Failure.TOO_MANY)
    assert result_with(100) == Unverified(Failure.TOO_MANY)


def test_signature_header_longer_than_8_kib_is_refused():
    vector = vector_of("stripe")
    value = vector.request.headers[b"stripe-signature"]

    def result_with(size):
        header = value + b",x=" + b"y" * (size - len(value) - 3)
        return vector.verify(replace(vector.request, headers={**vector.request.headers, b"stripe-signature": header}))

    assert isinstance(result_with(8192), Verified)
    assert result_with(8193) == Unverified(Failure.TOO_LONG)


def test_svix_and_standard_webhooks_accept_the_headers_of_each_other():
    for name, other in (("svix", "standard_webhooks"), ("standard_webhooks", "svix")):
        vector = vector_of(name)
        scheme = catalogue.find(other)
        key = prepare_key(scheme, vector.secret)
        assert isinstance(verify(scheme, [key], vector.request, vector.at * 1_000_000), Verified)


# Contentful signs the headers that it lists


def test_repeated_absent_or_changed_signed_header_is_refused():
    vector = vector_of("contentful")
    topic = b"x-contentful-topic"
    without_topic = {name: value for name, value in vector.request.headers.items() if name != topic}

    assert vector.verify(replace(vector.request, conflicting_headers=frozenset({topic}))) == Unverified(
        Failure.INCOMPLETE
    )
    assert vector.verify(replace(vector.request, headers=without_topic)) == Unverified(Failure.INCOMPLETE)
    assert vector.verify(replace(vector.request, headers={**vector.request.headers, topic: b"x"})) == Unverified(
        Failure.MISMATCH
    )


def test_list_of_more_than_100_signed_headers_is_refused():
    vector = vector_of("contentful")
    names = b",".join([b"x-contentful-topic"] * 101)
    headers = {**vector.request.headers, b"x-contentful-signed-headers": names}

    assert vector.verify(replace(vector.request, headers=headers)) == Unverified(Failure.INCOMPLETE)


# Public keys


def public_pem(private_key):
    public_key = private_key.public_key()
    return public_key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def test_short_rsa_key_and_key_on_another_curve_are_refused():
    for name, private_key in (
        ("wise", rsa.generate_private_key(public_exponent=65537, key_size=1024)),
        ("sendgrid", ec.generate_private_key(ec.SECP384R1())),
    ):
        with pytest.raises(Invalid, match="not the kind of public key"):
            prepare_key(catalogue.find(name), public_pem(private_key))


# Constant time


@pytest.mark.parametrize("valid_entry", [0, 7, 15])
@pytest.mark.parametrize("valid_key", [0, 1])
def test_every_signature_is_compared_with_every_key(monkeypatch, valid_entry, valid_key):
    vector = vector_of("stripe")
    comparisons = []

    class RecordingHmac:
        digest = staticmethod(hmac.digest)

        @staticmethod
        def compare_digest(one, other):
            comparisons.append((type(one), type(other), len(one) == len(other)))
            return hmac.compare_digest(one, other)

    monkeypatch.setattr("hookmill.domain.signatures.verify.hmac", RecordingHmac)
    entries = ["v1=" + "0" * 64] * 16
    entries[valid_entry] = "v1=" + vector.signatures()[0]
    header = ",".join([f"t={vector.at}", *entries]).encode()
    keys = [prepare_key(vector.scheme, "another")] * 2
    keys[valid_key] = vector.key
    request = replace(vector.request, headers={b"stripe-signature": header})

    assert isinstance(verify(vector.scheme, keys, request, vector.at * 1_000_000), Verified)
    assert comparisons == [(bytes, bytes, True)] * 32
