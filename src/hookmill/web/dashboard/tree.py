"""A payload as a tree for display. Its texts are escaped, and its size is limited."""

import json
from dataclasses import dataclass, field
from typing import Final

from hookmill.domain import payload, text
from hookmill.domain.payload import Json

DEPTH_MAX: Final = 40
BRANCHES_MAX: Final = 1_500
"""The maximum number of keys and elements in a tree."""
VALUE_CHARACTERS_MAX: Final = 500
OPEN_DEPTH: Final = 2
"""Levels that are initially open in a large tree. A small tree is completely open."""
OPEN_BRANCHES_MAX: Final = 60
"""A tree with more branches is large."""


@dataclass(slots=True, kw_only=True)
class Branch:
    """One key of an object, one element of an array, or the payload itself. Its texts are escaped for display."""

    name: str | None
    kind: str
    """`string`, `number`, `boolean`, `null`, `object` or `array`."""
    text: str
    """The value; for an object or an array, the number of its branches."""
    is_cut: bool = False
    is_open: bool = False
    branches: "list[Branch]" = field(default_factory=list)


def tree_of(body: bytes) -> Branch | None:
    """The tree of a JSON body; None if the body is too large or too deep for a tree."""
    parsed = payload.parse(body)
    if isinstance(parsed, payload.NotJson):
        return None
    value = parsed.value
    count, depth = _measure(value)
    if count > BRANCHES_MAX or depth > DEPTH_MAX:
        return None
    return _branch(None, value, level=0, is_small=count <= OPEN_BRANCHES_MAX)


def _measure(value: Json) -> tuple[int, int]:
    """The number of branches and the depth, counted up to the limits. Not recursive: a body can be very deep."""
    count = deepest = 0
    level = [value]
    while level and count <= BRANCHES_MAX and deepest <= DEPTH_MAX:
        deepest += 1
        next_level = [child for parent in level for child in _children(parent)]
        count += len(next_level)
        level = next_level
    return count, deepest


def _children(value: Json) -> list[Json]:
    if type(value) is dict:
        return list(value.values())
    return value if type(value) is list else []


def _branch(name: str | None, value: Json, *, level: int, is_small: bool) -> Branch:
    children: list[tuple[str, Json]] = []
    if type(value) is dict:
        kind, rendered = "object", _count_text(len(value), "key")
        children = list(value.items())
    elif type(value) is list:
        kind, rendered = "array", _count_text(len(value), "element")
        children = [(str(index), element) for index, element in enumerate(value)]
    else:
        kind, rendered = _scalar(value)
    display_text, is_cut = _cut(rendered)
    return Branch(
        name=_cut(name)[0] if name is not None else None,
        kind=kind,
        text=display_text,
        is_cut=is_cut,
        is_open=level < OPEN_DEPTH or is_small,
        branches=[_branch(key, child, level=level + 1, is_small=is_small) for key, child in children],
    )


def _scalar(value: Json) -> tuple[str, str]:
    """The kind of a scalar, and its text."""
    if type(value) is str:
        # Long strings are cut before they are escaped, to save time.
        return "string", json.dumps(value[: VALUE_CHARACTERS_MAX + 1], ensure_ascii=False)
    if value is None:
        return "null", "null"
    if type(value) is bool:
        return "boolean", "true" if value else "false"
    return "number", str(value)


def _cut(rendered: str) -> tuple[str, bool]:
    """The text, escaped and cut if it is long, and whether it was cut."""
    is_cut = len(rendered) > VALUE_CHARACTERS_MAX
    return text.shown(rendered[:VALUE_CHARACTERS_MAX]) + ("…" if is_cut else ""), is_cut


def _count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
