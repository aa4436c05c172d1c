r"""Patterns for strings: `*` is any text, `?` one character, and a backslash takes the next one literally.

The time is linear in the string: no string and no pattern makes the search go back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

PATTERN_CHARACTERS_MAX: Final = 500

_Piece = tuple[str | None, ...]
"""What stands between two stars: characters, and None for one that may be any."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern that can be matched."""

    first: "_Part"
    between: tuple["_Part", ...]
    last: "_Part | None"
    """None where the pattern has no star: then `first` is all of it."""
    shortest: int

    def matches(self, text: str) -> bool:
        """Whether the pattern covers the whole text."""
        length = len(text)
        if length < self.shortest or not self.first.is_at(text, 0):
            return False
        if self.last is None:
            return length == self.shortest
        end = length - self.last.length
        if not self.last.is_at(text, end):
            return False
        # The leftmost place of each part leaves the most room for those that follow.
        at = self.first.length
        for part in self.between:
            at = part.end_in(text, at, end)
            if at < 0:
                return False
        return True

    def literals(self) -> Iterator[str]:
        """The runs of plain characters that every matching text holds."""
        for part in (self.first, *self.between, self.last):
            if part is not None:
                yield from part.runs


def read_glob(pattern: str) -> Glob | None:
    """The pattern, None where a backslash stands before anything but `*`, `?` and a backslash."""
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("*", "?", "\\"):
                return None
            pieces[-1].append(escaped)
        elif character == "*":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "?" else character)
    first, *rest = (_Part(tuple(piece)) for piece in pieces)
    last = rest.pop() if rest else None
    shortest = sum(part.length for part in (first, *rest)) + (last.length if last is not None else 0)
    return Glob(first, tuple(part for part in rest if part.length), last, shortest)


class _Part:
    """What stands between two stars of a pattern."""

    __slots__ = ("_any_character", "_literal", "_places", "length", "runs")

    def __init__(self, piece: _Piece) -> None:
        self.length = len(piece)
        runs = groupby(piece, key=lambda character: character is None)
        self.runs = tuple("".join(map(str, run)) for is_any, run in runs if not is_any)
        self._literal = "".join(self.runs) if None not in piece else None
        # For each character, a bit for every place of the piece where it may stand; and the same for all others.
        self._any_character = sum(1 << place for place, character in enumerate(piece) if character is None)
        self._places: dict[str, int] = {}
        for place, character in enumerate(piece):
            if character is not None:
                self._places[character] = self._places.get(character, self._any_character) | 1 << place

    def is_at(self, text: str, start: int) -> bool:
        """Whether the text, which is long enough, goes on so from there."""
        if self._literal is not None:
            return text.startswith(self._literal, start)
        return self.end_in(text, start, start + self.length) >= 0

    def end_in(self, text: str, start: int, end: int) -> int:
        """Where the leftmost such stretch of the text ends, -1 if there is none."""
        if self._literal is not None:
            at = text.find(self._literal, start, end)
            return at + self.length if at >= 0 else -1
        for run in self.runs:
            if text.find(run, start, end) < 0:
                return -1
        # Shift-And: bit n says whether the text so far ends with the first n + 1 places of the piece.
        begun, complete = 0, 1 << (self.length - 1)
        places, any_character = self._places, self._any_character
        for at in range(start, end):
            begun = (begun << 1 | 1) & places.get(text[at], any_character)
            if begun & complete:
                return at + 1
        return -1
