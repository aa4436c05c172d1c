"""Which bodies are JSON, which value they have, and how long reading them takes."""

import bz2
import gzip
import json
import lzma
import sys
import threading
import time
import zlib
from collections import Counter
from decimal import Decimal
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookmill.domain.payload import MAX_NESTING, Json, NotJson, Parsed, VastNumber, parse, parsed_payload
from tests.domain.json_corpus import CORPUS

# Linear time means milliseconds for the largest body, even on a busy machine; quadratic time means many seconds.
LINEAR_TIME_SECONDS_MAX = 2.0
BODY_BYTES_MAX = 262_144


def shortened(text: str) -> str:
    """A readable id of a test case, even for a number of 5,000 digits."""
    return text if len(text) <= 40 else f"{text[:12]}..{text[-12:]} ({len(text)})"


def value_of(body: bytes) -> Json:
    parsed = parse(body)
    assert isinstance(parsed, Parsed), parsed
    return parsed.value


def reason_of(body: bytes) -> str:
    result = parse(body)
    assert isinstance(result, NotJson)
    return result.reason


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def standard_library_accepts(body: bytes) -> bool:
    """Whether Python's own parser, made strict, accepts the body. It reads numbers as text, so none is too long."""
    try:
        json.JSONDecoder(parse_constant=_refuse, parse_int=str, parse_float=str).decode(body.decode())
    except (ValueError, RecursionError):
        return False
    return True


def test_corpus_bodies_are_accepted_or_refused_as_expected():
    wrong = [case.name for case in CORPUS if isinstance(parse(case.body), Parsed) != case.accepted]

    assert wrong == []


def test_accepted_corpus_bodies_have_a_value():
    kinds = (dict, list, str, int, Decimal, VastNumber, bool, type(None))

    without_value = [case.name for case in CORPUS if case.accepted and type(value_of(case.body)) not in kinds]
    assert without_value == []


def test_corpus_has_at_least_300_bodies_without_repetition():
    repeated = [body for body, times in Counter(case.body for case in CORPUS).items() if times > 1]

    assert len(CORPUS) >= 300
    assert not repeated


def test_corpus_agrees_with_the_standard_library():
    disagreeing = [
        case.name
        for case in CORPUS
        if not case.exceeds_our_limit and standard_library_accepts(case.body) != case.accepted
    ]

    assert disagreeing == []


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"null", None),
        (b"true", True),
        (b'"a"', "a"),
        (b"7", 7),
        (b'{"a":[1,"b",null]}', {"a": [1, "b", None]}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"a":1,"\\u0061":2}', {"a": 2}),
        (b'{"a":{"b":1},"a":{}}', {"a": {}}),
        (b'{"a":1,"b":"\\ud83d","a":2}', {"a": 2, "b": "\ud83d"}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'["\\ud83d","\\ude00"]', ["\ud83d", "\ude00"]),
        (b'{"__proto__":1,"__class__":2}', {"__proto__": 1, "__class__": 2}),
    ],
)
def test_body_is_decoded_to_its_value(body, value):
    assert value_of(body) == value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("100", "1e2"),
        ("0.1", "1e-1"),
        ("0", "-0"),
        ("0", "-0.0"),
        ("0", "0e99999999999999999999"),
        ("0", "-0e-99999999999999999999"),
        ("9007199254740993", "9007199254740993.0"),
        ("1e400", "1" + "0" * 400),
        ("9" * 4_300, "9" * 4_300 + ".0"),
        ("9" * 5_000, "9" * 5_000 + ".000"),
        ("9" * 640, "0." + "9" * 640 + "e640"),
        ("1e999999999", "10e999999998"),
        ("1e999999999999999999", "0.001e1000000000000000002"),
        ("1e999999999999999999", "1000e999999999999999996"),
        ("1e-1999999999999999997", "1.000e-1999999999999999997"),
        ("1e99999999999999999999", "0.01e100000000000000000001"),
        ("1e99999999999999999999", "100e99999999999999999997"),
        ("1e99999999999999999999", "1.00E+99999999999999999999"),
        ("-1.5e-99999999999999999999", "-15e-100000000000000000000"),
        ("1e" + "9" * 5_000, "10e" + "9" * 4_999 + "8"),
    ],
    ids=shortened,
)
def test_numbers_with_the_same_value_are_equal(one, other):
    assert value_of(one.encode()) == value_of(other.encode())
    assert hash(value_of(one.encode())) == hash(value_of(other.encode()))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("9007199254740993", "9007199254740992"),
        ("9007199254740993.0", "9007199254740992"),
        ("9007199254740993.0", "9007199254740992.0"),
        ("0.1", "0.1000000000000000055511151231257827021181583404541015625"),
        ("0.1", "0.10000000000000000000000000000000000001"),
        ("1e400", "1e401"),
        ("1e400", "-1e400"),
        ("1e-400", "0"),
        ("1e-400", "1e-401"),
        ("9" * 5_000, "9" * 4_999 + "8"),
        ("9" * 5_000, "9" * 5_001),
        ("1e999999999", "1e999999998"),
        ("1e99999999999999999999", "1e99999999999999999998"),
        ("1e99999999999999999999", "-1e99999999999999999999"),
        ("1e99999999999999999999", "11e99999999999999999999"),
        ("1e99999999999999999999", "1e-99999999999999999999"),
        ("1e-99999999999999999999", "0"),
        ("1e" + "9" * 5_000, "1e" + "9" * 4_999 + "8"),
    ],
    ids=shortened,
)
def test_numbers_with_different_values_are_not_equal(one, other):
    assert value_of(one.encode()) != value_of(other.encode())


@pytest.mark.parametrize("surrogate", ["", r',"\ud83d"'], ids=["alone", "next to a lone surrogate"])
@pytest.mark.parametrize(
    "number", ["1", "1.5", "-0.0", "1e400", "9" * 700, "9" * 5_000, "1e99999999999999999999"], ids=shortened
)
def test_both_parsers_read_the_same_number(number, surrogate):
    assert value_of(f"[{number}{surrogate}]".encode())[0] == value_of(number.encode())


def test_vast_number_as_text_is_the_same_number():
    number = value_of(b"-12.50e99999999999999999999")

    assert value_of(str(number).encode()) == number


@pytest.fixture
def int_digits_limited_to_640():
    previous = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    yield
    sys.set_int_max_str_digits(previous)


@pytest.mark.usefixtures("int_digits_limited_to_640")
@pytest.mark.parametrize("digits", [640, 641, 1_000, 4_300, 5_000])
def test_long_integers_are_exact_if_the_interpreter_limits_their_digits(digits):
    one, other = b"9" * digits, b"9" * (digits - 1) + b"8"

    assert value_of(one) == value_of(one + b".0")
    assert value_of(one) != value_of(other)


def test_value_is_decoded_once():
    parsed = parse(b'{"a":[1.5]}')

    assert isinstance(parsed, Parsed)
    assert parsed.value is parsed.value


def test_printed_result_does_not_contain_the_body():
    assert "hunter2" not in repr(parse(b'{"password":"hunter2"}'))
    assert "hunter2" not in repr(parse(b'{"password":"hunter2'))


COMPRESSED = "it is compressed ({}): turn off the compression of bodies at the sender"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b" \n", "the body is empty"),
        (b"\xef\xbb\xbf{}", "it begins with a byte order mark"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8: it looks like UTF-16, UTF-32 or binary data"),
        ("{}".encode("utf-32-be"), "not UTF-8: it looks like UTF-16, UTF-32 or binary data"),
        (b'{"a":"\xff"}', "not UTF-8: ill-formed at byte 7"),
        (gzip.compress(b"{}", mtime=0), COMPRESSED.format("gzip")),
        (zlib.compress(b"{}"), COMPRESSED.format("deflate")),
        (zlib.compress(b"{}", 1), COMPRESSED.format("deflate")),
        (zlib.compress(b"{}", 9), COMPRESSED.format("deflate")),
        (bytes.fromhex("28b52ffd0002110000") + b"{}", COMPRESSED.format("zstd")),
        (bz2.compress(b"{}"), COMPRESSED.format("bzip2")),
        (lzma.compress(b"{}"), COMPRESSED.format("xz")),
        (b"BZh is text", "not JSON at line 1, column 1"),
        (b"x^2", "not JSON at line 1, column 1"),
        (b'{"a":NaN}', "NaN and Infinity are not JSON"),
        (b'{"a":1,}', "not JSON at line 1, column 8"),
        (b'{\n"a" 1}', "not JSON at line 2, column 5"),
        (b"[" * 513 + b"]" * 513, "nested more than 512 levels deep"),
        (b"[" * 600, "nested more than 512 levels deep"),
        (b"[" * 127_000, "nested more than 512 levels deep"),
    ],
)
def test_refused_body_has_a_reason(body, reason):
    assert reason_of(body) == reason


def test_every_reason_is_short_and_printable():
    reasons = {case.name: reason_of(case.body) for case in CORPUS if not case.accepted}

    assert reasons
    assert [name for name, reason in reasons.items() if not reason.isprintable() or not 0 < len(reason) < 80] == []


string_texts = st.lists(
    st.sampled_from([b"[", b"]", b"{", b"}", b'\\"', b"\\\\", b"\\u005b", b",", b":", "é".encode(), b"a"]),
    max_size=30,
).map(lambda parts: b'"' + b"".join(parts) + b'"')


@given(inner_text=string_texts, sibling_text=string_texts, spare_levels=st.integers(0, 3), objects=st.booleans())
def test_nesting_limit_is_exact_whatever_the_strings_contain(inner_text, sibling_text, spare_levels, objects):
    opening, closing = (b'{"":', b"}") if objects else (b"[", b"]")

    def body(levels):
        return b"[" + sibling_text + b"," + opening * (levels - 1) + inner_text + closing * (levels - 1) + b"]"

    assert isinstance(parse(body(MAX_NESTING - spare_levels)), Parsed)
    assert isinstance(parse(body(MAX_NESTING + 1)), NotJson)


@given(st.binary(max_size=200))
def test_parser_agrees_with_the_standard_library_about_any_bytes(body):
    assert isinstance(parse(body), Parsed) == standard_library_accepts(body)


json_texts = st.recursive(
    st.sampled_from(
        ["null", "true", "0", "-0", "1.50", "-2e3", "1e999", '""', '"a"', r'"\ud83d"', r'"\n"', '"é😀"', "9" * 20]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: "[" + " ,".join(parts) + "]"),
        st.lists(inner, max_size=4).map(
            lambda parts: "{" + ",".join(f'"{index % 3}":{part}' for index, part in enumerate(parts)) + "}"
        ),
    ),
    max_leaves=12,
)
edits = st.tuples(
    st.integers(0, 200),
    st.integers(0, 2),
    st.sampled_from([b"", *(bytes([byte]) for byte in range(256)), b"\\u", b"\\ud83d", b"NaN", b"1e5", b'""']),
)


@given(json_texts, st.lists(edits, max_size=3))
def test_parser_agrees_with_the_standard_library_about_edited_json(text, changes):
    body = bytearray(text.encode())
    for place, removed, inserted in changes:
        body[place % (len(body) + 1) : place % (len(body) + 1) + removed] = inserted

    assert isinstance(parse(bytes(body)), Parsed) == standard_library_accepts(bytes(body))


@given(json_texts)
def test_value_equals_that_of_the_standard_library_with_decimals(text):
    expected = json.loads(text, parse_float=Decimal, parse_int=Decimal)

    assert value_of(text.encode()) == expected


def array_of(unit: bytes) -> bytes:
    """An array of equal elements that is as long as the largest allowed body."""
    return b"[" + b",".join([unit] * ((BODY_BYTES_MAX - 2) // (len(unit) + 1))) + b"]"


EXPENSIVE_BODIES = {
    "objects": array_of(b'{"":0}'),
    "arrays": array_of(b"[]"),
    "zeros": array_of(b"0"),
    "decimals": array_of(b"1.5"),
    "exponents": array_of(b"1e5"),
    "huge exponents": array_of(b"1e999999999"),
    "vast exponents": array_of(b"1e99999999999999999999"),
    "integers of 4,300 digits": array_of(b"9" * 4_300),
    "integers of 5,000 digits": array_of(b"9" * 5_000),
    "one integer": b"9" * BODY_BYTES_MAX,
    "one exponent": b"1e" + b"9" * (BODY_BYTES_MAX - 2),
    "one negative exponent": b"1e-" + b"9" * (BODY_BYTES_MAX - 3),
    "one fraction": b"0." + b"0" * (BODY_BYTES_MAX - 3) + b"1",
    "512 levels many times": array_of(b"[" * 511 + b"]" * 511),
    "different keys": b"{" + b",".join(b'"%05x":1' % name for name in range(BODY_BYTES_MAX // 10)) + b"}",
    "one repeated key": b"{" + b",".join([b'"a":1'] * (BODY_BYTES_MAX // 6)) + b"}",
    "escaped quotes": b'"' + b'\\"' * (BODY_BYTES_MAX // 2 - 1) + b'"',
    "escaped characters": b'"' + b"\\u00e9" * (BODY_BYTES_MAX // 6 - 1) + b'"',
    "empty strings": array_of(b'""'),
    "lone surrogates": array_of(b'"\\ud83d"'),
    "objects and a lone surrogate": array_of(b'{"":0}')[:-9] + b',"\\ud83d"]',
    "objects and a syntax error": array_of(b'{"":0}')[:-1] + b"}",
    "lines and a syntax error": b"[" + b"\n" * (BODY_BYTES_MAX - 2) + b"}",
    "opened arrays": b"[" * BODY_BYTES_MAX,
    "opened objects": b'{"":' * (BODY_BYTES_MAX // 4),
    "quotes": b'"' * BODY_BYTES_MAX,
    "backslashes": b'"' + b"\\" * (BODY_BYTES_MAX - 2) + b'"',
}


@pytest.mark.parametrize("body", EXPENSIVE_BODIES.values(), ids=EXPENSIVE_BODIES.keys())
def test_largest_bodies_take_linear_time(body):
    assert len(body) <= BODY_BYTES_MAX
    started = time.thread_time()

    parsed = parse(body)
    if isinstance(parsed, Parsed):
        _ = parsed.value

    assert time.thread_time() - started < LINEAR_TIME_SECONDS_MAX


DEEP_BODIES = {
    "127,000 opened arrays": b"[" * 127_000,
    "1,024 opened arrays": b"[" * 1_024,
    "256 opened objects": b'{"":' * 256,
    "512 objects": b'{"a":' * 512 + b"1" + b"}" * 512,
    "512 arrays": b"[" * 512 + b"]" * 512,
    "512 arrays around a lone surrogate": b"[" * 512 + b'"\\ud83d"' + b"]" * 512,
    "513 arrays": b"[" * 513 + b"]" * 513,
}


@pytest.mark.parametrize("body", DEEP_BODIES.values(), ids=DEEP_BODIES.keys())
def test_thread_with_a_small_stack_can_parse_deep_bodies(body):
    results = []

    def parse_and_decode() -> None:
        parsed = parse(body)
        results.append(parsed if isinstance(parsed, NotJson) else type(parsed.value))

    # The smallest default among the common platforms.
    previous_size = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=parse_and_decode)
        thread.start()
    finally:
        threading.stack_size(previous_size)
    thread.join()

    assert len(results) == 1


def test_caller_with_a_deep_stack_gets_a_result():
    def parse_below(calls: int) -> Parsed | NotJson:
        return parse_below(calls - 1) if calls else parse(b"[" * 512 + b"]" * 512)

    assert isinstance(parse_below(600), Parsed | NotJson)


def test_attempt_decodes_its_payload_once():
    payload = b'{"a": [1]}'

    first, second = parsed_payload(payload), parsed_payload(bytes(bytearray(payload)))

    assert first is not None
    assert second is not None
    assert first.value is second.value
    assert parsed_payload(b"") is None
