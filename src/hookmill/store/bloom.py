"""Bloom filters of digests: whether a set may contain a digest.

A filter is an array of bits. If one of a digest's bits is 0, the set does not contain the digest. If all of them are 1,
it may contain it: with 16 bits for each digest of the set, a digest that is not in the set has a chance of 1 in 400.
"""

from collections.abc import Iterable
from typing import Final

BITS_PER_DIGEST: Final = 16


def size_bytes(digests: int) -> int:
    """The size of a filter for a set of this many digests: a power of two."""
    return 1 << (max(digests, 1) * BITS_PER_DIGEST // 8 - 1).bit_length()


def add(bits: bytearray, digests: Iterable[bytes]) -> None:
    """Add digests of 16 uniformly distributed bytes. `bits` is a filter, or zeros; its size is a power of two."""
    mask = 8 * len(bits) - 1
    for digest in digests:
        number = int.from_bytes(digest, "little")
        for position in (number & mask, number >> 32 & mask, number >> 64 & mask, number >> 96 & mask):
            bits[position >> 3] |= 1 << (position & 7)


def may_contain(bits: bytes, digest_number: int) -> bool:
    """`digest_number` is the digest as an integer, little-endian: a caller may ask several filters."""
    mask = 8 * len(bits) - 1
    position = digest_number & mask
    if not bits[position >> 3] >> (position & 7) & 1:
        return False
    position = digest_number >> 32 & mask
    if not bits[position >> 3] >> (position & 7) & 1:
        return False
    position = digest_number >> 64 & mask
    if not bits[position >> 3] >> (position & 7) & 1:
        return False
    position = digest_number >> 96 & mask
    return bool(bits[position >> 3] >> (position & 7) & 1)
