"""Filters and payloads as Hypothesis draws them, and a second evaluator, as slow and as literal as the rules."""

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from hookmill.domain.filters import CompiledFilter, Explanation, compile_filter
from hookmill.domain.payload import Parsed, parse

CONTRACT = ("in", "not_in", "exists")


def cut(text: object) -> str:
    shown = str(text)
    return shown if len(shown) <= 60 else f"{shown[:25]}..{shown[-25:]} ({len(shown)})"


def payload(text: str) -> Parsed:
    parsed = parse(text.encode("utf-8"))
    assert isinstance(parsed, Parsed), parsed
    return parsed


def compiled(text: str) -> CompiledFilter:
    ready = compile_filter(payload(text).value)
    assert isinstance(ready, CompiledFilter), ready
    return ready


def matches(filter_text: str, payload_text: str) -> bool:
    return compiled(filter_text).matches(payload(payload_text))


def explain(filter_text: str, payload_text: str) -> Explanation:
    return compiled(filter_text).explain(payload(payload_text))


# What is drawn

NAMES = ["a", "b", "c", "é", "", "in", "exists", "__class__", "__proto__", "a/b", "gt", "$gt", "$ref"]
TOP_NAMES = [name for name in NAMES if not name.startswith("$")]
PLAIN_NAMES = [name for name in TOP_NAMES if name not in CONTRACT]
STRINGS = ['"1"', '"x"', '""', '"xy"', r'"\u0078y"', '"yx"', '"a/b"', r'"a\/b"', '"é"', r'"\u00e9x"', r'"\ud83d"']
NUMBERS = ["0", "-0.0", "1", "1.0", "2", "0.1", "-2.5", "1e400", "1e-400"]
SCALARS = ["null", "true", "false", *NUMBERS, *STRINGS]

scalar_texts = st.sampled_from(SCALARS)


def object_texts(names: list[str], inner: st.SearchStrategy[str], smallest: int = 0) -> st.SearchStrategy[str]:
    return st.dictionaries(st.sampled_from(names), inner, min_size=smallest, max_size=4).map(
        lambda members: "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}"
    )


def array_texts(inner: st.SearchStrategy[str], smallest: int = 0) -> st.SearchStrategy[str]:
    return st.lists(inner, min_size=smallest, max_size=4).map(lambda parts: "[" + ",".join(parts) + "]")


payload_texts = st.recursive(
    scalar_texts,
    lambda inner: array_texts(inner) | object_texts(NAMES, inner),
    max_leaves=20,
)
object_payload_texts = object_texts(NAMES, payload_texts)
set_texts = array_texts(scalar_texts, smallest=1)
flag_texts = st.sampled_from(["true", "false"])
prefix_texts = st.sampled_from([text for text in STRINGS if text != '""'])
glob_texts = st.text("xyé*?", max_size=6).map(json.dumps)
number_texts = st.sampled_from(NUMBERS)


def operator_texts(operators: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries(operators).map(
        lambda chosen: "{" + ",".join(f'"{name}":{text}' for name, text in chosen.items()) + "}"
    )


VALUE_OPERANDS: dict[str, st.SearchStrategy[str]] = {
    "in": set_texts,
    "not_in": set_texts,
    "exists": flag_texts,
    "$prefix": prefix_texts,
    "$suffix": prefix_texts,
    "$glob": glob_texts,
    "$gt": number_texts,
    "$gte": number_texts,
    "$lt": number_texts,
    "$lte": number_texts,
}
rule_texts = st.one_of(
    set_texts,
    *(operator_texts({name: operands}) for name, operands in VALUE_OPERANDS.items()),
    operator_texts({"exists": flag_texts, "not_in": set_texts}),
    operator_texts({"exists": st.just("true"), "in": set_texts}),
    operator_texts({"in": array_texts(st.sampled_from(["1", '"x"']), 1), "not_in": array_texts(st.just("2"), 1)}),
    operator_texts({"$gt": number_texts, "$lte": number_texts, "not_in": set_texts}),
    operator_texts({"$prefix": prefix_texts, "$suffix": prefix_texts}),
)


def composed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return operator_texts({"$not": inner}) | operator_texts({"$any": array_texts(inner, 1)})


def has_room(filter_text: str) -> bool:
    """Whether the filter is well within the limits: twice in one filter it is within them too."""
    return isinstance(compile_filter(payload(f'{{"$any":[{filter_text},{filter_text}]}}').value), CompiledFilter)


nested_texts = st.recursive(
    rule_texts,
    lambda inner: st.one_of(
        object_texts(PLAIN_NAMES, inner, smallest=1),
        operator_texts({"$fields": object_texts(NAMES, inner, smallest=1)}),
        operator_texts({"$fields": object_texts(NAMES, inner, smallest=1), "$not": inner}),
        composed(inner),
    ),
    max_leaves=8,
).filter(lambda field_text: has_room(f'{{"a":{field_text}}}'))
body_texts = st.recursive(
    object_texts(TOP_NAMES, nested_texts, smallest=1)
    | operator_texts({"$fields": object_texts(NAMES, nested_texts, smallest=1)}),
    composed,
    max_leaves=3,
).filter(has_room)
filter_texts = st.just("{}") | body_texts

# What is right


def same(one: Any, other: Any) -> bool:
    """Equality by the book: kinds first, numbers as fractions."""
    if is_number(one) and is_number(other):
        return Fraction(one) == Fraction(other)
    return type(one) is type(other) and one == other


def is_number(one: Any) -> bool:
    return isinstance(one, int | Fraction) and not isinstance(one, bool)


def fits(pattern: str, text: str) -> bool:
    """A pattern of `*` and `?` with escapes, tried in every way."""
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "*":
        return any(fits(rest, text[taken:]) for taken in range(len(text) + 1))
    if head == "\\":
        head, rest = rest[0], rest[1:]
    elif head == "?":
        return bool(text) and fits(rest, text[1:])
    return text[:1] == head and fits(rest, text[1:])


def some(holds: Callable[[Any], bool]) -> Callable[[list[Any]], bool]:
    return lambda values: any(holds(value) for value in values)


def some_string(holds: Callable[[str], bool]) -> Callable[[list[Any]], bool]:
    return some(lambda value: isinstance(value, str) and holds(value))


def some_number(holds: Callable[[Any], bool]) -> Callable[[list[Any]], bool]:
    return some(lambda value: is_number(value) and holds(value))


VALUE_RULES: dict[str, Callable[[Any], Callable[[list[Any]], bool]]] = {
    "in": lambda operand: some(lambda value: any(same(one, value) for one in operand)),
    "not_in": lambda operand: lambda values: not any(same(one, value) for one in operand for value in values),
    "$prefix": lambda operand: some_string(lambda value: fits(f"{literal(operand)}*", value)),
    "$suffix": lambda operand: some_string(lambda value: fits(f"*{literal(operand)}", value)),
    "$glob": lambda operand: some_string(lambda value: fits(operand, value)),
    "$gt": lambda operand: some_number(lambda value: value > operand),
    "$gte": lambda operand: some_number(lambda value: value >= operand),
    "$lt": lambda operand: some_number(lambda value: value < operand),
    "$lte": lambda operand: some_number(lambda value: value <= operand),
}


def literal(text: str) -> str:
    return "".join(f"\\{character}" for character in text)


def field_by_the_book(wanted: Any, present: bool, value: Any) -> bool:
    """`wanted` is what the filter says of one field."""
    if isinstance(wanted, list):
        wanted = {"in": wanted}
    if not any(name.startswith("$") or name in CONTRACT for name in wanted):
        return fields_by_the_book(wanted, value)
    return all(operator_by_the_book(name, operand, present, value) for name, operand in wanted.items())


def operator_by_the_book(name: str, operand: Any, present: bool, value: Any) -> bool:
    if name == "exists":
        return present is operand
    if name == "$not":
        return not field_by_the_book(operand, present, value)
    if name == "$any":
        return any(field_by_the_book(each, present, value) for each in operand)
    if name == "$fields":
        return fields_by_the_book(operand, value)
    values = value if isinstance(value, list) else [value] if present else []
    return VALUE_RULES[name](operand)([one for one in values if not isinstance(one, dict | list)])


def fields_by_the_book(wanted: dict[str, Any], value: Any) -> bool:
    objects = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
    return any(
        all(field_by_the_book(asked, name in found, found.get(name)) for name, asked in wanted.items())
        for found in objects
    )


def body_by_the_book(wanted: dict[str, Any], value: Any) -> bool:
    """`wanted` is a whole filter, or what stands inside its top level."""
    if not wanted:
        return True
    if "$not" in wanted:
        return not body_by_the_book(wanted["$not"], value)
    if "$any" in wanted:
        return any(body_by_the_book(each, value) for each in wanted["$any"])
    return fields_by_the_book(wanted.get("$fields", wanted), value)


def book_value(text: str) -> Any:
    return json.loads(text, parse_float=Fraction)
