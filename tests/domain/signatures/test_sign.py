"""The verifier accepts what the signer signs. The tests of the vectors show that the verifier is correct."""

from dataclasses import replace

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.payload import Parsed, parse
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.encoding import TimeUnit, encode_time, seconds_since_1970
from hookmill.domain.signatures.key import prepare_key
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.sign import sign
from hookmill.domain.signatures.verify import Failure, Unverified, Verified, provider_event_id, verify
from tests.inputs.extreme_payloads import EXTREME_VALUES, payload_with
from tests.support.example_keys import example_pair
from tests.support.for_each import for_each

from .vector import NAMES, names_where, vector_of

URL = "https://hooks.example.com/webhooks/w/wh_abc"
BODY = '{"kind":"zoë","count":3}'.encode()
AT_US = 1_760_000_000_123_456
EVERY_SCHEME = for_each("name", NAMES)


def signed_request(name, body=BODY, at_us=AT_US, delivery_id=None, url=URL):
    scheme = catalogue.find(name)
    pair = example_pair(scheme, bytes(range(64)))
    signed = sign(scheme, pair.sender_secret, body, url, at_us, delivery_id)
    headers = {header.lower().encode(): value.encode() for header, value in signed.headers}
    assert len(headers) == len(signed.headers)
    return SignedRequest(headers, frozenset(), signed.body, signed.url), prepare_key(scheme, pair.webhook_secret)


@EVERY_SCHEME
def test_signed_request_verifies_at_its_time(name):
    request, key = signed_request(name)

    assert isinstance(verify(catalogue.find(name), [key], request, AT_US), Verified)


@EVERY_SCHEME
def test_delivery_id_of_a_signed_request_can_be_read(name):
    request, key = signed_request(name, delivery_id="evt-17")
    scheme = catalogue.find(name)

    assert isinstance(verify(scheme, [key], request, AT_US), Verified)
    assert provider_event_id(scheme, request) == (b"evt-17" if scheme.delivery_id else None)


@for_each("name", names_where(lambda scheme: scheme.covers_body))
def test_signed_request_does_not_verify_with_another_body(name):
    request, key = signed_request(name)

    assert isinstance(
        verify(catalogue.find(name), [key], replace(request, body=request.body + b" "), AT_US), Unverified
    )


@for_each("name", names_where(lambda scheme: bool(scheme.timestamp and scheme.timestamp.enforced)))
def test_request_can_be_signed_at_any_time(name):
    request, key = signed_request(name, at_us=AT_US - 301_000_000)

    assert verify(catalogue.find(name), [key], request, AT_US) == Unverified(Failure.STALE, 301)


@for_each("name", names_where(lambda scheme: bool(scheme.timestamp and scheme.timestamp.enforced)))
def test_requests_signed_at_different_times_have_different_fingerprints(name):
    scheme = catalogue.find(name)
    fingerprints = set()
    for at_us in (AT_US, AT_US + 1_000_000):
        request, key = signed_request(name, at_us=at_us, delivery_id="evt-1")
        result = verify(scheme, [key], request, AT_US)
        assert isinstance(result, Verified)
        fingerprints.add(result.fingerprint)

    assert len(fingerprints) == 2


def _signer_can_reproduce_the_vector(scheme):
    """Whether the signer writes the time and the headers exactly as in the vector, so that the MACs must be equal."""
    in_headers = all(source.startswith("header:") for source in scheme.signature.sources)
    whole_seconds = scheme.timestamp is None or scheme.timestamp.unit is TimeUnit.SECONDS
    return scheme.compiled.family in {"hmac", "hash"} and in_headers and whole_seconds and not scheme.signed_headers


@for_each("name", names_where(_signer_can_reproduce_the_vector))
def test_signer_creates_the_signature_of_the_vector(name):
    vector = vector_of(name)
    scheme, request = vector.scheme, vector.request
    in_header = scheme.delivery_id and scheme.delivery_id[0].startswith("header:")
    delivery_id = vector.delivery_id.decode() if in_header and vector.delivery_id else None

    signed = sign(scheme, vector.secret, request.body, request.url, vector.at * 1_000_000, delivery_id)

    headers = {header.lower().encode(): value.encode() for header, value in signed.headers}
    signatures = replace(vector, request=replace(request, headers=headers)).signatures()
    assert {each.lower() for each in signatures} <= {each.lower() for each in vector.signatures()}


def test_scheme_with_a_signature_in_the_body_only_adds_this_field():
    request, _ = signed_request("figma")

    assert request.body.startswith('{"kind":"zoë","count":3,"passcode":'.encode())


@pytest.mark.parametrize("value", EXTREME_VALUES.values(), ids=EXTREME_VALUES.keys())
def test_signature_in_the_body_leaves_extreme_values_as_they_are(value):
    before, (request, _) = parse(payload_with(value)), signed_request("figma", payload_with(value))
    after = parse(request.body)

    assert isinstance(before, Parsed)
    assert isinstance(after, Parsed)
    assert {name: after.value[name] for name in before.value} == before.value


def test_scheme_with_a_signature_in_a_header_does_not_change_the_body():
    request, _ = signed_request("stripe")

    assert request.body == BODY


def test_url_for_twilio_contains_the_digest_of_the_body_once():
    request, _ = signed_request("twilio", url=URL + "?a=1&bodySHA256=old")

    assert request.url.startswith(URL + "?a=1&bodySHA256=")
    assert request.url.count("bodySHA256") == 1


@pytest.mark.parametrize("body", [b"[]", b"7", b"not json", b'{"signature":7}', b"\xff"])
def test_body_that_cannot_contain_the_signature_is_refused(body):
    with pytest.raises(Invalid, match="into the body"):
        signed_request("mailgun", body=body)


@pytest.mark.parametrize("body", [b'{"data":[{"x":1}]}', b'{"data":7}'])
def test_body_that_cannot_contain_the_delivery_id_is_refused(body):
    with pytest.raises(Invalid, match=r"into the body at data\.id"):
        signed_request("persona", body=body, delivery_id="evt_1")


@pytest.mark.parametrize(
    ("name", "secret"), [("discord", "ab"), ("sendgrid", "-----BEGIN PRIVATE KEY-----"), ("wise", "x")]
)
def test_text_that_is_not_a_private_key_is_refused(name, secret):
    with pytest.raises(Invalid, match="private key"):
        sign(catalogue.find(name), secret, BODY, URL, AT_US)


@pytest.mark.parametrize("unit", list(TimeUnit))
def test_encoded_time_is_decoded_to_the_same_second(unit):
    assert seconds_since_1970(encode_time(AT_US, unit).encode(), unit) == AT_US // 1_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2020-01-01T00:00:00-07:00", 1577862000),
        ("2020-01-01T07:00:00Z", 1577862000),
        ("2020-01-01T07:00:00.999999999+00:00", 1577862000),
        ("2020-01-01T07:00:00", None),
        ("2020-01-01 07:00:00Z", None),
        ("2020-1-1T07:00:00Z", None),
        ("2020-13-01T07:00:00Z", None),
        ("2020-02-30T07:00:00Z", None),
        ("0000-01-01T07:00:00Z", None),
        ("0001-01-01T00:00:00+14:00", -62135647200),
        ("2020-01-01T07:00:00z", None),
        ("2020-01-01T07:00:00Z\n", None),
        ("2020-01-01T07:00:00.1234567890Z", None),
    ],
)
def test_iso_8601_is_decoded_strictly(text, seconds):
    assert seconds_since_1970(text.encode(), TimeUnit.ISO8601) == seconds
