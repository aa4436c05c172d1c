"""Finds names of JSON fields that are not in snake_case."""

import re
from collections.abc import Iterator
from typing import Any, Final

SNAKE_CASE: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
NAMED_BY_OTHERS: Final = frozenset({"payload", "roles", "before", "after"})
"""Fields whose objects have names that this project does not choose: those of a sender's fields, of factories, and of
a definition file's keys."""


def names_not_in_snake_case(value: Any, place: str = "") -> list[str]:
    """The paths of the fields in a JSON value whose names are not in snake_case. `place` is the path of the value."""
    return [f"{parent}/{name}" for parent, name in _names(value, place) if not SNAKE_CASE.match(name)]


def _names(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _names(each, f"{place}/{number}")
    elif isinstance(value, dict):
        for name, each in value.items():
            yield place, name
            if name not in NAMED_BY_OTHERS:
                yield from _names(each, f"{place}/{name}")
