"""Replaces secret values in the output, the files and the results of commands.

The guard loads this module without the package, so it uses only the standard library, and of it only fast modules.
"""

import binascii
import heapq
import json
import math
import string
from collections.abc import Iterable, Iterator
from typing import Final

MASK: Final = b"[masked]"
SECRET_BYTES_MIN: Final = 8
"""Shorter values are not masked: they may be part of any word."""
_UNRESERVED: Final = frozenset(f"{string.ascii_letters}{string.digits}-._~".encode())
"""The characters that need no escape in any part of a URL."""
_BASE64_GROUP_BYTES: Final = 3


class Masker:
    """Masks values in text that arrives in chunks, also if a value is split over two of them.

    Masked are the values in the forms that `forms_of` returns. If occurrences overlap, one mask replaces them all.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        self._forms = tuple({form for value in values for form in forms_of(value)})
        self._held = b""
        """The end of the text if a value may begin there."""
        self._covered_bytes = 0
        """If an earlier mask reaches into `_held`: how many of its first bytes it covers. Otherwise 0."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to mask."""
        return bool(self._forms)

    def add(self, chunk: bytes) -> bytes:
        """The masked text up to the point where a value may begin. Later calls return the rest."""
        text = self._held + chunk
        return self._advance(text, min((_unfinished_at(text, form) for form in self._forms), default=len(text)))

    def finish(self) -> bytes:
        """At the end of the text, the bytes that were held back: a secret might have begun there."""
        return self._advance(self._held, len(self._held))

    def mask(self, text: bytes) -> bytes:
        """The whole text, masked."""
        masker = Masker(())
        masker._forms = self._forms
        return masker._advance(text, len(text))

    def mask_text(self, text: str) -> str:
        """Like `mask`."""
        return self.mask(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _advance(self, text: bytes, end: int) -> bytes:
        """The masked text before `end`. Holds the rest."""
        masked = bytearray()
        position = self._covered_bytes
        # Nothing is kept for each value, because a text may consist of millions of them.
        for start, stop in heapq.merge(*(_spans(text, form) for form in self._forms)):
            if start >= end:
                break
            if start >= position:
                masked += text[position:start]
                masked += MASK
            position = max(position, stop)
        masked += text[position:end]
        self._held = text[end:]
        self._covered_bytes = max(0, position - end)
        return bytes(masked)


def forms_of(value: bytes) -> Iterator[bytes]:
    """The forms in which a value is masked. A value that is too short has none.

    They are the value itself, each line of it, and the value in JSON, in a URL, in hexadecimal digits and in base64.
    In base64, the value may also be a part of a longer text. At the value's edges, a base64 character may then also
    contain bits of the surrounding text. Such a first or last character is not compared.
    """
    if len(value) < SECRET_BYTES_MIN:
        return
    yield value
    yield from (line for line in value.splitlines() if len(line) >= SECRET_BYTES_MIN)
    text = value.decode("utf-8", "surrogateescape")
    for escaped in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        yield escaped[1:-1].encode("utf-8", "surrogateescape")
    for digits in ("%02X", "%02x"):
        escapes = [bytes([byte]) if byte in _UNRESERVED else b"%" + (digits % byte).encode() for byte in value]
        yield b"".join(escapes)
        yield b"".join(b"+" if escape == b"%20" else escape for escape in escapes)
    yield value.hex().encode()
    yield value.hex().upper().encode()
    for offset in range(_BASE64_GROUP_BYTES):
        encoded = binascii.b2a_base64(bytes(offset) + value, newline=False)
        # Each character has 6 bits. Those that share bits with the text around the value are left out: the first
        # position is rounded up, the last one down.
        first, last = math.ceil(offset * 8 / 6), (offset + len(value)) * 8 // 6
        core = encoded[first:last]
        yield core
        yield core.translate(bytes.maketrans(b"+/", b"-_"))


def _spans(text: bytes, form: bytes) -> Iterator[tuple[int, int]]:
    """Where the form begins and ends in the text. Occurrences may overlap."""
    start = text.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = text.find(form, start + 1)


def _unfinished_at(text: bytes, form: bytes) -> int:
    """Where the form may begin, and continue after the end of the text; the length of the text if it can't."""
    start = text.find(form[:1], max(0, len(text) - len(form) + 1))
    while start >= 0:
        if form.startswith(text[start:]):
            return start
        start = text.find(form[:1], start + 1)
    return len(text)
