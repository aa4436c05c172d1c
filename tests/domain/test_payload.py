"""What is JSON, what it says, and at what cost."""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookmill.domain.payload import MAX_NESTING, Json, NotJson, Parsed, VastNumber, parse
from tests.domain.json_corpus import CORPUS

# A quadratic reading of the largest body takes many seconds; a linear one milliseconds, on a busy machine too.
FAR_FROM_QUADRATIC_SECONDS = 2.0
LARGEST = 262_144


def cut(text: str) -> str:
    """A name for a case that stays readable when the case is 5,000 digits long."""
    return text if len(text) <= 40 else f"{text[:12]}..{text[-12:]} ({len(text)})"


def value_of(body: bytes) -> Json:
    parsed = parse(body)
    assert isinstance(parsed, Parsed), parsed
    return parsed.value


def reason_of(body: bytes) -> str:
    refused = parse(body)
    assert isinstance(refused, NotJson)
    return refused.reason


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def standard_library_accepts(body: bytes) -> bool:
    """Python's own parser, made strict. Numbers stay text, so that none is too long."""
    try:
        json.JSONDecoder(parse_constant=_refuse, parse_int=str, parse_float=str).decode(body.decode())
    except (ValueError, RecursionError):
        return False
    return True


def test_each_body_of_the_corpus_has_its_result():
    wrong = [case.name for case in CORPUS if isinstance(parse(case.body), Parsed) != case.accepted]

    assert wrong == []


def test_what_is_accepted_has_a_value():
    kinds = (dict, list, str, int, Decimal, VastNumber, bool, type(None))

    without = [case.name for case in CORPUS if case.accepted and type(value_of(case.body)) not in kinds]
    assert without == []


def test_the_corpus_is_large_and_says_nothing_twice():
    repeated = [body for body, times in Counter(case.body for case in CORPUS).items() if times > 1]

    assert len(CORPUS) >= 300
    assert not repeated


def test_the_corpus_agrees_with_the_standard_library():
    disagreeing = [
        case.name for case in CORPUS if standard_library_accepts(case.body) != case.accepted and not case.limit_of_ours
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
def test_the_value_is_what_the_body_says(body: bytes, value: Json):
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
    ids=cut,
)
def test_two_spellings_of_one_number_are_equal(one: str, other: str):
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
    ids=cut,
)
def test_numbers_that_differ_at_all_are_not_equal(one: str, other: str):
    assert value_of(one.encode()) != value_of(other.encode())


@pytest.mark.parametrize("surrogate", ["", r',"\ud83d"'], ids=["alone", "beside a lone surrogate"])
@pytest.mark.parametrize(
    "number", ["1", "1.5", "-0.0", "1e400", "9" * 700, "9" * 5_000, "1e99999999999999999999"], ids=cut
)
def test_a_number_is_the_same_whichever_parser_reads_it(number: str, surrogate: str):
    assert value_of(f"[{number}{surrogate}]".encode())[0] == value_of(number.encode())


def test_a_vast_number_can_be_written_again():
    number = value_of(b"-12.50e99999999999999999999")

    assert value_of(str(number).encode()) == number


@pytest.fixture
def few_digits_allowed() -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.usefixtures("few_digits_allowed")
@pytest.mark.parametrize("digits", [640, 641, 1_000, 4_300, 5_000])
def test_long_integers_survive_an_interpreter_that_allows_few_digits(digits: int):
    one, other = b"9" * digits, b"9" * (digits - 1) + b"8"

    assert value_of(one) == value_of(one + b".0")
    assert value_of(one) != value_of(other)


def test_the_value_is_decoded_once():
    parsed = parse(b'{"a":[1.5]}')

    assert isinstance(parsed, Parsed)
    assert parsed.value is parsed.value


def test_neither_result_shows_the_body_when_printed():
    assert "hunter2" not in repr(parse(b'{"password":"hunter2"}'))
    assert "hunter2" not in repr(parse(b'{"password":"hunter2'))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b" \n", "the body is empty"),
        (b"\xef\xbb\xbf{}", "it begins with a byte order mark"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8: it looks like UTF-16, UTF-32 or binary data"),
        ("{}".encode("utf-32-be"), "not UTF-8: it looks like UTF-16, UTF-32 or binary data"),
        (b'{"a":"\xff"}', "not UTF-8: ill-formed at byte 7"),
        (b'{"a":NaN}', "NaN and Infinity are not JSON"),
        (b'{"a":1,}', "not JSON at line 1, column 8"),
        (b'{\n"a" 1}', "not JSON at line 2, column 5"),
        (b"[" * 513 + b"]" * 513, "nested more than 512 levels deep"),
        (b"[" * 600, "nested more than 512 levels deep"),
        (b"[" * 127_000, "nested more than 512 levels deep"),
    ],
)
def test_the_owner_reads_why_a_body_was_refused(body: bytes, reason: str):
    assert reason_of(body) == reason


def test_a_reason_is_short_printable_text():
    reasons = {case.name: reason_of(case.body) for case in CORPUS if not case.accepted}

    assert reasons
    assert [name for name, reason in reasons.items() if not reason.isprintable() or not 0 < len(reason) < 80] == []


noise = st.lists(
    st.sampled_from([b"[", b"]", b"{", b"}", b'\\"', b"\\\\", b"\\u005b", b",", b":", "é".encode(), b"a"]),
    max_size=30,
).map(lambda parts: b'"' + b"".join(parts) + b'"')


@given(inside=noise, beside=noise, room=st.integers(0, 3), objects=st.booleans())
def test_nesting_is_counted_exactly_whatever_the_strings_hold(inside, beside, room, objects):
    opening, closing = (b'{"":', b"}") if objects else (b"[", b"]")
    levels = MAX_NESTING - room

    accepted = b"[" + beside + b"," + opening * (levels - 1) + inside + closing * (levels - 1) + b"]"
    refused = b"[" + beside + b"," + opening * (levels + room) + inside + closing * (levels + room) + b"]"

    assert isinstance(parse(accepted), Parsed)
    assert isinstance(parse(refused), NotJson)


@given(st.binary(max_size=200))
def test_any_bytes_have_a_result(body: bytes):
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
def test_changed_json_is_read_as_the_standard_library_reads_it(text, changes):
    body = bytearray(text.encode())
    for place, removed, inserted in changes:
        body[place % (len(body) + 1) : place % (len(body) + 1) + removed] = inserted

    assert isinstance(parse(bytes(body)), Parsed) == standard_library_accepts(bytes(body))


@given(json_texts)
def test_the_value_is_that_of_the_standard_library_with_decimals(text):
    expected = json.loads(text, parse_float=Decimal, parse_int=Decimal)

    assert value_of(text.encode()) == expected


def largest(unit: bytes) -> bytes:
    """An array of equal elements, as many as the largest body holds."""
    return b"[" + b",".join([unit] * ((LARGEST - 2) // (len(unit) + 1))) + b"]"


COSTLY = {
    "objects": largest(b'{"":0}'),
    "arrays": largest(b"[]"),
    "zeros": largest(b"0"),
    "decimals": largest(b"1.5"),
    "exponents": largest(b"1e5"),
    "huge exponents": largest(b"1e999999999"),
    "vast exponents": largest(b"1e99999999999999999999"),
    "integers of 4,300 digits": largest(b"9" * 4_300),
    "integers of 5,000 digits": largest(b"9" * 5_000),
    "one integer": b"9" * LARGEST,
    "one exponent": b"1e" + b"9" * (LARGEST - 2),
    "one negative exponent": b"1e-" + b"9" * (LARGEST - 3),
    "one fraction": b"0." + b"0" * (LARGEST - 3) + b"1",
    "512 levels again and again": largest(b"[" * 511 + b"]" * 511),
    "names": b"{" + b",".join(b'"%05x":1' % name for name in range(LARGEST // 10)) + b"}",
    "one name": b"{" + b",".join([b'"a":1'] * (LARGEST // 6)) + b"}",
    "escaped quotes": b'"' + b'\\"' * (LARGEST // 2 - 1) + b'"',
    "escaped characters": b'"' + b"\\u00e9" * (LARGEST // 6 - 1) + b'"',
    "empty strings": largest(b'""'),
    "lone surrogates": largest(b'"\\ud83d"'),
    "objects and a lone surrogate": largest(b'{"":0}')[:-9] + b',"\\ud83d"]',
    "objects and a fault": largest(b'{"":0}')[:-1] + b"}",
    "lines and a fault": b"[" + b"\n" * (LARGEST - 2) + b"}",
    "opened arrays": b"[" * LARGEST,
    "opened objects": b'{"":' * (LARGEST // 4),
    "quotes": b'"' * LARGEST,
    "backslashes": b'"' + b"\\" * (LARGEST - 2) + b'"',
}


@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY.keys())
def test_the_largest_bodies_take_linear_time(body: bytes):
    assert len(body) <= LARGEST
    started = time.thread_time()

    parsed = parse(body)
    if isinstance(parsed, Parsed):
        hash(str(type(parsed.value)))

    assert time.thread_time() - started < FAR_FROM_QUADRATIC_SECONDS


DEEP = {
    "127,000 opened arrays": b"[" * 127_000,
    "1,024 opened arrays": b"[" * 1_024,
    "256 opened objects": b'{"":' * 256,
    "512 objects": b'{"a":' * 512 + b"1" + b"}" * 512,
    "512 arrays": b"[" * 512 + b"]" * 512,
    "512 arrays around a lone surrogate": b"[" * 512 + b'"\\ud83d"' + b"]" * 512,
    "513 arrays": b"[" * 513 + b"]" * 513,
}


@pytest.mark.parametrize("body", DEEP.values(), ids=DEEP.keys())
def test_a_thread_with_a_small_stack_survives_deep_bodies(body: bytes):
    outcomes = []

    def judge() -> None:
        parsed = parse(body)
        outcomes.append(parsed if isinstance(parsed, NotJson) else type(parsed.value))

    smallest_of_the_usual_platforms = 512 * 1024
    before = threading.stack_size(smallest_of_the_usual_platforms)
    try:
        thread = threading.Thread(target=judge)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()

    assert len(outcomes) == 1


def test_a_caller_deep_in_its_own_stack_still_gets_a_result():
    def deep(calls: int) -> Parsed | NotJson:
        return deep(calls - 1) if calls else parse(b"[" * 512 + b"]" * 512)

    assert isinstance(deep(600), Parsed | NotJson)
