"""Names of things: opaque to everybody outside, and told apart by their prefix.

Deliveries and runs carry a UUIDv7 (RFC 9562), so that the newest rows stand together on disk and a page of the log is
one walk. They are kept as 16 bytes and shown as a prefix and 32 hexadecimal digits.
"""

import re
from struct import Struct
from typing import Final, NewType

from hookmill.domain.errors import Invalid

WebhookUid = NewType("WebhookUid", str)
FactoryId = NewType("FactoryId", str)
TeamId = NewType("TeamId", str)
AutomationId = NewType("AutomationId", str)
SecretId = NewType("SecretId", str)

DeliveryKey = NewType("DeliveryKey", bytes)
"""A delivery's 16 bytes, as stored."""
RunKey = NewType("RunKey", bytes)
"""A run's 16 bytes, as stored."""

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
RANDOM_BYTES: Final = 17
"""What `random_name` needs: 17 bytes give 27 characters, 135 bits."""
_TWO_HALVES: Final = Struct(">QQ").pack
_SHOWN: Final = re.compile(r"[0-9a-f]{32}\Z")


def random_name(prefix: str, entropy: bytes) -> str:
    """`wh_…`, `aut_…`: a prefix and 135 random bits in lower-case letters and digits that are hard to confuse."""
    number = int.from_bytes(entropy[:RANDOM_BYTES], "big") >> 1
    return f"{prefix}_" + "".join(_ALPHABET[(number >> shift) & 31] for shift in range(130, -1, -5))


def time_ordered(now_us: int, entropy: bytes) -> bytes:
    """A UUIDv7's 16 bytes: milliseconds since 1970, the microseconds within, then 62 bits of `entropy` (8 bytes)."""
    milliseconds, microseconds = divmod(now_us, 1000)
    head = (milliseconds << 16) | 0x7000 | (microseconds << 2) | (entropy[0] >> 6)
    tail = (int.from_bytes(entropy, "big") & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000
    return _TWO_HALVES(head, tail)


def time_of(key: bytes) -> int:
    """The µs since 1970 that a key was made of."""
    return int.from_bytes(key[:6], "big") * 1000 + min((int.from_bytes(key[6:8], "big") & 0x0FFF) >> 2, 999)


def delivery_id(key: bytes) -> str:
    """`dlv_…`, as the sender sees it."""
    return "dlv_" + key.hex()


def run_id(key: bytes) -> str:
    """`run_…`, as people see it."""
    return "run_" + key.hex()


def audit_entry_id(key: bytes) -> str:
    """`aud_…`, as people see it."""
    return "aud_" + key.hex()


def delivery_key(shown: str) -> DeliveryKey:
    """The stored key of a shown delivery id. Raises `Invalid` when it is none."""
    return DeliveryKey(_key("dlv_", "delivery id", shown))


def run_key(shown: str) -> RunKey:
    """The stored key of a shown run id. Raises `Invalid` when it is none."""
    return RunKey(_key("run_", "run id", shown))


def _key(prefix: str, kind: str, shown: str) -> bytes:
    digits = shown.removeprefix(prefix)
    if digits == shown or not _SHOWN.match(digits):
        raise Invalid(f"{shown[:80]!r} is not a {kind}. It looks like {prefix}0192f0c1… with 32 digits.")
    return bytes.fromhex(digits)
