"""Is this body JSON, and what does it say? Strict RFC 8259 over strict UTF-8, at most 512 levels deep.

The verdict is cheap and builds no values; the values, every number exact, are decoded when first asked for.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

Json: TypeAlias = Any
"""A JSON value: None, bool, str, list, dict with str keys; a number is an int, a Decimal or a VastNumber."""

MAX_NESTING: Final = 512
"""Levels of arrays and objects inside each other; one more is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJson:
    """The body is not acceptable JSON. `reason` is for the owner's log and never quotes the body."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VastNumber:
    """A number whose exponent lies outside Decimal's range, about ±10^18. Equal only to the same number."""

    negative: bool
    digits: str
    exponent: Decimal

    @property
    def first_digit_at(self) -> Decimal:
        """The power of ten of its first digit."""
        return _DECIMALS.add(self.exponent, Decimal(len(self.digits) - 1))

    def __str__(self) -> str:
        return f"{'-' * self.negative}{self.digits}E{self.exponent:f}"


class Parsed:
    """A body that is JSON."""

    __slots__ = ("_body", "_value")

    def __init__(self, body: bytes) -> None:
        self._body = body

    @property
    def value(self) -> Json:
        """What the body says, decoded on first use and kept. Numbers are exact; of equal keys, the last.

        A body nested 512 deep needs about 256 KB of thread stack.
        """
        try:
            return self._value
        except AttributeError:
            self._value: Json = _exact_value(self._body)
            return self._value

    def holds_none_of(self, spellings: Iterable[bytes]) -> bool:
        """True when none of the strings with these `plain_spelling`s is in the body; False says nothing.

        Takes a tenth of the time that decoding takes. Only an escape by number could hide one of them.
        """
        body = self._body
        for spelling in spellings:
            if spelling in body:
                return False
        return b"\\u" not in body


def plain_spelling(text: str) -> bytes | None:
    """How a body spells this string, quotes included, unless it escapes by number. None where other spellings are
    usual."""
    if any(character in _ESCAPED or character < " " or "\ud800" <= character <= "\udfff" for character in text):
        return None
    return f'"{text}"'.encode()


_ESCAPED: Final = frozenset('"\\/')


def parse(body: bytes) -> Parsed | NotJson:
    """The verdict on a body. Never raises, in time linear in the body's length."""
    if _may_nest_too_deep(body) and _nesting(body) > MAX_NESTING:
        return NotJson(reason=_TOO_DEEP)
    try:
        # Skipping checks the grammar but not the encoding.
        body.decode()
        _SKIPPER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _second_opinion(body)
    return Parsed(body)


_TOO_DEEP: Final = f"nested more than {MAX_NESTING} levels deep"
_BYTE_ORDER_MARK: Final = "\ufeff"
_FORM: Final = re.compile(rb"[A-Za-z][A-Za-z0-9_.%\[\]-]*=")
_WHITESPACE: Final = b" \t\n\r"


def _second_opinion(body: bytes) -> Parsed | NotJson:
    """The standard library's verdict: it takes lone surrogates, which msgspec refuses, and places a fault."""
    if not body.strip(_WHITESPACE):
        return NotJson(reason="the body is empty")
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
    if _nesting(body) > MAX_NESTING:
        return NotJson(reason=_TOO_DEEP)
    try:
        value = _JUDGE.decode(text)
    except json.JSONDecodeError as fault:
        return NotJson(reason=f"not JSON at line {fault.lineno}, column {fault.colno}")
    except _NotANumber:
        return NotJson(reason="NaN and Infinity are not JSON")
    except RecursionError:
        # Only a caller that is itself hundreds of calls deep leaves too little room for 512 levels.
        return NotJson(reason=_TOO_DEEP)
    parsed = Parsed(body)
    parsed._value = value
    return parsed


def _exact_value(body: bytes) -> Json:
    try:
        return _EXACT_DECODER.decode(body)
    except msgspec.MsgspecError:
        # A lone surrogate, or an integer of more than 4,300 digits; fewer where the interpreter is so set.
        return _JUDGE.decode(body.decode())


def _may_nest_too_deep(body: bytes) -> bool:
    # A closed level takes two bytes. A short run of unclosed ones is left to the parsers to refuse.
    return len(body) > 2 * MAX_NESTING and body.count(b"[") + body.count(b"{") > MAX_NESTING


# Signed bytes: an opening bracket is one level up, a closing one down.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NEITHER_BRACKET_NOR_QUOTE: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')


def _nesting(body: bytes) -> int:
    """The deepest level reached; exact up to the first fault in the body's grammar."""
    if b'\\"' in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Dropping two neighbouring quotes leaves everything else inside or outside a string, as it was.
    skeleton = body.translate(None, _NEITHER_BRACKET_NOR_QUOTE).replace(b'""', b"")
    brackets = b"".join(skeleton.split(b'"')[::2])
    steps = memoryview(brackets.translate(_STEPS)).cast("b")
    return max(accumulate(steps), default=0)


# int() refuses no text this short, whatever limit on digits the interpreter runs with, and is quick at it.
_SAFE_INT_DIGITS: Final = 640
_DECIMALS: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation])
_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")


def _exact_integer(text: str) -> int | Decimal:
    if len(text) > _SAFE_INT_DIGITS:
        return Decimal(text, _DECIMALS)
    return int(text)


def _exact_number(text: str) -> Decimal | VastNumber:
    """The number that a JSON literal spells, without rounding and without writing out its exponent."""
    try:
        return Decimal(text, _DECIMALS)
    except InvalidOperation:
        return _beyond_decimal(text)


def _beyond_decimal(text: str) -> Decimal | VastNumber:
    """One form for each number: Decimal refuses some spellings of numbers that it can hold."""
    literal = _NUMBER.fullmatch(text)
    assert literal is not None, "a parser hands over JSON numbers only"
    sign, whole, fraction, power = literal.groups(default="")
    written = (whole + fraction).lstrip("0")
    digits = written.rstrip("0")
    if not digits:
        return Decimal(0)
    shift = len(written) - len(digits) - len(fraction)
    exponent = _DECIMALS.add(Decimal(power or "0", _DECIMALS), Decimal(shift))
    try:
        return Decimal(f"{sign}{digits}E{exponent:f}", _DECIMALS)
    except InvalidOperation:
        return VastNumber(negative=sign == "-", digits=digits, exponent=exponent)


class _NotANumber(ValueError):
    """The body says NaN, Infinity or -Infinity, which the standard library would let pass."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotANumber(name)


_SKIPPER: Final = msgspec.json.Decoder(msgspec.Raw)
_EXACT_DECODER: Final = msgspec.json.Decoder(float_hook=_exact_number)
_JUDGE: Final = json.JSONDecoder(parse_float=_exact_number, parse_int=_exact_integer, parse_constant=_refuse_constant)
