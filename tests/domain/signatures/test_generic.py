"""The generic scheme, whose options the user chooses."""

import base64
import hashlib
import hmac

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures.generic import generic_scheme, read_generic_options
from hookmill.domain.signatures.key import prepare_key
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.verify import Failure, Unverified, Verified, verify

SECRET = "c2VjcmV0LW9mLXRoZS1zZW5kZXI="
BODY = b'{"a":1}'
AT = 1_760_000_000


def make_scheme(**fields):
    return generic_scheme(read_generic_options({"header": "X-Signature", **fields}))


def result_of(scheme, headers, now=AT, url="https://h.example/w"):
    request = SignedRequest(headers, frozenset(), BODY, url)
    return verify(scheme, [prepare_key(scheme, SECRET)], request, now * 1_000_000)


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("hex", bytes.hex),
        ("base64", lambda mac: base64.b64encode(mac).decode()),
        ("base64url", lambda mac: base64.urlsafe_b64encode(mac).decode().rstrip("=")),
    ],
)
@pytest.mark.parametrize("prefix", ["", "sha=", "HMAC "])
def test_signed_body_verifies_with_any_algorithm_encoding_and_prefix(algorithm, encoding, encode, prefix):
    mac = hmac.new(SECRET.encode(), BODY, algorithm).digest()
    scheme = make_scheme(algorithm=algorithm, encoding=encoding, prefix=prefix)

    assert isinstance(result_of(scheme, {b"x-signature": (prefix + encode(mac)).encode()}), Verified)
    assert isinstance(result_of(scheme, {b"x-signature": encode(mac[:-1] + b"!").encode()}), Unverified)


def test_secret_can_be_base64():
    mac = hmac.new(base64.b64decode(SECRET), BODY, hashlib.sha256).hexdigest()

    assert isinstance(result_of(make_scheme(secret="base64"), {b"x-signature": mac.encode()}), Verified)


def test_signed_content_can_include_the_time_the_url_and_headers():
    scheme = make_scheme(
        content="{ts}\n{url}|{header:X-Event}|{body}", timestamp_header="X-Time", tolerance_seconds=300
    )
    mac = hmac.new(SECRET.encode(), f"{AT}\nhttps://h.example/w|ping|".encode() + BODY, hashlib.sha256).hexdigest()
    headers = {b"x-signature": mac.encode(), b"x-time": str(AT).encode(), b"x-event": b"ping"}

    assert isinstance(result_of(scheme, headers), Verified)
    assert isinstance(result_of(scheme, headers, now=AT + 300), Verified)
    assert result_of(scheme, headers, now=AT + 301) == Unverified(Failure.STALE, 301)
    assert result_of(scheme, headers, now=AT - 301) == Unverified(Failure.AHEAD, 301)
    assert isinstance(result_of(scheme, headers, url="https://h.example/x"), Unverified)
    assert isinstance(result_of(scheme, {**headers, b"x-event": b"pong"}), Unverified)
    assert result_of(scheme, {name: value for name, value in headers.items() if name != b"x-event"}) == Unverified(
        Failure.INCOMPLETE
    )


def test_signature_of_any_age_is_valid_without_a_tolerance():
    scheme = make_scheme(content="{ts}{body}", timestamp_header="X-Time", timestamp_unit="ms")
    mac = hmac.new(SECRET.encode(), b"1000" + BODY, hashlib.sha256).hexdigest()

    assert isinstance(result_of(scheme, {b"x-signature": mac.encode(), b"x-time": b"1000"}), Verified)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"header": "no spaces please"}, "header"),
        ({"header": ""}, "header"),
        ({"header": "Cookie"}, "header"),
        ({"header": 7}, "header"),
        ({"prefix": "ü"}, "prefix"),
        ({"prefix": "a" * 65}, "prefix"),
        ({"prefix": "a\n"}, "prefix"),
        ({"algorithm": "md5"}, "algorithm"),
        ({"encoding": "text"}, "encoding"),
        ({"secret": "spki"}, "secret"),
        ({"content": ""}, "content"),
        ({"content": "{url}"}, "content"),
        ({"content": "{body}{secret}"}, "content"),
        ({"content": "{body}{"}, "content"),
        ({"content": "{body}{json:a}"}, "content"),
        ({"content": "{body}{header:a b}"}, "content"),
        ({"content": "{body}\x00"}, "content"),
        ({"content": "{body}" + "a" * 512}, "content"),
        ({"content": "{ts}{body}"}, "timestamp_header"),
        ({"timestamp_header": "X-Time"}, "timestamp_header"),
        ({"timestamp_header": "X Time", "content": "{ts}{body}"}, "timestamp_header"),
        ({"timestamp_unit": "minutes"}, "timestamp_unit"),
        ({"tolerance_seconds": 300}, "tolerance_seconds"),
        ({"tolerance_seconds": 0, "timestamp_header": "T", "content": "{ts}{body}"}, "tolerance_seconds"),
        ({"tolerance_seconds": "5m", "timestamp_header": "T", "content": "{ts}{body}"}, "tolerance_seconds"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_message_about_an_invalid_option_names_it(fields, field):
    with pytest.raises(Invalid, match=rf"\b{field}\b"):
        make_scheme(**fields)


def test_header_is_required():
    with pytest.raises(Invalid, match="header"):
        read_generic_options({})
