"""Names of fields in JSON: whether each is in snake_case."""

import re
from collections.abc import Iterator
from typing import Any, Final

SNAKE_CASE: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
NAMED_BY_OTHERS: Final = frozenset({"payload", "roles", "before", "after"})
"""Fields in which names are other people's: of a sender's fields, of factories, of a definition file's keys."""


def other_names(value: Any, place: str = "") -> list[str]:
    """Where in a JSON value a field has a name that is not in snake_case."""
    return [f"{at}/{name}" for at, name in _names(value, place) if not SNAKE_CASE.match(name)]


def _names(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _names(each, f"{place}/{number}")
    elif isinstance(value, dict):
        for name, each in value.items():
            yield place, name
            if name not in NAMED_BY_OTHERS:
                yield from _names(each, f"{place}/{name}")
