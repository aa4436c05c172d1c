"""The fields of a stored payload, as a tree of clickable nodes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from hookmill.domain import text
from hookmill.domain.filters import CompiledFilter, compile_filter, fields_in, filter_to_json, with_fields
from hookmill.domain.payload import Json
from hookmill.web.dashboard.filter_editor.typed import ParsedTriggers, plain_number

FIELDS_MAX: Final = 500
"""The maximum of fields in the tree."""
LEVELS_MAX: Final = 12
"""The maximum depth of the tree. Filters are less deep."""
OPEN_UP_TO: Final = 12
"""A branch with more fields is collapsed, unless the filter contains one of them."""
VALUE_SHOWN_MAX: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A field in the tree. A click sends its `number`; None if no filter can match the field, for the reason
    `why_not`."""

    name: str
    shown: str
    number: int | None = None
    is_chosen: bool = False
    why_not: str = ""
    children: tuple["Node", ...] = ()
    is_branch: bool = False
    is_open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    root: Node
    is_whole: bool
    chosen: tuple[int, ...]
    """The numbers of the fields whose values the filter contains."""


@dataclass(slots=True)
class _TreeBuilder:
    """Builds the tree of a payload. Fields are numbered in their order, so the same payload gets the same numbers."""

    source: Json
    fields: list[tuple[tuple[str, ...], Json]] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    room: int = FIELDS_MAX
    is_whole: bool = True

    def node(self, name: str, value: Json, steps: tuple[str, ...] | None, level: int, why_not: str = "") -> Node:
        self.room -= 1
        if type(value) not in (dict, list):
            return self._leaf(name, value, steps)
        many, one = ("fields", "field") if type(value) is dict else ("elements", "element")
        shown = f"{len(value)} {one if len(value) == 1 else many}"
        children: tuple[Node, ...] = ()
        chosen_before = len(self.chosen)
        if level < LEVELS_MAX:
            children = tuple(self._children(value, steps, level))
        elif value:
            self.is_whole = False
        is_open = level == 0 or len(children) <= OPEN_UP_TO or len(self.chosen) > chosen_before
        return Node(name=name, shown=shown, children=children, is_branch=True, is_open=is_open, why_not=why_not)

    def _children(
        self, value: dict[str, Json] | list[Json], steps: tuple[str, ...] | None, level: int
    ) -> Iterator[Node]:
        inside: Iterator[tuple[str, Json]]
        if type(value) is dict:
            inside = iter(value.items())
        else:
            inside = ((str(index), element) for index, element in enumerate(value))
        for name, of in inside:
            if self.room <= 0:
                self.is_whole = False
                return
            if type(value) is dict:
                below = (*steps, name) if steps is not None else None
                yield self.node(name_shown(name), of, below, level + 1)
            elif type(of) is list:
                yield self.node(f"[{name}]", of, None, level + 1, "filters can't match an array inside an array")
            else:
                # A filter matches any element of an array, without an index.
                yield self.node(f"[{name}]", of, steps, level + 1)

    def _leaf(self, name: str, value: Json, steps: tuple[str, ...] | None) -> Node:
        shown = value_shown(value)
        if steps is None:
            return Node(name=name, shown=shown)
        if why_not := _why_not(steps, value):
            return Node(name=name, shown=shown, why_not=why_not)
        number = len(self.fields)
        self.fields.append((steps, value))
        is_chosen = _is_asked_for(self.source, steps, value)
        if is_chosen:
            self.chosen.append(number)
        return Node(name=name, shown=shown, number=number, is_chosen=is_chosen)


def tree(body: Json, parsed: ParsedTriggers) -> Tree:
    """The tree of the payload, with the fields that the filter contains marked."""
    builder = build_tree(body, source_of(parsed))
    return Tree(root=builder[1], is_whole=builder[0].is_whole, chosen=tuple(builder[0].chosen))


def build_tree(body: Json, source: Json) -> tuple[_TreeBuilder, Node]:
    builder = _TreeBuilder(source)
    return builder, builder.node("", body, (), 0)


def source_of(parsed: ParsedTriggers) -> Json:
    if not parsed.is_usable or len(parsed.triggers) != 1 or parsed.triggers[0].payload is None:
        return {}
    return parsed.triggers[0].payload.source


def _why_not(steps: tuple[str, ...], value: Json) -> str:
    """Why no filter can match this value; empty if one can. The filter compiler decides."""
    if not steps:
        return "filters can match only named fields"
    kept = plain_number(value)
    if kept is None and value is not None:
        return "the number has too many digits for a filter"
    wanted: Json = [kept]
    for level in range(len(steps) - 1, -1, -1):
        wanted = with_fields({}, {steps[level]: wanted}, is_body=level == 0)
    compiled = compile_filter(wanted)
    return "" if isinstance(compiled, CompiledFilter) else compiled[0].message


def name_shown(name: str) -> str:
    shown = text.shown(name[:VALUE_SHOWN_MAX]) + ("…" if len(name) > VALUE_SHOWN_MAX else "")
    return shown if shown.strip() else f'"{shown}"'


def value_shown(value: Json) -> str:
    if type(value) is str:
        is_cut = len(value) > VALUE_SHOWN_MAX
        return text.shown(json.dumps(value[:VALUE_SHOWN_MAX], ensure_ascii=False)) + ("…" if is_cut else "")
    written = filter_to_json(value)
    return written if len(written) <= VALUE_SHOWN_MAX else written[:VALUE_SHOWN_MAX] + "…"


def _is_asked_for(source: Json, steps: tuple[str, ...], value: Json) -> bool:
    wanted = source
    for level, name in enumerate(steps):
        fields = fields_in(wanted, is_body=level == 0) if type(wanted) is dict else None
        if fields is None or name not in fields:
            return False
        wanted = fields[name]
    values = wanted.get("in", []) if type(wanted) is dict else wanted
    return type(values) is list and comparable(value) in map(comparable, values)


def comparable(value: Json) -> tuple[str, Json]:
    if type(value) in (int, float, Decimal):
        return "number", Decimal(repr(value)) if type(value) is float else value
    return type(value).__name__, value
