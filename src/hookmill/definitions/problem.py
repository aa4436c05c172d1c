"""A problem in a definition file: its place, a description, and advice. All problems are reported together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hookmill.domain.errors import Invalid


class Place(NamedTuple):
    """A place in a file: line and column, both from 1, the column in characters."""

    line: int
    column: int


START = Place(1, 1)
NOWHERE = Place(0, 0)
"""The place of a problem of the folder itself, which has no lines."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """An error or a warning at one place of one file."""

    file: str
    """The path inside the folder, as printable text."""
    place: Place
    message: str

    def __str__(self) -> str:
        if self.place == NOWHERE:
            return self.message
        return f"{self.file}:{self.place.line}:{self.place.column}: {self.message}"

    def as_json(self) -> dict[str, Any]:
        line, column = self.place if self.place != NOWHERE else (None, None)
        return {"file": self.file, "line": line, "column": column, "message": self.message}


class UnusableDefinitions(Invalid):
    """The files can't be applied, or files can't express the factory to export. Nothing was changed or written."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(map(str, self.problems)))
