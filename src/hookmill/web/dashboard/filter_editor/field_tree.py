"""The fields of a stored payload, as a tree of clickable nodes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from hookmill.domain import text
from hookmill.domain.filters import CompiledFilter, compile_filter, exact_json, fields_in, with_fields
from hookmill.domain.payload import Json
from hookmill.web.dashboard.filter_editor.parsing import ParsedTriggers, storable_scalar

FIELDS_MAX: Final = 500
"""The maximum of nodes in the tree, including branches."""
LEVELS_MAX: Final = 12
"""The maximum depth of the tree. Filters can't be as deep."""
OPEN_CHILDREN_MAX: Final = 12
"""A branch with more children is collapsed, unless the filter contains the value of a field inside it."""
VALUE_CHARACTERS_MAX: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A field of an object, an element of an array, or the payload itself, in the tree."""

    name: str
    display_text: str
    """The value, or for a branch the number of its children."""
    number: int | None = None
    """A click on the field sends this number. None for a branch, and for a field that no filter can match."""
    is_chosen: bool = False
    """Whether the filter contains the field's value."""
    unmatchable_reason: str = ""
    """Why no filter can match the field."""
    children: tuple["Node", ...] = ()
    is_branch: bool = False
    is_open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    root: Node
    is_complete: bool
    """Whether the tree contains all fields of the payload."""
    chosen_numbers: tuple[int, ...]
    """The numbers of the fields whose values the filter contains."""


@dataclass(slots=True)
class _TreeBuilder:
    """Builds the tree of a payload. Fields are numbered in their order, so the same payload gets the same numbers."""

    source: Json
    fields: list[tuple[tuple[str, ...], Json]] = field(default_factory=list)
    chosen_numbers: list[int] = field(default_factory=list)
    remaining_nodes: int = FIELDS_MAX
    is_complete: bool = True

    def node(
        self, name: str, value: Json, steps: tuple[str, ...] | None, level: int, unmatchable_reason: str = ""
    ) -> Node:
        self.remaining_nodes -= 1
        if type(value) not in (dict, list):
            return self._leaf(name, value, steps)
        plural, singular = ("fields", "field") if type(value) is dict else ("elements", "element")
        display_text = f"{len(value)} {singular if len(value) == 1 else plural}"
        children: tuple[Node, ...] = ()
        chosen_count_before = len(self.chosen_numbers)
        if level < LEVELS_MAX:
            children = tuple(self._children(value, steps, level))
        elif value:
            self.is_complete = False
        is_open = level == 0 or len(children) <= OPEN_CHILDREN_MAX or len(self.chosen_numbers) > chosen_count_before
        return Node(
            name=name,
            display_text=display_text,
            children=children,
            is_branch=True,
            is_open=is_open,
            unmatchable_reason=unmatchable_reason,
        )

    def _children(
        self, value: dict[str, Json] | list[Json], steps: tuple[str, ...] | None, level: int
    ) -> Iterator[Node]:
        items: Iterator[tuple[str, Json]]
        if type(value) is dict:
            items = iter(value.items())
        else:
            items = ((str(index), element) for index, element in enumerate(value))
        for name, child in items:
            if self.remaining_nodes <= 0:
                self.is_complete = False
                return
            if type(value) is dict:
                child_steps = (*steps, name) if steps is not None else None
                yield self.node(display_name(name), child, child_steps, level + 1)
            elif type(child) is list:
                yield self.node(f"[{name}]", child, None, level + 1, "filters can't match an array inside an array")
            else:
                # A filter matches any element of an array, without an index.
                yield self.node(f"[{name}]", child, steps, level + 1)

    def _leaf(self, name: str, value: Json, steps: tuple[str, ...] | None) -> Node:
        display_text = display_value(value)
        if steps is None:
            return Node(name=name, display_text=display_text)
        if unmatchable_reason := _unmatchable_reason(steps, value):
            return Node(name=name, display_text=display_text, unmatchable_reason=unmatchable_reason)
        number = len(self.fields)
        self.fields.append((steps, value))
        is_chosen = _is_in_filter(self.source, steps, value)
        if is_chosen:
            self.chosen_numbers.append(number)
        return Node(name=name, display_text=display_text, number=number, is_chosen=is_chosen)


def tree(body: Json, parsed: ParsedTriggers) -> Tree:
    """The tree of the payload, with the fields that the filter contains marked."""
    builder, root = build_tree(body, source_of(parsed))
    return Tree(root=root, is_complete=builder.is_complete, chosen_numbers=tuple(builder.chosen_numbers))


def build_tree(body: Json, source: Json) -> tuple[_TreeBuilder, Node]:
    """Build the payload's tree. Returns its builder, which has the fields by number, and the root.

    `source`: the JSON of the filter.
    """
    builder = _TreeBuilder(source)
    return builder, builder.node("", body, (), 0)


def source_of(parsed: ParsedTriggers) -> Json:
    """The JSON of the only trigger's filter; empty without a filter, or if there are several triggers."""
    if not parsed.is_usable or len(parsed.filters) != 1 or parsed.filters[0].payload is None:
        return {}
    return parsed.filters[0].payload.source


def _unmatchable_reason(steps: tuple[str, ...], value: Json) -> str:
    """Why no filter can match this value; empty if one can. The filter compiler decides."""
    if not steps:
        return "filters can match only named fields"
    stored_value = storable_scalar(value)
    if stored_value is None and value is not None:
        return "the number has too many digits for a filter"
    filter_source: Json = [stored_value]
    for level in range(len(steps) - 1, -1, -1):
        filter_source = with_fields({}, {steps[level]: filter_source}, is_body=level == 0)
    compiled = compile_filter(filter_source)
    return "" if isinstance(compiled, CompiledFilter) else compiled[0].message


def display_name(name: str) -> str:
    visible = text.shown(name[:VALUE_CHARACTERS_MAX]) + ("…" if len(name) > VALUE_CHARACTERS_MAX else "")
    return visible if visible.strip() else f'"{visible}"'


def display_value(value: Json) -> str:
    if type(value) is str:
        is_cut = len(value) > VALUE_CHARACTERS_MAX
        return text.shown(json.dumps(value[:VALUE_CHARACTERS_MAX], ensure_ascii=False)) + ("…" if is_cut else "")
    json_text = exact_json(value)
    return json_text if len(json_text) <= VALUE_CHARACTERS_MAX else json_text[:VALUE_CHARACTERS_MAX] + "…"


def _is_in_filter(source: Json, steps: tuple[str, ...], value: Json) -> bool:
    """Whether the filter with this source has a condition with this value at these steps."""
    condition = source
    for level, name in enumerate(steps):
        fields = fields_in(condition, is_body=level == 0) if type(condition) is dict else None
        if fields is None or name not in fields:
            return False
        condition = fields[name]
    values = condition.get("in", []) if type(condition) is dict else condition
    return type(values) is list and comparable(value) in map(comparable, values)


def comparable(value: Json) -> tuple[str, Json]:
    """A form of the value that is equal for values that filters regard as equal: 1 and 1.0, but not 1 and true."""
    if type(value) in (int, float, Decimal):
        return "number", Decimal(repr(value)) if type(value) is float else value
    return type(value).__name__, value
