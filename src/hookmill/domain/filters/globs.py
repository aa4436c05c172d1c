r"""Patterns for strings: `*` matches any text, `?` one character, and a backslash makes the next character literal.

Matching takes time linear in the string, because it never backtracks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

PATTERN_CHARACTERS_MAX: Final = 500

_Piece = tuple[str | None, ...]
"""A stretch of a pattern without stars: its characters, with None for `?`."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled pattern."""

    first: "_Part"
    between: tuple["_Part", ...]
    last: "_Part | None"
    """None if the pattern has no star; then `first` is the whole pattern."""
    length_min: int
    """The length of the shortest matching text. Without a star, all matching texts have this length."""

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        length = len(text)
        if length < self.length_min or not self.first.matches_at(text, 0):
            return False
        if self.last is None:
            return length == self.length_min
        last_start = length - self.last.length
        if not self.last.matches_at(text, last_start):
            return False
        # The leftmost match of each part leaves the most text for the parts after it.
        position = self.first.length
        for part in self.between:
            position = part.end_of_first_match(text, position, last_start)
            if position < 0:
                return False
        return True

    def literals(self) -> Iterator[str]:
        """The strings of adjacent literal characters in the pattern. Every matching text contains all of them."""
        for part in (self.first, *self.between, self.last):
            if part is not None:
                yield from part.literals


def read_glob(pattern: str) -> Glob | None:
    """The compiled pattern; None if a backslash is at the end, or before another character than `*`, `?` and `\\`."""
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
    length_min = sum(part.length for part in (first, *rest)) + (last.length if last is not None else 0)
    return Glob(first, tuple(part for part in rest if part.length), last, length_min)


class _Part:
    """A compiled `_Piece`."""

    __slots__ = ("_masks", "_only_literal", "_wildcards", "length", "literals")

    def __init__(self, piece: _Piece) -> None:
        self.length = len(piece)
        groups = groupby(piece, key=lambda character: character is None)
        # `str` is for the type checker: these groups contain no None.
        self.literals = tuple("".join(map(str, group)) for is_wildcard, group in groups if not is_wildcard)
        self._only_literal = "".join(self.literals) if None not in piece else None
        # The masks of the Shift-And algorithm: bit n is set if the character matches position n of the piece.
        self._wildcards = sum(1 << position for position, character in enumerate(piece) if character is None)
        self._masks: dict[str, int] = {}
        for position, character in enumerate(piece):
            if character is not None:
                self._masks[character] = self._masks.get(character, self._wildcards) | 1 << position

    def matches_at(self, text: str, start: int) -> bool:
        """Whether the part matches at `start`. The text must be long enough."""
        if self._only_literal is not None:
            return text.startswith(self._only_literal, start)
        return self.end_of_first_match(text, start, start + self.length) >= 0

    def end_of_first_match(self, text: str, start: int, end: int) -> int:
        """The end of the leftmost match between `start` and `end`; -1 if there is none."""
        if self._only_literal is not None:
            index = text.find(self._only_literal, start, end)
            return index + self.length if index >= 0 else -1
        for literal in self.literals:
            if text.find(literal, start, end) < 0:
                return -1
        # Shift-And: bit n of `state` says whether the text so far ends with the first n + 1 characters of the piece.
        state, complete = 0, 1 << (self.length - 1)
        masks, wildcards = self._masks, self._wildcards
        for index in range(start, end):
            state = (state << 1 | 1) & masks.get(text[index], wildcards)
            if state & complete:
                return index + 1
        return -1
