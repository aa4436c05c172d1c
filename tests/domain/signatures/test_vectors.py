"""Every scheme against a request that something else signed, and against that request spoilt in every way.

Everything here goes by the catalogue: a new provider is covered by its entry and its vector file.
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
from hookmill.domain.signatures.scheme import Algorithm, ProofKind, Scheme
from hookmill.domain.signatures.sign import example_secret
from hookmill.domain.signatures.verify import Failure, Unverified, Verified, provider_event_id, verify
from tests.support.counts import count
from tests.support.for_each import for_each

from .examples import NAMES, VECTORS, example, raw, those

EVERY_SCHEME = for_each("name", NAMES)


def digests(scheme: Scheme) -> bool:
    """Whether its signatures are encoded bytes, rather than a token or a JWT."""
    return scheme.signature.encoding is not Encoding.TEXT


ENCODED = for_each("name", those(digests))


def test_every_scheme_has_a_vector_and_every_vector_a_scheme():
    assert {path.stem for path in VECTORS.glob("*.json")} == set(NAMES)


def test_at_least_88_providers_are_in_the_catalogue():
    assert len(NAMES) >= 88


@EVERY_SCHEME
def test_a_vector_says_where_it_comes_from(name):
    record = example(name).record

    assert record["expect"] == "verified"
    assert len(record["source"]) > 10
    assert record["proof"] == example(name).scheme.proof.kind


@EVERY_SCHEME
def test_a_scheme_without_proof_is_experimental(name):
    scheme = example(name).scheme

    assert scheme.experimental is (scheme.proof.kind is ProofKind.NONE)


@EVERY_SCHEME
def test_its_vector_verifies(name):
    assert isinstance(example(name).judge(), Verified)


@EVERY_SCHEME
def test_its_delivery_id_is_found(name):
    given = example(name)

    assert provider_event_id(given.scheme, given.request) == given.delivery_id


@EVERY_SCHEME
def test_another_secret_does_not_verify_it(name):
    given = example(name)
    other = prepare_key(given.scheme, example_secret(given.scheme, bytes(range(100, 164))).webhook_secret)

    assert verify(given.scheme, [other], given.request, given.at * 1_000_000) == Unverified(Failure.MISMATCH)


@EVERY_SCHEME
def test_any_of_several_keys_will_do(name):
    given = example(name)
    other = prepare_key(given.scheme, example_secret(given.scheme, bytes(range(100, 164))).webhook_secret)

    for keys in ([other, given.key], [given.key, other]):
        assert isinstance(verify(given.scheme, keys, given.request, given.at * 1_000_000), Verified)


@EVERY_SCHEME
def test_without_a_key_nothing_verifies(name):
    given = example(name)

    assert verify(given.scheme, [], given.request, given.at * 1_000_000) == Unverified(Failure.NO_KEY)


# The body


@for_each("name", those(lambda scheme: scheme.covers_body))
def test_an_altered_body_is_refused(name):
    given = example(name)
    body = given.request.body

    for altered in (body + b" ", body[:-1], b"x" + body[1:], b"", b" " + body, body + b"\n", b"\xef\xbb\xbf" + body):
        assert isinstance(given.judge(replace(given.request, body=altered)), Unverified), altered


@for_each("name", those(lambda scheme: not scheme.covers_body))
def test_a_scheme_that_does_not_cover_the_body_is_known_not_to(name):
    scheme = example(name).scheme

    assert scheme.algorithm is Algorithm.TOKEN or name in {"adyen", "mailgun"}


# The signature


@EVERY_SCHEME
def test_an_altered_signature_is_refused(name):
    given = example(name)

    for place in (0, 0.25, 0.5, 0.75):
        altered = given.with_signatures(lambda one, at=place: _with_other_letter(one, int(at * len(one))))
        assert isinstance(given.judge(altered), Unverified), place


def _with_other_letter(text: str, index: int) -> str:
    # Letters far apart, so that a difference in base64's unused bits can't hide it.
    return text[:index] + ("a" if text[index] not in "aAbB" else "7") + text[index + 1 :]


SPOILT: dict[str, Callable[[str], str]] = {
    "last character cut": lambda one: one[:-1],
    "four characters cut": lambda one: one[:-4],
    "half": lambda one: one[: len(one) // 2],
    "one character": lambda one: one[:1],
    "empty": lambda one: "",
    "blank": lambda one: " ",
    "one character more": lambda one: one + "A",
    "four characters more": lambda one: one + "AAAA",
    "one padding more": lambda one: one + "=",
    "four paddings more": lambda one: one + "====",
    "twice": lambda one: one * 2,
    "300 times": lambda one: one * 300,
    "not ASCII": lambda one: "é" + one[1:],
    "not ASCII at the end": lambda one: one + "é",
    "NUL at the end": lambda one: one + "\x00",
    "NULs": lambda one: "\x00" * len(one),
    "NUL inside": lambda one: one[:8] + "\x00" + one[8:],
    "space inside": lambda one: one[:8] + " " + one[8:],
    "line break inside": lambda one: one[:8] + "\n" + one[8:],
    "line break at the end": lambda one: one + "\n",
    "quoted": lambda one: f'"{one}"',
    "0x before": lambda one: "0x" + one,
    "another prefix": lambda one: "sha256=" + one,
    "a tag before": lambda one: "v1=" + one,
    "two with an ampersand": lambda one: f"{one}&{one}",
    "two with a bar": lambda one: f"{one}|{one}",
}


@EVERY_SCHEME
def test_a_spoilt_signature_is_refused(name):
    given = example(name)

    accepted = [
        what for what, spoil in SPOILT.items() if not isinstance(given.judge(given.with_signatures(spoil)), Unverified)
    ]
    assert accepted == []


@ENCODED
def test_a_right_signature_in_another_encoding_is_refused(name):
    given = example(name)
    encoding = given.scheme.signature.encoding

    for other, write in _WRITERS.items():
        if other is not encoding:
            request = given.with_signatures(lambda one, write=write: write(raw(given.scheme, one)))
            assert isinstance(given.judge(request), Unverified), other


_WRITERS = {
    Encoding.HEX: lambda value: value.hex(),
    # Padded where it needs none, so that the two kinds of base64 never look alike.
    Encoding.BASE64: lambda value: base64.b64encode(value).decode() + "=" * (len(value) % 3 == 0),
    Encoding.BASE64URL: lambda value: (
        base64.urlsafe_b64encode(value).decode().rstrip("=") + "-" * (len(value) % 3 == 0)
    ),
    Encoding.TEXT: lambda value: value.decode("latin-1"),
}


@for_each("name", those(lambda scheme: scheme.signature.encoding is Encoding.HEX))
def test_hex_digits_may_be_of_either_case(name):
    given = example(name)

    for case in (str.upper, str.lower):
        assert isinstance(given.judge(given.with_signatures(case)), Verified)


@for_each("name", those(lambda scheme: scheme.signature.encoding is Encoding.BASE64))
def test_base64_keeps_its_alphabet_and_its_padding(name):
    given = example(name)
    url_safe = given.with_signatures(lambda one: one.translate({43: "-", 47: "_"}))
    unpadded = given.with_signatures(lambda one: one.rstrip("="))

    if any(set("+/") & set(one) for one in given.signatures()):
        assert isinstance(given.judge(url_safe), Unverified)
    if any("=" in one for one in given.signatures()):
        assert isinstance(given.judge(unpadded), Unverified)


@for_each("name", those(lambda scheme: scheme.signature.encoding is Encoding.BASE64URL))
def test_url_safe_base64_takes_no_padding_and_no_other_alphabet(name):
    given = example(name)

    assert isinstance(given.judge(given.with_signatures(lambda one: one + "=")), Unverified)
    assert isinstance(given.judge(given.with_signatures(lambda one: one[:-1] + "/")), Unverified)


@for_each("name", those(lambda scheme: bool(scheme.signature.prefix)))
def test_a_right_signature_without_its_prefix_is_refused(name):
    given = example(name)
    prefix = given.scheme.signature.prefix.encode()

    for other in (b"", prefix[:-1], prefix.swapcase(), b" " + prefix[1:], b"sha1=" if prefix != b"sha1=" else b"md5="):
        headers = {
            header: other + value.removeprefix(prefix) if value.startswith(prefix) else value
            for header, value in given.request.headers.items()
        }
        assert given.judge(replace(given.request, headers=headers)) == Unverified(Failure.WRONG_PREFIX)


# Lists of signatures

LISTS = for_each("name", those(lambda scheme: scheme.signature.list_format is not None))


def _with_list(name, before=(), after=()):
    """The example's request with wrong signatures before and after the right ones."""
    given = example(name)
    list_format = given.scheme.signature.list_format
    header = next(
        key
        for key in given.request.headers
        if key in given.scheme.compiled.signature_or_signed_headers and _is_list(name, key)
    )
    parts = given.request.headers[header].decode().split(list_format.separator)
    right = [part for part in parts if not _is_time(name, part)]
    times = [part for part in parts if _is_time(name, part)]
    value = list_format.separator.join([*times, *before, *right, *after])
    return replace(given.request, headers={**given.request.headers, header: value.encode()})


def _is_list(name, header):
    return f"header:{header.decode()}" in example(name).scheme.signature.sources


def _is_time(name, part):
    scheme = example(name).scheme
    source = scheme.timestamp.sources[0] if scheme.timestamp else ""
    if scheme.signature.list_format.positional:
        return part.isdigit()
    return source.startswith("field:") and part.strip().startswith(source.removeprefix("field:") + "=")


def _wrong(name, number=0, tag=None):
    given = example(name)
    list_format = given.scheme.signature.list_format
    value = _WRITERS[given.scheme.signature.encoding](number.to_bytes(len(raw(given.scheme, given.signatures()[-1]))))
    if list_format.positional:
        return value
    return f"{tag or list_format.tag},{value}" if list_format.tag else f"{tag or list_format.field}={value}"


@LISTS
def test_one_right_signature_among_several_is_enough(name):
    given = example(name)
    room = 16 - len(given.signatures())
    wrong = [_wrong(name, number) for number in range(room)]

    for request in (_with_list(name, before=wrong), _with_list(name, after=wrong)):
        assert isinstance(given.judge(request), Verified)


@LISTS
def test_more_than_16_signatures_are_refused_though_one_is_right(name):
    given = example(name)
    wrong = [_wrong(name, number) for number in range(17 - len(given.signatures()))]

    assert given.judge(_with_list(name, before=wrong)) == Unverified(Failure.TOO_MANY)


@LISTS
def test_1000_signatures_are_refused_unread(name):
    given = example(name)
    request = _with_list(name, before=[_wrong(name, number % 200) for number in range(1000)])

    assert given.judge(request) == Unverified(Failure.TOO_LONG)


@for_each(
    "name",
    those(lambda scheme: scheme.signature.list_format is not None and not scheme.signature.list_format.positional),
)
@pytest.mark.parametrize("tag", ["v1a", "v2", "v9", "V1", "sha256", ""])
def test_a_right_signature_under_another_tag_is_refused(name, tag):
    given = example(name)
    list_format = given.scheme.signature.list_format
    between = "," if list_format.tag else "="
    own = (list_format.tag or list_format.field) + between
    headers = {
        header: list_format.separator.join(
            tag + between + part.removeprefix(own) if part.startswith(own) else part
            for part in value.decode().split(list_format.separator)
        ).encode()
        for header, value in given.request.headers.items()
    }

    assert given.judge(replace(given.request, headers=headers)) == Unverified(Failure.NO_ENTRY)


@for_each(
    "name",
    those(
        lambda scheme: (
            scheme.signature.list_format is not None
            and not scheme.signature.list_format.positional
            and scheme.timestamp is not None
            and scheme.timestamp.sources[0].startswith("field:")
        )
    ),
)
def test_a_list_with_two_times_is_refused(name):
    given = example(name)
    field = given.scheme.timestamp.sources[0].removeprefix("field:")
    list_format = given.scheme.signature.list_format
    header = given.scheme.signature.sources[0].removeprefix("header:").encode()
    value = given.request.headers[header] + f"{list_format.separator}{field}=1".encode()

    assert given.judge(replace(given.request, headers={**given.request.headers, header: value})) == Unverified(
        Failure.NO_TIMESTAMP
    )


# Headers


@EVERY_SCHEME
def test_a_signed_header_that_came_with_two_values_is_refused(name):
    given = example(name)

    for header in given.request.headers:
        verdict = given.judge(replace(given.request, conflicting_headers=frozenset({header})))
        if header in given.scheme.compiled.used_headers:
            assert verdict == Unverified(Failure.REPEATED_HEADER), header
        elif given.scheme.signed_headers is not None:
            assert isinstance(verdict, Unverified), header
        else:
            assert isinstance(verdict, Verified), header


@EVERY_SCHEME
def test_every_header_that_is_signed_is_needed(name):
    given = example(name)

    for header in given.request.headers:
        # Of two signature headers one is enough.
        if header not in given.scheme.compiled.used_headers or len(given.signatures()) > 1:
            continue
        for value in (None, b"", b" ", b"\xff\xfe", b"\x00", b"0" * 9000):
            headers = {key: held for key, held in given.request.headers.items() if key != header}
            spoilt = headers if value is None else {**headers, header: value}
            assert isinstance(given.judge(replace(given.request, headers=spoilt)), Unverified), (header, value)


@EVERY_SCHEME
def test_white_space_around_a_header_does_not_matter(name):
    given = example(name)
    headers = {header: b" \t" + value + b" " for header, value in given.request.headers.items()}

    assert isinstance(given.judge(replace(given.request, headers=headers)), Verified)


# Time


@for_each("name", those(lambda scheme: bool(scheme.timestamp and scheme.timestamp.enforced)))
def test_300_seconds_pass_and_301_fail_on_both_sides(name):
    given = example(name)

    assert isinstance(given.judge(late_seconds=300), Verified)
    assert given.judge(late_seconds=301) == Unverified(Failure.STALE, 301)
    assert isinstance(given.judge(late_seconds=-300), Verified)
    assert given.judge(late_seconds=-301) == Unverified(Failure.AHEAD, 301)


def test_age_is_enforced_by_four_schemes():
    enforced = those(lambda scheme: bool(scheme.timestamp and scheme.timestamp.enforced))

    assert enforced == ["polar", "standard_webhooks", "stripe", "svix"]
    rules = [example(name).scheme.timestamp for name in enforced]
    assert {rule.tolerance_seconds for rule in rules if rule is not None} == {300}


@for_each(
    "name",
    those(lambda scheme: scheme.jwt is None and not (scheme.timestamp and scheme.timestamp.enforced)),
)
def test_elsewhere_age_does_not_matter(name):
    given = example(name)

    for late_seconds in (10**9, -(10**9)):
        assert isinstance(given.judge(late_seconds=late_seconds), Verified)


NO_TIMES = ["", "0x10", "1_7", "+17", "-17", "1.5", "1e9", "١٢٣", "nan", "9" * 16, "2025-02-30T00:00:00Z", "17 00"]


@for_each("name", those(lambda scheme: bool(scheme.compiled.needs_timestamp)))
def test_a_time_that_is_none_is_refused(name):
    given = example(name)

    for time in NO_TIMES:
        verdict = given.judge(with_time(given, time))
        assert verdict.reason in {Failure.BAD_TIMESTAMP, Failure.NO_TIMESTAMP}, time


def with_time(given: Any, time: str) -> Any:
    """The request with another text where its time was."""
    kind, _, field = given.scheme.timestamp.sources[0].partition(":")
    headers = dict(given.request.headers)
    if kind == "header":
        headers[field.encode()] = time.encode()
    else:
        header = given.scheme.signature.sources[0].removeprefix("header:").encode()
        written = next(
            part.strip().removeprefix(f"{field}=")
            for part in headers.get(header, b"0").decode().split(given.scheme.signature.list_format.separator)
        )
        headers[header] = headers[header].replace(written.encode(), time.encode(), 1)
    return replace(given.request, headers=headers)


@for_each("name", those(lambda scheme: bool(scheme.timestamp and scheme.timestamp.enforced)))
def test_a_repeat_has_one_fingerprint_in_every_spelling(name):
    given = example(name)
    first = given.judge()

    assert len(first.fingerprint) == 16
    assert given.judge() == first
    if given.scheme.signature.encoding is Encoding.HEX:
        assert given.judge(given.with_signatures(str.upper)) == first


@for_each("name", those(lambda scheme: not (scheme.timestamp and scheme.timestamp.enforced)))
def test_without_an_age_limit_equal_bodies_are_not_duplicates(name):
    assert example(name).judge() == Verified(None)


# Anything at all


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
def test_any_headers_and_body_end_in_a_result(name, data):
    given = example(name)
    headers = {
        header: data.draw(HEADER_VALUES) if data.draw(st.booleans()) else value
        for header, value in given.request.headers.items()
    }
    body = data.draw(BODIES)
    request = SignedRequest(headers, frozenset(), body, data.draw(st.text(max_size=30)), data.draw(st.text(max_size=8)))

    now = data.draw(st.integers(-(10**18), 10**18))

    assert isinstance(verify(given.scheme, [given.key], request, now), Verified | Unverified)
    assert isinstance(provider_event_id(given.scheme, request), bytes | None)


@EVERY_SCHEME
def test_hostile_numbers_and_depths_in_the_body_end_in_a_result(name):
    given = example(name)

    for body in (b"[" * 100_000, b'{"a":' * 600, b"9" * 100_000, json.dumps({"id": "x" * 100_000}).encode(), b"\xff"):
        request = replace(given.request, body=body)
        assert isinstance(given.judge(request), Verified | Unverified)
        assert isinstance(provider_event_id(given.scheme, request), bytes | None)
