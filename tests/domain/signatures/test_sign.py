"""What the signer signs, the verifier takes; that the verifier is right is shown by the vectors and not here."""

from dataclasses import replace

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.encoding import TimeUnit, encode_time, seconds_since_1970
from hookmill.domain.signatures.key import prepare_key
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.sign import example_secret, sign
from hookmill.domain.signatures.verify import Failure, Unverified, Verified, provider_event_id, verify
from tests.support.for_each import for_each

from .examples import NAMES, example, those

URL = "https://hooks.example.com/webhooks/w/wh_abc"
BODY = '{"kind":"zoë","count":3}'.encode()
AT_US = 1_760_000_000_123_456
EVERY_SCHEME = for_each("name", NAMES)


def signed_request(name, body=BODY, at_us=AT_US, event=None, url=URL):
    scheme = catalogue.find(name)
    pair = example_secret(scheme, bytes(range(64)))
    signed = sign(scheme, pair.sender_secret, body, url, at_us, event)
    headers = {header.lower().encode(): value.encode() for header, value in signed.headers}
    assert len(headers) == len(signed.headers)
    return SignedRequest(headers, frozenset(), signed.body, signed.url), prepare_key(scheme, pair.webhook_secret)


@EVERY_SCHEME
def test_a_signed_request_verifies_at_its_time(name):
    request, key = signed_request(name)

    assert isinstance(verify(catalogue.find(name), [key], request, AT_US), Verified)


@EVERY_SCHEME
def test_the_chosen_delivery_id_is_the_one_that_is_found(name):
    request, key = signed_request(name, event="evt-17")
    scheme = catalogue.find(name)

    assert isinstance(verify(scheme, [key], request, AT_US), Verified)
    assert provider_event_id(scheme, request) == (b"evt-17" if scheme.delivery_id else None)


@for_each("name", those(lambda scheme: scheme.covers_body))
def test_a_signed_request_does_not_verify_with_another_body(name):
    request, key = signed_request(name)

    assert isinstance(
        verify(catalogue.find(name), [key], replace(request, body=request.body + b" "), AT_US), Unverified
    )


@for_each("name", those(lambda scheme: bool(scheme.timestamp and scheme.timestamp.enforced)))
def test_any_clock_skew_can_be_tried_out(name):
    request, key = signed_request(name, at_us=AT_US - 301_000_000)

    assert verify(catalogue.find(name), [key], request, AT_US) == Unverified(Failure.STALE, 301)


@for_each("name", those(lambda scheme: bool(scheme.timestamp and scheme.timestamp.enforced)))
def test_another_time_has_another_fingerprint(name):
    scheme = catalogue.find(name)
    fingerprints = set()
    for at_us in (AT_US, AT_US + 1_000_000):
        request, key = signed_request(name, at_us=at_us, event="evt-1")
        verdict = verify(scheme, [key], request, AT_US)
        assert isinstance(verdict, Verified)
        fingerprints.add(verdict.fingerprint)

    assert len(fingerprints) == 2


def _writes_whole_seconds_in_headers(scheme):
    """Whether the vector's time and signed headers are what the signer writes too, so that the MACs can be equal."""
    in_headers = all(where.startswith("header:") for where in scheme.signature.sources)
    whole_seconds = scheme.timestamp is None or scheme.timestamp.unit is TimeUnit.SECONDS
    return scheme.compiled.family in {"hmac", "hash"} and in_headers and whole_seconds and not scheme.signed_headers


@for_each("name", those(_writes_whole_seconds_in_headers))
def test_the_signer_writes_the_same_signature_as_the_vector(name):
    given = example(name)
    scheme, request = given.scheme, given.request
    in_header = scheme.delivery_id and scheme.delivery_id[0].startswith("header:")
    event = given.delivery_id.decode() if in_header and given.delivery_id else None

    signed = sign(scheme, given.secret, request.body, request.url, given.at * 1_000_000, event)

    sent = {header.lower().encode(): value.encode() for header, value in signed.headers}
    ours = replace(given, request=replace(request, headers=sent)).signatures()
    assert {one.lower() for one in ours} <= {one.lower() for one in given.signatures()}


def test_a_body_field_scheme_changes_the_body_only_where_it_must():
    request, _ = signed_request("figma")

    assert request.body.startswith('{"kind":"zoë","count":3,"passcode":'.encode())


def test_other_schemes_leave_the_body_as_it_is():
    request, _ = signed_request("stripe")

    assert request.body == BODY


def test_twilios_url_carries_the_bodys_digest_once():
    request, _ = signed_request("twilio", url=URL + "?a=1&bodySHA256=old")

    assert request.url.startswith(URL + "?a=1&bodySHA256=")
    assert request.url.count("bodySHA256") == 1


@pytest.mark.parametrize("body", [b"[]", b"7", b"not json", b'{"signature":7}', b"\xff"])
def test_a_body_that_can_not_hold_the_signature_is_refused(body):
    with pytest.raises(Invalid, match="into the body"):
        signed_request("mailgun", body=body)


@pytest.mark.parametrize("body", [b'{"data":[{"x":1}]}', b'{"data":7}'])
def test_body_that_can_not_hold_the_delivery_id_is_refused(body):
    with pytest.raises(Invalid, match=r"into the body at data\.id"):
        signed_request("persona", body=body, event="evt_1")


@pytest.mark.parametrize(
    ("name", "secret"), [("discord", "ab"), ("sendgrid", "-----BEGIN PRIVATE KEY-----"), ("wise", "x")]
)
def test_what_is_no_private_key_is_refused(name, secret):
    with pytest.raises(Invalid, match="private key"):
        sign(catalogue.find(name), secret, BODY, URL, AT_US)


@pytest.mark.parametrize("unit", list(TimeUnit))
def test_a_encode_time_is_read_again(unit):
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
def test_iso_8601_is_read_strictly(text, seconds):
    assert seconds_since_1970(text.encode(), TimeUnit.ISO8601) == seconds
