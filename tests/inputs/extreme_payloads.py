"""The deepest, longest and oddest payloads that the ingress accepts. Whatever walks a payload must work with each."""

from typing import Final

from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.domain.payload import MAX_NESTING

_DEPTH: Final = MAX_NESTING - 1
"""The payload itself is one level."""
_DIGITS: Final = b"9" * 10_000
_OBJECT: Final = b'{"a":[]},'

EXTREME_VALUES: Final[dict[str, bytes]] = {
    "arrays, 511 levels": b"[" * _DEPTH + b"]" * _DEPTH,
    "objects, 511 levels": b'{"k":' * _DEPTH + b"1" + b"}" * _DEPTH,
    "arrays and objects, 510 levels around half a surrogate pair": (
        b'[{"k":' * (_DEPTH // 2) + b'"\\ud83d"' + b"}]" * (_DEPTH // 2)
    ),
    "an integer of 10,000 digits": _DIGITS,
    "a negative integer of 10,000 digits": b"-" + _DIGITS,
    "an integer of 4,300 digits, the interpreter's limit": b"9" * 4_300,
    "an integer of 641 digits": b"9" * 641,
    "a fraction of 10,000 digits": b"0." + _DIGITS,
    "a number above the range of floats": b"1e400",
    "a number above the range of decimals": b"-1.5e99999999999999999999",
    "a number below the range of decimals": b"1e-99999999999999999999",
    "an exponent of 10,000 digits": b"1e" + _DIGITS,
    "negative zero": b"-0.0",
    "halves of surrogate pairs": b'"\\ud83d and \\udc00"',
    "a NUL and control characters": b'"a\\u0000b\\u001b[31m\\u202e"',
    "keys with a NUL and half a surrogate pair": b'{"\\u0000":1,"\\ud83d":{"\\udc00":[2]},"~/":3}',
    "equal keys": b'{"k":1,"k":{"k":2},"k":[3]}',
    "objects up to the limit of 256 KiB": b"[" + _OBJECT * ((BODY_BYTES_MAX - 32) // len(_OBJECT)) + b"0]",
    "numbers of every size": b"[" + b",".join([_DIGITS, b"1e400", b"1", b"0.1", b"-1e-400"]) + b"]",
}
"""Values by what is unusual about them."""


def payload_with(value: bytes) -> bytes:
    """A payload with this value at /k."""
    return b'{"k":' + value + b',"action":"opened"}'
