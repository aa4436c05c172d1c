"""Strategies that draw filters and payloads, and a reference evaluator that follows docs/filters.md literally."""

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from hookmill.domain.errors import Fault
from hookmill.domain.filters import CompiledFilter, Explanation, compile_filter
from hookmill.domain.payload import Json, Parsed, parse

OPERATORS_WITHOUT_DOLLAR = ("in", "not_in", "exists")


def shortened(value: object) -> str:
    """A readable id of a test case."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:25]}..{text[-25:]} ({len(text)})"


def payload(text: str) -> Parsed:
    parsed = parse(text.encode("utf-8"))
    assert isinstance(parsed, Parsed), parsed
    return parsed


def compiled(text: str) -> CompiledFilter:
    result = compile_filter(payload(text).value)
    assert isinstance(result, CompiledFilter), result
    return result


def problems(source: Json) -> list[Fault]:
    result = compile_filter(source)
    assert isinstance(result, list), result
    return result


def matches(filter_text: str, payload_text: str) -> bool:
    return compiled(filter_text).matches(payload(payload_text))


def explain(filter_text: str, payload_text: str) -> Explanation:
    return compiled(filter_text).explain(payload(payload_text))


# Strategies

NAMES = ["a", "b", "c", "é", "", "in", "exists", "__class__", "__proto__", "a/b", "gt", "$gt", "$ref"]
TOP_NAMES = [name for name in NAMES if not name.startswith("$")]
PLAIN_NAMES = [name for name in TOP_NAMES if name not in OPERATORS_WITHOUT_DOLLAR]
STRINGS = ['"1"', '"x"', '""', '"xy"', r'"\u0078y"', '"yx"', '"a/b"', r'"a\/b"', '"é"', r'"\u00e9x"', r'"\ud83d"']
NUMBERS = ["0", "-0.0", "1", "1.0", "2", "0.1", "-2.5", "1e400", "1e-400"]
SCALARS = ["null", "true", "false", *NUMBERS, *STRINGS]

scalar_texts = st.sampled_from(SCALARS)


def object_texts(names: list[str], inner: st.SearchStrategy[str], size_min: int = 0) -> st.SearchStrategy[str]:
    return st.dictionaries(st.sampled_from(names), inner, min_size=size_min, max_size=4).map(
        lambda members: "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}"
    )


def array_texts(inner: st.SearchStrategy[str], size_min: int = 0) -> st.SearchStrategy[str]:
    return st.lists(inner, min_size=size_min, max_size=4).map(lambda parts: "[" + ",".join(parts) + "]")


payload_texts = st.recursive(
    scalar_texts,
    lambda inner: array_texts(inner) | object_texts(NAMES, inner),
    max_leaves=20,
)
object_payload_texts = object_texts(NAMES, payload_texts)
set_texts = array_texts(scalar_texts, size_min=1)
flag_texts = st.sampled_from(["true", "false"])
prefix_texts = st.sampled_from([text for text in STRINGS if text != '""'])
glob_texts = st.text("xyé*?", max_size=6).map(json.dumps)
number_texts = st.sampled_from(NUMBERS)


def operator_texts(operators: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries(operators).map(
        lambda operands: "{" + ",".join(f'"{name}":{text}' for name, text in operands.items()) + "}"
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


def not_or_any_texts(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return operator_texts({"$not": inner}) | operator_texts({"$any": array_texts(inner, 1)})


def is_far_below_limits(filter_text: str) -> bool:
    """Whether the filter is far below the limits, so that another filter can contain it twice."""
    return isinstance(compile_filter(payload(f'{{"$any":[{filter_text},{filter_text}]}}').value), CompiledFilter)


nested_texts = st.recursive(
    rule_texts,
    lambda inner: st.one_of(
        object_texts(PLAIN_NAMES, inner, size_min=1),
        operator_texts({"$fields": object_texts(NAMES, inner, size_min=1)}),
        operator_texts({"$fields": object_texts(NAMES, inner, size_min=1), "$not": inner}),
        not_or_any_texts(inner),
    ),
    max_leaves=8,
).filter(lambda field_text: is_far_below_limits(f'{{"a":{field_text}}}'))
body_texts = st.recursive(
    object_texts(TOP_NAMES, nested_texts, size_min=1)
    | operator_texts({"$fields": object_texts(NAMES, nested_texts, size_min=1)}),
    not_or_any_texts,
    max_leaves=3,
).filter(is_far_below_limits)
filter_texts = st.just("{}") | body_texts

# The reference evaluator


def equal(one: Any, other: Any) -> bool:
    """Whether two values are of the same JSON type and equal. Numbers are compared as fractions."""
    if is_number(one) and is_number(other):
        return Fraction(one) == Fraction(other)
    return type(one) is type(other) and one == other


def is_number(value: Any) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool)


def glob_matches(pattern: str, text: str) -> bool:
    """Whether a pattern of `*` and `?`, with escapes, matches the text. Tries every possibility."""
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "*":
        return any(glob_matches(rest, text[length:]) for length in range(len(text) + 1))
    if head == "\\":
        head, rest = rest[0], rest[1:]
    elif head == "?":
        return bool(text) and glob_matches(rest, text[1:])
    return text[:1] == head and glob_matches(rest, text[1:])


def any_value(holds: Callable[[Any], bool]) -> Callable[[list[Any]], bool]:
    return lambda values: any(holds(value) for value in values)


def any_string(holds: Callable[[str], bool]) -> Callable[[list[Any]], bool]:
    return any_value(lambda value: isinstance(value, str) and holds(value))


def any_number(holds: Callable[[Any], bool]) -> Callable[[list[Any]], bool]:
    return any_value(lambda value: is_number(value) and holds(value))


VALUE_RULES: dict[str, Callable[[Any], Callable[[list[Any]], bool]]] = {
    "in": lambda operand: any_value(lambda value: any(equal(one, value) for one in operand)),
    "not_in": lambda operand: lambda values: not any(equal(one, value) for one in operand for value in values),
    "$prefix": lambda operand: any_string(lambda value: glob_matches(f"{escaped(operand)}*", value)),
    "$suffix": lambda operand: any_string(lambda value: glob_matches(f"*{escaped(operand)}", value)),
    "$glob": lambda operand: any_string(lambda value: glob_matches(operand, value)),
    "$gt": lambda operand: any_number(lambda value: value > operand),
    "$gte": lambda operand: any_number(lambda value: value >= operand),
    "$lt": lambda operand: any_number(lambda value: value < operand),
    "$lte": lambda operand: any_number(lambda value: value <= operand),
}


def escaped(text: str) -> str:
    return "".join(f"\\{character}" for character in text)


def field_matches(source: Any, present: bool, value: Any) -> bool:
    """Whether a field matches. `source` is the part of the filter for this field."""
    if isinstance(source, list):
        source = {"in": source}
    if not any(name.startswith("$") or name in OPERATORS_WITHOUT_DOLLAR for name in source):
        return fields_match(source, value)
    return all(operator_holds(name, operand, present, value) for name, operand in source.items())


def operator_holds(name: str, operand: Any, present: bool, value: Any) -> bool:
    if name == "exists":
        return present is operand
    if name == "$not":
        return not field_matches(operand, present, value)
    if name == "$any":
        return any(field_matches(each, present, value) for each in operand)
    if name == "$fields":
        return fields_match(operand, value)
    values = value if isinstance(value, list) else [value] if present else []
    return VALUE_RULES[name](operand)([each for each in values if not isinstance(each, dict | list)])


def fields_match(source: dict[str, Any], value: Any) -> bool:
    objects = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
    return any(
        all(field_matches(field_source, name in each, each.get(name)) for name, field_source in source.items())
        for each in objects
    )


def body_matches(source: dict[str, Any], value: Any) -> bool:
    """Whether a body matches. `source` is a filter, or a filter inside `$not` or `$any` at its top level."""
    if not source:
        return True
    if "$not" in source:
        return not body_matches(source["$not"], value)
    if "$any" in source:
        return any(body_matches(each, value) for each in source["$any"])
    return fields_match(source.get("$fields", source), value)


def value_with_fractions(text: str) -> Any:
    return json.loads(text, parse_float=Fraction)
