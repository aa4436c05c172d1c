"""Ids: opaque to users, with a prefix for each kind.

Deliveries and runs have a UUIDv7 (RFC 9562), so that the newest rows are adjacent on disk and a page of the log is one
index scan. They are stored as 16 bytes, and shown as a prefix and 32 hexadecimal digits.
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
"""The stored form of a delivery's id: 16 bytes."""
RunKey = NewType("RunKey", bytes)
"""The stored form of a run's id: 16 bytes."""

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
RANDOM_BYTES: Final = 17
"""The entropy for `random_id`: 17 bytes give 27 characters, or 135 bits."""
_pack_halves: Final = Struct(">QQ").pack
_DIGITS: Final = re.compile(r"[0-9a-f]{32}\Z")


def random_id(prefix: str, entropy: bytes) -> str:
    """An id such as `wh_…` or `aut_…`: a prefix, and 135 random bits as lower-case letters and digits.

    The alphabet omits letters that look like other characters.
    """
    number = int.from_bytes(entropy[:RANDOM_BYTES], "big") >> 1
    return f"{prefix}_" + "".join(_ALPHABET[(number >> shift) & 31] for shift in range(130, -1, -5))


def time_ordered_key(now_us: int, entropy: bytes) -> bytes:
    """The 16 bytes of a UUIDv7: the milliseconds since 1970, the remaining microseconds, and 8 bytes of `entropy`."""
    milliseconds, microseconds = divmod(now_us, 1000)
    head = (milliseconds << 16) | 0x7000 | (microseconds << 2) | (entropy[0] >> 6)
    tail = (int.from_bytes(entropy, "big") & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000
    return _pack_halves(head, tail)


def time_of(key: bytes) -> int:
    """The time that a key contains, in µs since 1970."""
    return int.from_bytes(key[:6], "big") * 1000 + min((int.from_bytes(key[6:8], "big") & 0x0FFF) >> 2, 999)


def delivery_id(key: bytes) -> str:
    """The id `dlv_…` that users see, from the stored key."""
    return "dlv_" + key.hex()


def run_id(key: bytes) -> str:
    """The id `run_…` that users see, from the stored key."""
    return "run_" + key.hex()


def audit_entry_id(key: bytes) -> str:
    """The id `aud_…` that users see, from the stored key."""
    return "aud_" + key.hex()


def alarm_id(key: bytes) -> str:
    """The id `alm_…` that users see, from the stored key."""
    return "alm_" + key.hex()


def notice_id(key: bytes) -> str:
    """The id `ntc_…` that the receiver of a notice sees, from the stored key."""
    return "ntc_" + key.hex()


def delivery_key(text: str) -> DeliveryKey:
    """The stored key, from the id `dlv_…`. Raises `Invalid` for any other text."""
    return DeliveryKey(_key("dlv_", "a delivery id", text))


def run_key(text: str) -> RunKey:
    """The stored key, from the id `run_…`. Raises `Invalid` for any other text."""
    return RunKey(_key("run_", "a run id", text))


def alarm_key(text: str) -> bytes:
    """The stored key, from the id `alm_…`. Raises `Invalid` for any other text."""
    return _key("alm_", "an alarm id", text)


def _key(prefix: str, kind: str, text: str) -> bytes:
    digits = text.removeprefix(prefix)
    if digits == text or not _DIGITS.match(digits):
        raise Invalid(f"{text[:80]!r} is not {kind}. It looks like {prefix}0192f0c1… with 32 digits.")
    return bytes.fromhex(digits)
