"""The verifier accepts the vector of every scheme, and refuses it after each change of a signed part.

The tests run for every scheme in the catalogue, so a new provider needs only its entry and its vector.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookmill.domain.signatures.encoding import Encoding
from hookmill.domain.signatures.key import prepare_key
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.scheme import Algorithm, Scheme
from hookmill.domain.signatures.verify import Failure, Unverified, Verified, provider_event_id, verify
from tests.support.counts import count
from tests.support.example_keys import example_pair
from tests.support.for_each import for_each

from .vector import NAMES, VECTORS, decoded, names_where, vector_of

EVERY_SCHEME = for_each("name", NAMES)


def has_encoded_signatures(scheme: Scheme) -> bool:
    """Whether signatures are encoded bytes, and not a token or a JWT."""
    return scheme.signature.encoding is not Encoding.TEXT


def enforces_time(scheme: Scheme) -> bool:
    return scheme.timestamp is not None and scheme.timestamp.enforced


def has_named_entries(scheme: Scheme) -> bool:
    """Whether a header contains a list in which each signature has a tag or a name."""
    return scheme.signature.list_format is not None and not scheme.signature.list_format.positional


def test_every_scheme_has_a_vector_and_every_vector_a_scheme():
    assert {path.stem for path in VECTORS.glob("*.json")} == set(NAMES)


def test_at_least_88_providers_are_in_the_catalogue():
    assert len(NAMES) >= 88


@EVERY_SCHEME
def test_vector_has_a_source_and_the_proof_of_its_scheme(name):
    record = vector_of(name).record

    assert record["expect"] == "verified"
    assert len(record["source"]) > 10
    assert record["proof"] == vector_of(name).scheme.proof.kind


@EVERY_SCHEME
def test_vector_verifies(name):
    assert isinstance(vector_of(name).verify(), Verified)


@EVERY_SCHEME
def test_delivery_id_of_a_vector_is_found(name):
    vector = vector_of(name)

    assert provider_event_id(vector.scheme, vector.request) == vector.delivery_id


@EVERY_SCHEME
def test_vector_does_not_verify_with_another_secret(name):
    vector = vector_of(name)
    other = prepare_key(vector.scheme, example_pair(vector.scheme, bytes(range(100, 164))).webhook_secret)

    assert verify(vector.scheme, [other], vector.request, vector.at * 1_000_000) == Unverified(Failure.MISMATCH)


@EVERY_SCHEME
def test_vector_verifies_with_any_of_several_keys(name):
    vector = vector_of(name)
    other = prepare_key(vector.scheme, example_pair(vector.scheme, bytes(range(100, 164))).webhook_secret)

    for keys in ([other, vector.key], [vector.key, other]):
        assert isinstance(verify(vector.scheme, keys, vector.request, vector.at * 1_000_000), Verified)


@EVERY_SCHEME
def test_vector_does_not_verify_without_a_key(name):
    vector = vector_of(name)

    assert verify(vector.scheme, [], vector.request, vector.at * 1_000_000) == Unverified(Failure.NO_KEY)


# The body


@for_each("name", names_where(lambda scheme: scheme.covers_body))
def test_changed_body_is_refused(name):
    vector = vector_of(name)
    body = vector.request.body

    for altered in (body + b" ", body[:-1], b"x" + body[1:], b"", b" " + body, body + b"\n", b"\xef\xbb\xbf" + body):
        assert isinstance(vector.verify(replace(vector.request, body=altered)), Unverified), altered


@for_each("name", names_where(lambda scheme: not scheme.covers_body))
def test_only_tokens_adyen_and_mailgun_do_not_cover_the_body(name):
    scheme = vector_of(name).scheme

    assert scheme.algorithm is Algorithm.TOKEN or name in {"adyen", "mailgun"}


# The signature


@EVERY_SCHEME
def test_changed_signature_is_refused(name):
    vector = vector_of(name)

    for place in (0, 0.25, 0.5, 0.75):
        request = vector.with_signatures(lambda signature, at=place: _with_other_letter(signature, at))
        assert isinstance(vector.verify(request), Unverified), place


def _with_other_letter(text: str, place: float) -> str:
    index = int(place * len(text))
    # The two letters differ in more than the unused bits of base64.
    return text[:index] + ("a" if text[index] not in "aAbB" else "7") + text[index + 1 :]


CHANGES: dict[str, Callable[[str], str]] = {
    "last character removed": lambda signature: signature[:-1],
    "last four characters removed": lambda signature: signature[:-4],
    "second half removed": lambda signature: signature[: len(signature) // 2],
    "only the first character": lambda signature: signature[:1],
    "empty": lambda signature: "",
    "blank": lambda signature: " ",
    "one character added": lambda signature: signature + "A",
    "four characters added": lambda signature: signature + "AAAA",
    "one padding character added": lambda signature: signature + "=",
    "four padding characters added": lambda signature: signature + "====",
    "repeated twice": lambda signature: signature * 2,
    "repeated 300 times": lambda signature: signature * 300,
    "not ASCII at the start": lambda signature: "é" + signature[1:],
    "not ASCII at the end": lambda signature: signature + "é",
    "NUL at the end": lambda signature: signature + "\x00",
    "only NULs": lambda signature: "\x00" * len(signature),
    "NUL inside": lambda signature: signature[:8] + "\x00" + signature[8:],
    "space inside": lambda signature: signature[:8] + " " + signature[8:],
    "line break inside": lambda signature: signature[:8] + "\n" + signature[8:],
    "line break at the end": lambda signature: signature + "\n",
    "quoted": lambda signature: f'"{signature}"',
    "0x before": lambda signature: "0x" + signature,
    "another prefix": lambda signature: "sha256=" + signature,
    "a tag before": lambda signature: "v1=" + signature,
    "repeated with an ampersand": lambda signature: f"{signature}&{signature}",
    "repeated with a bar": lambda signature: f"{signature}|{signature}",
}


@EVERY_SCHEME
def test_malformed_signature_is_refused(name):
    vector = vector_of(name)

    accepted = [
        description
        for description, change in CHANGES.items()
        if not isinstance(vector.verify(vector.with_signatures(change)), Unverified)
    ]
    assert accepted == []


@for_each("name", names_where(has_encoded_signatures))
def test_signature_in_another_encoding_is_refused(name):
    vector = vector_of(name)
    encoding = vector.scheme.signature.encoding

    for other, encode in _ENCODERS.items():
        if other is not encoding:
            request = vector.with_signatures(lambda signature, encode=encode: encode(decoded(vector.scheme, signature)))
            assert isinstance(vector.verify(request), Unverified), other


_ENCODERS = {
    Encoding.HEX: lambda value: value.hex(),
    # Padding where none is needed, so that the two kinds of base64 always differ.
    Encoding.BASE64: lambda value: base64.b64encode(value).decode() + "=" * (len(value) % 3 == 0),
    Encoding.BASE64URL: lambda value: (
        base64.urlsafe_b64encode(value).decode().rstrip("=") + "-" * (len(value) % 3 == 0)
    ),
    Encoding.TEXT: lambda value: value.decode("latin-1"),
}


@for_each("name", names_where(lambda scheme: scheme.signature.encoding is Encoding.HEX))
def test_hexadecimal_digits_are_case_insensitive(name):
    vector = vector_of(name)

    for case in (str.upper, str.lower):
        assert isinstance(vector.verify(vector.with_signatures(case)), Verified)


@for_each("name", names_where(lambda scheme: scheme.signature.encoding is Encoding.BASE64))
def test_base64_requires_its_alphabet_and_padding(name):
    vector = vector_of(name)
    url_safe = vector.with_signatures(lambda signature: signature.translate({43: "-", 47: "_"}))
    unpadded = vector.with_signatures(lambda signature: signature.rstrip("="))

    if any(set("+/") & set(signature) for signature in vector.signatures()):
        assert isinstance(vector.verify(url_safe), Unverified)
    if any("=" in signature for signature in vector.signatures()):
        assert isinstance(vector.verify(unpadded), Unverified)


@for_each("name", names_where(lambda scheme: scheme.signature.encoding is Encoding.BASE64URL))
def test_url_safe_base64_with_padding_or_another_alphabet_is_refused(name):
    vector = vector_of(name)

    assert isinstance(vector.verify(vector.with_signatures(lambda signature: signature + "=")), Unverified)
    assert isinstance(vector.verify(vector.with_signatures(lambda signature: signature[:-1] + "/")), Unverified)


@for_each("name", names_where(lambda scheme: bool(scheme.signature.prefix)))
def test_signature_without_its_prefix_is_refused(name):
    vector = vector_of(name)
    prefix = vector.scheme.signature.prefix.encode()

    for other in (b"", prefix[:-1], prefix.swapcase(), b" " + prefix[1:], b"sha1=" if prefix != b"sha1=" else b"md5="):
        headers = {
            header: other + value.removeprefix(prefix) if value.startswith(prefix) else value
            for header, value in vector.request.headers.items()
        }
        assert vector.verify(replace(vector.request, headers=headers)) == Unverified(Failure.WRONG_PREFIX)


# Lists of signatures

EVERY_LIST = for_each("name", names_where(lambda scheme: scheme.signature.list_format is not None))


def _with_list(name, before=(), after=()):
    """The vector's request with further entries before and after the signatures."""
    vector = vector_of(name)
    list_format = vector.scheme.signature.list_format
    header = next(
        key
        for key in vector.request.headers
        if key in vector.scheme.compiled.signature_or_signed_headers and _is_list(name, key)
    )
    parts = vector.request.headers[header].decode().split(list_format.separator)
    signatures = [part for part in parts if not _is_time(name, part)]
    times = [part for part in parts if _is_time(name, part)]
    value = list_format.separator.join([*times, *before, *signatures, *after])
    return replace(vector.request, headers={**vector.request.headers, header: value.encode()})


def _is_list(name, header):
    return f"header:{header.decode()}" in vector_of(name).scheme.signature.sources


def _is_time(name, part):
    scheme = vector_of(name).scheme
    source = scheme.timestamp.sources[0] if scheme.timestamp else ""
    if scheme.signature.list_format.positional:
        return part.isdigit()
    return source.startswith("field:") and part.strip().startswith(source.removeprefix("field:") + "=")


def _wrong_entry(name, number):
    vector = vector_of(name)
    list_format = vector.scheme.signature.list_format
    value = _ENCODERS[vector.scheme.signature.encoding](
        number.to_bytes(len(decoded(vector.scheme, vector.signatures()[-1])))
    )
    if list_format.positional:
        return value
    return f"{list_format.tag},{value}" if list_format.tag else f"{list_format.field}={value}"


@EVERY_LIST
def test_one_valid_signature_among_16_is_enough(name):
    vector = vector_of(name)
    wrong = [_wrong_entry(name, number) for number in range(16 - len(vector.signatures()))]

    for request in (_with_list(name, before=wrong), _with_list(name, after=wrong)):
        assert isinstance(vector.verify(request), Verified)


@EVERY_LIST
def test_more_than_16_signatures_are_refused_even_if_one_is_valid(name):
    vector = vector_of(name)
    wrong = [_wrong_entry(name, number) for number in range(17 - len(vector.signatures()))]

    assert vector.verify(_with_list(name, before=wrong)) == Unverified(Failure.TOO_MANY)


@EVERY_LIST
def test_header_with_1000_signatures_is_refused_as_too_long(name):
    vector = vector_of(name)
    request = _with_list(name, before=[_wrong_entry(name, number % 200) for number in range(1000)])

    assert vector.verify(request) == Unverified(Failure.TOO_LONG)


@for_each("name", names_where(has_named_entries))
@pytest.mark.parametrize("tag", ["v1a", "v2", "v9", "V1", "sha256", ""])
def test_signature_with_another_tag_is_refused(name, tag):
    vector = vector_of(name)
    list_format = vector.scheme.signature.list_format
    delimiter = "," if list_format.tag else "="
    own = (list_format.tag or list_format.field) + delimiter
    headers = {
        header: list_format.separator.join(
            tag + delimiter + part.removeprefix(own) if part.startswith(own) else part
            for part in value.decode().split(list_format.separator)
        ).encode()
        for header, value in vector.request.headers.items()
    }

    assert vector.verify(replace(vector.request, headers=headers)) == Unverified(Failure.NO_ENTRY)


def has_time_in_list(scheme: Scheme) -> bool:
    return scheme.timestamp is not None and scheme.timestamp.sources[0].startswith("field:")


@for_each("name", names_where(lambda scheme: has_named_entries(scheme) and has_time_in_list(scheme)))
def test_list_with_two_times_is_refused(name):
    vector = vector_of(name)
    field = vector.scheme.timestamp.sources[0].removeprefix("field:")
    list_format = vector.scheme.signature.list_format
    header = vector.scheme.signature.sources[0].removeprefix("header:").encode()
    value = vector.request.headers[header] + f"{list_format.separator}{field}=1".encode()

    assert vector.verify(replace(vector.request, headers={**vector.request.headers, header: value})) == Unverified(
        Failure.NO_TIMESTAMP
    )


# Headers


@EVERY_SCHEME
def test_signed_header_with_two_different_values_is_refused(name):
    vector = vector_of(name)

    for header in vector.request.headers:
        result = vector.verify(replace(vector.request, conflicting_headers=frozenset({header})))
        if header in vector.scheme.compiled.used_headers:
            assert result == Unverified(Failure.REPEATED_HEADER), header
        elif vector.scheme.signed_headers is not None:
            assert isinstance(result, Unverified), header
        else:
            assert isinstance(result, Verified), header


@EVERY_SCHEME
def test_every_used_header_is_required(name):
    vector = vector_of(name)

    for header in vector.request.headers:
        # If there are two signatures, either of their headers is enough.
        if header not in vector.scheme.compiled.used_headers or len(vector.signatures()) > 1:
            continue
        for value in (None, b"", b" ", b"\xff\xfe", b"\x00", b"0" * 9000):
            headers = {key: other for key, other in vector.request.headers.items() if key != header}
            if value is not None:
                headers[header] = value
            assert isinstance(vector.verify(replace(vector.request, headers=headers)), Unverified), (header, value)


@EVERY_SCHEME
def test_white_space_around_a_header_is_ignored(name):
    vector = vector_of(name)
    headers = {header: b" \t" + value + b" " for header, value in vector.request.headers.items()}

    assert isinstance(vector.verify(replace(vector.request, headers=headers)), Verified)


# Time


@for_each("name", names_where(enforces_time))
def test_signature_is_accepted_up_to_300_seconds_before_and_after(name):
    vector = vector_of(name)

    assert isinstance(vector.verify(late_seconds=300), Verified)
    assert vector.verify(late_seconds=301) == Unverified(Failure.STALE, 301)
    assert isinstance(vector.verify(late_seconds=-300), Verified)
    assert vector.verify(late_seconds=-301) == Unverified(Failure.AHEAD, 301)


def test_four_schemes_enforce_the_time():
    enforced = names_where(enforces_time)

    assert enforced == ["polar", "standard_webhooks", "stripe", "svix"]
    rules = [vector_of(name).scheme.timestamp for name in enforced]
    assert {rule.tolerance_seconds for rule in rules if rule is not None} == {300}


@for_each(
    "name",
    names_where(lambda scheme: scheme.jwt is None and not enforces_time(scheme)),
)
def test_other_schemes_accept_signatures_of_any_age(name):
    vector = vector_of(name)

    for late_seconds in (10**9, -(10**9)):
        assert isinstance(vector.verify(late_seconds=late_seconds), Verified)


INVALID_TIMES = ["", "0x10", "1_7", "+17", "-17", "1.5", "1e9", "١٢٣", "nan", "9" * 16, "2025-02-30T00:00:00Z", "17 00"]


@for_each("name", names_where(lambda scheme: bool(scheme.compiled.needs_timestamp)))
def test_invalid_time_is_refused(name):
    vector = vector_of(name)

    for time in INVALID_TIMES:
        result = vector.verify(with_time(vector, time))
        assert result.reason in {Failure.BAD_TIMESTAMP, Failure.NO_TIMESTAMP}, time


def with_time(vector: Any, time: str) -> Any:
    """The request with another text instead of its time."""
    kind, _, field = vector.scheme.timestamp.sources[0].partition(":")
    headers = dict(vector.request.headers)
    if kind == "header":
        headers[field.encode()] = time.encode()
    else:
        header = vector.scheme.signature.sources[0].removeprefix("header:").encode()
        time_text = next(
            part.strip().removeprefix(f"{field}=")
            for part in headers.get(header, b"0").decode().split(vector.scheme.signature.list_format.separator)
        )
        headers[header] = headers[header].replace(time_text.encode(), time.encode(), 1)
    return replace(vector.request, headers=headers)


@for_each("name", names_where(enforces_time))
def test_replay_has_the_same_fingerprint_in_every_spelling(name):
    vector = vector_of(name)
    result = vector.verify()

    assert len(result.fingerprint) == 16
    assert vector.verify() == result
    if vector.scheme.signature.encoding is Encoding.HEX:
        assert vector.verify(vector.with_signatures(str.upper)) == result


@for_each("name", names_where(lambda scheme: not enforces_time(scheme)))
def test_signature_has_no_fingerprint_if_the_time_is_not_enforced(name):
    assert vector_of(name).verify() == Verified(None)


# Arbitrary requests


HEADER_VALUES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"v1,", b"t=,v1=", b"v1,v1,v1", b"=", b",", b"a.b.c", b"..", b"e30.e30.e30", b"v0=", b"sha256="]),
    st.integers().map(lambda number: str(number).encode()),
)
BODIES = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(
        [
            b'{"signature":{"timestamp":1e999999,"token":"\\ud83d","signature":[]}}',
            b'{"notificationItems":[{"NotificationRequestItem":{"amount":{"value":' + b"9" * 5000 + b"}}}]}",
            b'{"passcode":"\\ud83d"}',
            b"[" * 600,
            b'{"id":' + b"9" * 5000 + b"}",
            b'{"id":null,"event":7,"data":{"id":true},"update_id":-0}',
        ]
    ),
)


@EVERY_SCHEME
@pytest.mark.timeout(600)
@settings(max_examples=count(25, usually=4), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_headers_and_body_have_a_result(name, data):
    vector = vector_of(name)
    headers = {
        header: data.draw(HEADER_VALUES) if data.draw(st.booleans()) else value
        for header, value in vector.request.headers.items()
    }
    body = data.draw(BODIES)
    request = SignedRequest(headers, frozenset(), body, data.draw(st.text(max_size=30)), data.draw(st.text(max_size=8)))

    now = data.draw(st.integers(-(10**18), 10**18))

    assert isinstance(verify(vector.scheme, [vector.key], request, now), Verified | Unverified)
    assert isinstance(provider_event_id(vector.scheme, request), bytes | None)


@EVERY_SCHEME
def test_huge_numbers_and_deep_nesting_in_the_body_have_a_result(name):
    vector = vector_of(name)

    for body in (b"[" * 100_000, b'{"a":' * 600, b"9" * 100_000, json.dumps({"id": "x" * 100_000}).encode(), b"\xff"):
        request = replace(vector.request, body=body)
        assert isinstance(vector.verify(request), Verified | Unverified)
        assert isinstance(provider_event_id(vector.scheme, request), bytes | None)
