"""Validates and decodes bodies: strict RFC 8259 in strict UTF-8, at most 512 levels deep.

Validation is fast and builds no values. The values, with exact numbers, are decoded on first use.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from functools import lru_cache
from itertools import accumulate
from math import isfinite
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

Json: TypeAlias = Any
"""A JSON value: None, bool, str, list, dict with str keys; a number is an int, a Decimal or a VastNumber."""

MAX_NESTING: Final = 512
"""The maximum number of nested levels of arrays and objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJson:
    """The body is not valid JSON. `reason` is for the owner's log, and never quotes the body."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VastNumber:
    """A number whose exponent is outside the range of Decimal, about ±10^18. Such a number equals only itself."""

    negative: bool
    digits: str
    exponent: Decimal

    @property
    def first_digit_power(self) -> Decimal:
        """The power of ten of the first digit."""
        return _DECIMALS.add(self.exponent, Decimal(len(self.digits) - 1))

    def __str__(self) -> str:
        return f"{'-' * self.negative}{self.digits}E{self.exponent:f}"


class Parsed:
    """A valid JSON body."""

    __slots__ = ("_body", "_value")

    def __init__(self, body: bytes) -> None:
        self._body = body

    @property
    def value(self) -> Json:
        """The decoded body, cached after the first use. Numbers are exact; the last of equal keys counts.

        A body nested 512 deep needs about 256 KB of thread stack.
        """
        try:
            return self._value
        except AttributeError:
            self._value: Json = _exact_value(self._body)
            return self._value

    def surely_contains_none_of(self, spellings: Iterable[bytes]) -> bool:
        """True if the body contains none of the strings with these `plain_spelling`s. False means that it may.

        The search takes a tenth of the time of decoding. It could miss only a string with a `\\u` escape.
        """
        body = self._body
        for spelling in spellings:
            if spelling in body:
                return False
        return b"\\u" not in body


def plain_spelling(text: str) -> bytes | None:
    """How a body without `\\u` escapes spells this string, including quotes. None if several spellings are common."""
    if any(character in _ESCAPED or character < " " or "\ud800" <= character <= "\udfff" for character in text):
        return None
    return f'"{text}"'.encode()


_ESCAPED: Final = frozenset('"\\/')


def parse(body: bytes, *, nesting_max: int = MAX_NESTING) -> Parsed | NotJson:
    """Validate a body. Never raises; takes time linear in the body's length."""
    if _may_nest_too_deep(body) and _nesting(body) > nesting_max:
        return NotJson(reason=_TOO_DEEP)
    try:
        # The skipping decoder verifies the grammar, but not the encoding.
        body.decode()
        _SKIPPER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _parse_leniently(body, nesting_max)
    return Parsed(body)


@lru_cache(maxsize=1)
def parsed_payload(payload: bytes | None) -> Parsed | None:
    """A stored payload; None if there is none. The last one is kept: an attempt at a run asks four times for its
    results, its workspace and its fields. Nobody may change the value."""
    parsed = parse(payload) if payload is not None else None
    return parsed if isinstance(parsed, Parsed) else None


_TOO_DEEP: Final = f"nested more than {MAX_NESTING} levels deep"
_BYTE_ORDER_MARK: Final = "\ufeff"
_FORM: Final = re.compile(rb"[A-Za-z][A-Za-z0-9_.%\[\]-]*=")
_WHITESPACE: Final = b" \t\n\r"
_COMPRESSED: Final = {
    b"\x1f\x8b": "gzip",
    b"x\x01": "deflate",
    b"x\x5e": "deflate",
    b"x\x9c": "deflate",
    b"x\xda": "deflate",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
"""How compressed data begin."""


def _compression_of(body: bytes) -> str | None:
    """The name of the format if the body is compressed. It is recognized, and never decompressed."""
    name = next((name for magic, name in _COMPRESSED.items() if body.startswith(magic)), None)
    # Text may begin like compressed data, but has no such control characters.
    return name if any(byte < 9 or byte > 126 for byte in body[:64]) else None


def _parse_leniently(body: bytes, nesting_max: int) -> Parsed | NotJson:
    """Validate with the standard library, which accepts lone surrogates and reports the position of a fault."""
    if not body.strip(_WHITESPACE):
        return NotJson(reason="the body is empty")
    if (compression := _compression_of(body)) is not None:
        return NotJson(reason=f"it is compressed ({compression}): turn off the compression of bodies at the sender")
    if b"\0" in body[:4] or body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return NotJson(reason="not UTF-8: it looks like UTF-16, UTF-32 or binary data")
    try:
        text = body.decode()
    except UnicodeDecodeError as fault:
        return NotJson(reason=f"not UTF-8: ill-formed at byte {fault.start + 1}")
    if _FORM.match(body):
        return NotJson(reason="it is a form, not JSON: choose the content type application/json at the sender")
    if text.startswith(_BYTE_ORDER_MARK):
        return NotJson(reason="it begins with a byte order mark")
    if _nesting(body) > nesting_max:
        return NotJson(reason=_TOO_DEEP)
    try:
        value = _STANDARD_DECODER.decode(text)
    except json.JSONDecodeError as fault:
        return NotJson(reason=f"not JSON at line {fault.lineno}, column {fault.colno}")
    except _NotANumber:
        return NotJson(reason="NaN and Infinity are not JSON")
    except RecursionError:
        # The stack is too small for 512 levels only if the caller is already hundreds of calls deep.
        return NotJson(reason=_TOO_DEEP)
    parsed = Parsed(body)
    parsed._value = value
    return parsed


def _exact_value(body: bytes) -> Json:
    try:
        return _EXACT_DECODER.decode(body)
    except msgspec.MsgspecError:
        # A lone surrogate, or an integer with more digits than the interpreter's limit, which is 4,300 by default.
        return _STANDARD_DECODER.decode(body.decode())


def _may_nest_too_deep(body: bytes) -> bool:
    # A level and its end take two bytes. If levels have no end, the parsers below reject the body.
    return len(body) > 2 * MAX_NESTING and body.count(b"[") + body.count(b"{") > MAX_NESTING


# Signed bytes: an opening bracket is one level up, a closing one down.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NEITHER_BRACKET_NOR_QUOTE: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')


def _nesting(body: bytes) -> int:
    """The deepest nesting level, exact up to the first fault in the body's grammar."""
    if b'\\"' in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Removing two adjacent quotes does not change what is inside or outside a string.
    skeleton = body.translate(None, _NEITHER_BRACKET_NOR_QUOTE).replace(b'""', b"")
    brackets = b"".join(skeleton.split(b'"')[::2])
    steps = memoryview(brackets.translate(_STEPS)).cast("b")
    return max(accumulate(steps), default=0)


# int() accepts this many digits whatever the interpreter's limit is, and is fast for them.
_SAFE_INT_DIGITS: Final = 640
_DECIMALS: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation])
_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")


def exact_integer(text: str) -> int | Decimal:
    """The number of a JSON literal without a fraction and an exponent, whatever the interpreter's limit is."""
    if len(text) > _SAFE_INT_DIGITS:
        return Decimal(text, _DECIMALS)
    return int(text)


def _exact_number(text: str) -> Decimal | VastNumber:
    """The exact number of a JSON literal. Its exponent is not expanded into digits."""
    try:
        return Decimal(text, _DECIMALS)
    except InvalidOperation:
        return _normalized_number(text)


def number_without_loss(text: str) -> float | Decimal | VastNumber:
    """The number of a JSON literal with a fraction or an exponent: a float, unless a float would round it."""
    exact, rounded = _exact_number(text), float(text)
    return rounded if isfinite(rounded) and exact == Decimal(repr(rounded)) else exact


def _normalized_number(text: str) -> Decimal | VastNumber:
    """The number, parsed without leading and trailing zeros.

    Without them, Decimal accepts some numbers that it rejects otherwise. Every VastNumber has one form.
    """
    match = _NUMBER.fullmatch(text)
    assert match is not None, "the parser calls `_exact_number` for JSON numbers only"
    sign, whole, fraction, power = match.groups(default="")
    significant = (whole + fraction).lstrip("0")
    digits = significant.rstrip("0")
    if not digits:
        return Decimal(0)
    shift = len(significant) - len(digits) - len(fraction)
    exponent = _DECIMALS.add(Decimal(power or "0", _DECIMALS), Decimal(shift))
    try:
        return Decimal(f"{sign}{digits}E{exponent:f}", _DECIMALS)
    except InvalidOperation:
        return VastNumber(negative=sign == "-", digits=digits, exponent=exponent)


class _NotANumber(ValueError):
    """The body contains NaN, Infinity or -Infinity, which the standard library accepts."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotANumber(name)


_SKIPPER: Final = msgspec.json.Decoder(msgspec.Raw)
_EXACT_DECODER: Final = msgspec.json.Decoder(float_hook=_exact_number)
_STANDARD_DECODER: Final = json.JSONDecoder(
    parse_float=_exact_number, parse_int=exact_integer, parse_constant=_refuse_constant
)
