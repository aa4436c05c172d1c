"""The part of YAML that definition files use: mappings, lists and scalars, each with its line and column.

Plain words have their YAML 1.2 meaning: `true`, `false`, `null` and numbers are themselves, and `no`, `on`, `12:30` and
`2026-11-21` are text. Nothing else of YAML is supported. Without tags, no file can construct a type. Without anchors
and aliases, no file expands when it is read. There are no merge keys, directives, or second documents.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import yaml

from hookmill.definitions.problem import Place
from hookmill.domain.json_pointer import steps_of
from hookmill.domain.payload import Json

DEPTH_MAX: Final = 32
"""The limit of nested mappings and lists. The deepest filter needs fewer."""

ReportProblem: TypeAlias = Callable[[Place, str], None]
"""Reports a problem. After the report, parsing continues, to find further problems."""


@dataclass(frozen=True, slots=True)
class ScalarNode:
    place: Place
    value: Json
    """None, bool, int, float or str."""
    spelling: str
    """The scalar's text in the file."""


@dataclass(frozen=True, slots=True)
class ListNode:
    place: Place
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class MappingEntry:
    """The place of a key, and its value."""

    place: Place
    value: "Node"


@dataclass(frozen=True, slots=True)
class MappingNode:
    place: Place
    entries: Mapping[str, MappingEntry]


Node: TypeAlias = ScalarNode | ListNode | MappingNode


def to_json(node: Node) -> Json:
    """The node's value, without its places."""
    match node:
        case ScalarNode():
            return node.value
        case ListNode():
            return [to_json(item) for item in node.items]
        case MappingNode():
            return {key: to_json(entry.value) for key, entry in node.entries.items()}


def node_at(node: Node, pointer: str) -> Node | None:
    """The node at a JSON pointer; None if there is none."""
    for step in steps_of(pointer):
        inner = _child(node, step)
        if inner is None:
            return None
        node = inner
    return node


def place_at(node: Node, pointer: str) -> Place:
    """The place of the value at a JSON pointer, or of the nearest existing value around it."""
    for step in steps_of(pointer):
        inner = _child(node, step)
        if inner is None:
            break
        node = inner
    return node.place


def _child(node: Node, step: str) -> Node | None:
    if isinstance(node, MappingNode):
        entry = node.entries.get(step)
        return entry.value if entry is not None else None
    if isinstance(node, ListNode) and step.isdecimal() and int(step) < len(node.items):
        return node.items[int(step)]
    return None


def compose(text: str, report: ReportProblem, *, first_line: int = 1) -> Node | None:
    """Parse the only document of the text. None if there is no document, or if a problem ends the parsing.

    `first_line` is the number of the text's first line in its file. The text's only line ends must be line feeds.
    """
    composer = _Composer(text, report, first_line)
    try:
        return composer.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = composer.place(mark) if mark is not None else Place(first_line, 1)
        report(place, _readable_error(error))
    except _TooDeep:
        pass
    return None


class _TooDeep(Exception):
    """Ends the reading of a document that is nested too deeply."""


class _Composer:
    """Builds nodes from the parser's events. The parser itself neither recurses nor constructs values."""

    def __init__(self, text: str, report: ReportProblem, first_line: int) -> None:
        self._lines = text.split("\n")
        self._report = report
        self._first_line = first_line
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)

    def place(self, mark: Any) -> Place:
        return Place(mark.line + self._first_line, mark.column + 1)

    def document(self) -> Node | None:
        # The events are: start of the stream, start of a document, its nodes, end of the document, and so on.
        next(self._events)
        document_start = next(self._events)
        if not isinstance(document_start, yaml.DocumentStartEvent):
            return None
        place = self.place(document_start.start_mark)
        if self._lines[place.line - self._first_line].startswith("%"):
            self._report(place, "Directives (%) are not supported. Remove this line.")
        node = self._node(next(self._events), depth=0)
        next(self._events)
        event_after_document = next(self._events)
        if isinstance(event_after_document, yaml.DocumentStartEvent):
            place = self.place(event_after_document.start_mark)
            self._report(
                place, "A second document begins here. A file has one: remove the line ---, or create two files."
            )
        return node

    def _node(self, event: yaml.Event, depth: int) -> Node:
        place = self.place(event.start_mark)
        if depth > DEPTH_MAX:
            self._report(place, f"The nesting is deeper than {DEPTH_MAX} levels.")
            raise _TooDeep
        if isinstance(event, yaml.AliasEvent):
            self._report(place, "Aliases (*) are not supported. Write the value out, or put text in quotes.")
            return ScalarNode(place, "", "")
        assert isinstance(event, yaml.NodeEvent)
        if event.anchor is not None:
            self._report(place, "Anchors (&) are not supported. Remove it, or put text in quotes.")
        match event:
            case yaml.ScalarEvent():
                return self._scalar(event, place)
            case yaml.SequenceStartEvent():
                self._refuse_tag(event.tag, place)
                return ListNode(place, tuple(self._items(depth)))
            case yaml.MappingStartEvent():
                self._refuse_tag(event.tag, place)
                return MappingNode(place, self._entries(depth))
        raise AssertionError(f"the parser has no nodes of other kinds: {event}")

    def _items(self, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _entries(self, depth: int) -> Mapping[str, MappingEntry]:
        entries: dict[str, MappingEntry] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            is_merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if is_merge:
                self._report(key.place, "Merge keys (<<) are not supported. Write the keys out.")
            elif not isinstance(key, ScalarNode):
                self._report(key.place, "A key must be text, not a list or a mapping.")
            elif type(key.value) is not str:
                self._report(key.place, f"Keys must be text. Put {key.spelling[:40] or 'this empty key'} in quotes.")
            elif key.value in entries:
                line = entries[key.value].place.line
                self._report(key.place, f"{_cut(key.value)} is a duplicate key (first in line {line}). Remove one.")
            else:
                entries[key.value] = MappingEntry(key.place, value)
        return entries

    def _scalar(self, event: yaml.ScalarEvent, place: Place) -> ScalarNode:
        self._refuse_tag(event.tag, place)
        if event.tag is not None or not event.implicit[0]:
            return ScalarNode(place, event.value, event.value)
        value = _resolve_plain_word(event.value)
        if isinstance(value, _RefusedWord):
            self._report(place, value.message)
            return ScalarNode(place, event.value, event.value)
        return ScalarNode(place, value, event.value)

    def _refuse_tag(self, tag: str | None, place: Place) -> None:
        if tag is not None:
            self._report(place, "Tags (!) are not supported. Remove it, or put text in quotes.")


@dataclass(frozen=True, slots=True)
class _RefusedWord:
    """A plain word without an exact value in JSON, or a number with a leading zero, which parsers read differently.

    Other words that they read differently, such as `no` and `1_000`, are text. The message does not repeat the word: it
    may be a misplaced secret.
    """

    message: str


_VALUE_BY_WORD: Final[Mapping[str, Json]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_DIGITS_MAX: Final = 640
"""`int` accepts this many digits, whatever the interpreter's limit is."""
_NOT_EXACT: Final = (
    "This number can't be stored exactly. Write it with fewer digits, or put it in quotes if it is text."
)
_NO_JSON_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_AMBIGUOUS_NUMBER: Final = re.compile(
    r"[-+]?0(?:[0-9][0-9_]*|[xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
)


def _resolve_plain_word(word: str) -> Json | _RefusedWord:
    """The value of a plain word by YAML 1.2's core schema."""
    if word in _VALUE_BY_WORD:
        return _VALUE_BY_WORD[word]
    if _NO_JSON_NUMBER.fullmatch(word):
        return _RefusedWord("JSON has no such number. Put it in quotes if it is text.")
    if _AMBIGUOUS_NUMBER.fullmatch(word):
        return _RefusedWord(
            "Some parsers read this as text, others as a number. Put it in quotes, or write it without leading 0."
        )
    if _INTEGER.fullmatch(word):
        return int(word) if len(word) <= _DIGITS_MAX else _RefusedWord(_NOT_EXACT)
    if not _NUMBER.fullmatch(word):
        return word
    # The number is stored as the API would store it. If that would change the number, it is refused.
    number = float(word)
    try:
        is_exact = math.isfinite(number) and Decimal(repr(number)) == Decimal(word)
    except InvalidOperation:
        is_exact = False
    return number if is_exact else _RefusedWord(_NOT_EXACT)


def _readable_error(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or "it can't be read")
    if "'\\t'" in problem:
        return "This is not YAML: a tab where only spaces are allowed. Indent with spaces."
    if problem.startswith("mapping values"):
        return (
            f"This is not YAML: {problem}. Is this line, or the one before, indented by mistake? "
            "Put text that contains a colon and a space in quotes."
        )
    if error.context:
        problem = f"{problem}, {error.context}"
        if error.context_mark is not None and error.problem_mark is not None:
            lines_above = error.problem_mark.line - error.context_mark.line
            problem += (
                f" that began {lines_above} {'line' if lines_above == 1 else 'lines'} above" if lines_above > 0 else ""
            )
    return f"This is not YAML: {problem}."


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"
