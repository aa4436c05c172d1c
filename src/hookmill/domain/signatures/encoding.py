"""Encodings of signatures, secrets and times. Every decoder is strict, and returns None for invalid input."""

import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final

from hookmill.domain import moment

Decoder = Callable[[bytes], bytes | None]


class Encoding(StrEnum):
    """The encoding of a signature."""

    HEX = "hex"
    BASE64 = "base64"
    BASE64URL = "base64url"
    """The URL-safe alphabet, without padding."""
    TEXT = "text"
    """A token or a JWT, which is sent without further encoding."""


class TimeUnit(StrEnum):
    SECONDS = "s"
    MILLISECONDS = "ms"
    ISO8601 = "iso8601"


def decoder(encoding: Encoding, size: int | None) -> Decoder:
    """A decoder of signatures of `size` bytes. `size` is None if it depends on the key: then any size is accepted.

    For `TEXT`, it returns the SHA-256 of the signature instead, whatever its size.
    """
    match encoding:
        case Encoding.HEX:
            repetition = "+" if size is None else f"{{{2 * size}}}"
            return _strict_decoder(rf"[0-9a-fA-F]{repetition}\Z", binascii.unhexlify)
        case Encoding.BASE64:
            if size is None:
                return _strict_decoder(
                    r"(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\Z", binascii.a2b_base64
                )
            letter_count, padding_count = -(-size * 8 // 6), -size % 3
            return _strict_decoder(rf"[A-Za-z0-9+/]{{{letter_count}}}={{{padding_count}}}\Z", binascii.a2b_base64)
        case Encoding.BASE64URL:
            repetition = "+" if size is None else f"{{{-(-size * 8 // 6)}}}"
            return _strict_decoder(rf"[A-Za-z0-9_-]{repetition}\Z", _decode_unpadded)
        case Encoding.TEXT:
            # Digests have equal length, so comparing two of them takes constant time.
            return lambda text: sha256(text).digest()


def _strict_decoder(pattern: str, decode: Callable[[bytes], bytes]) -> Decoder:
    # The standard library's decoders skip invalid characters, spaces and surplus padding. The pattern rejects them.
    matches = re.compile(pattern.encode()).match

    def decode_strictly(text: bytes) -> bytes | None:
        if not matches(text):
            return None
        try:
            return decode(text)
        except binascii.Error:
            return None

    return decode_strictly


def _decode_unpadded(text: bytes) -> bytes:
    return binascii.a2b_base64(text.translate(_TO_STANDARD_ALPHABET) + b"=" * (-len(text) % 4))


_TO_STANDARD_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")

decode_base64url: Final = decoder(Encoding.BASE64URL, None)
"""Decodes one segment of a JWT."""


def encode(encoding: Encoding, value: bytes) -> str:
    match encoding:
        case Encoding.HEX:
            return value.hex()
        case Encoding.BASE64:
            return binascii.b2a_base64(value, newline=False).decode()
        case Encoding.BASE64URL:
            return binascii.b2a_base64(value, newline=False).decode().rstrip("=").translate({43: "-", 47: "_"})
        case Encoding.TEXT:
            return value.decode()


_BASE64_SECRET: Final = re.compile(r"(?:[A-Za-z0-9+/]+|[A-Za-z0-9_-]+)={0,2}\Z")
_HEX_SECRET: Final = re.compile(r"(?:[0-9a-fA-F]{2})+\Z")


def decode_base64_secret(text: str) -> bytes | None:
    """Decode a secret in the standard or the URL-safe alphabet, with or without padding, because users paste both."""
    letters = text.rstrip("=")
    if not _BASE64_SECRET.match(text) or len(letters) % 4 == 1:
        return None
    return _decode_unpadded(letters.encode())


def decode_hex_secret(text: str) -> bytes | None:
    return bytes.fromhex(text) if _HEX_SECRET.match(text) else None


# int() also accepts spaces, underscores and the digits of other scripts.
_DIGITS: Final = re.compile(rb"[0-9]{1,15}\Z")
_ISO8601: Final = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]{1,9})?(?:Z|([+-])([0-9]{2}):([0-9]{2}))\Z"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def seconds_since_1970(text: bytes, unit: TimeUnit) -> int | None:
    """The whole seconds of a timestamp; None if it is invalid."""
    if unit is TimeUnit.ISO8601:
        return _iso_seconds(text)
    if not _DIGITS.match(text):
        return None
    return int(text) if unit is TimeUnit.SECONDS else int(text) // 1000


def _iso_seconds(text: bytes) -> int | None:
    match = _ISO8601.match(text)
    if match is None:
        return None
    sign, hours, minutes = match.groups()[6:]
    offset = 0 if sign is None else (int(hours) * 60 + int(minutes)) * (-60 if sign == b"-" else 60)
    try:
        local = datetime(*(int(part) for part in match.groups()[:6]), tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        return None
    return (local - _EPOCH) // timedelta(seconds=1) - offset


def encode_time(at_us: int, unit: TimeUnit) -> str:
    """A time (µs since 1970) as a sender writes it."""
    match unit:
        case TimeUnit.SECONDS:
            return str(at_us // 1_000_000)
        case TimeUnit.MILLISECONDS:
            return str(at_us // 1000)
        case TimeUnit.ISO8601:
            return moment.iso(at_us)[:-4] + "Z"
