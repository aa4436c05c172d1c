"""Explains why a payload matches a filter or not: each condition with the value that it evaluated."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, assert_never

from hookmill.domain.filters.rendering import display_text, pointer_step
from hookmill.domain.filters.rules import AllOf, Condition, ObjectRule, Rule
from hookmill.domain.filters.values import KINDS_BY_TYPE, MISSING
from hookmill.domain.payload import Json

CLOSEST_OBJECTS_MAX: Final = 1_000
"""If no object in an array matches, the closest of this many objects is explained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionOutcome:
    """The result of one condition for one payload. `expected` and `actual` are JSON for display, shortened."""

    pointer: str
    """A JSON pointer to the evaluated value. Unprintable characters are escaped."""
    operator: str
    expected: str
    actual: str
    """The value at `pointer`, or `missing`, which is not JSON. Objects and arrays in the value are `{…}` and `[…]`."""
    held: bool
    no_object_at: str | None = None
    """If the condition failed because a value is not an object: a pointer to that value. Empty for the body."""
    alternative_number: int | None = None
    """The number of the condition's alternative in the enclosing `$any`, from 1."""
    inner_outcomes: "tuple[ConditionOutcome, ...]" = ()
    """The outcomes of the conditions inside `$any` or `$not`. The result of this condition follows from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Whether the payload `matched`, and the outcomes of the filter's conditions.

    For an array, they are those of the first object that matches, or else of the closest one.
    """

    matched: bool
    conditions: tuple[ConditionOutcome, ...]


def outcomes(rule: Rule, value: Json, at: str, alternative_number: int | None = None) -> Iterator[ConditionOutcome]:
    """An outcome for each condition of the rule. `at` is the value's pointer in the payload."""
    match rule:
        case Condition():
            pointer, decisive_value = _decisive_value(rule, value, at)
            yield ConditionOutcome(
                pointer=pointer,
                operator=rule.operator.name,
                expected=display_text(rule.source),
                actual=display_text(decisive_value),
                held=rule.holds(value),
                alternative_number=alternative_number,
                inner_outcomes=tuple(_inner_outcomes(rule, value, at)),
            )
        case AllOf():
            for each in rule.rules:
                yield from outcomes(each, value, at, alternative_number)
        case ObjectRule():
            index, candidate = _object_to_explain(rule, value)
            if candidate is None:
                yield from _outcomes_without_object(rule, at, at, alternative_number)
                return
            pointer = at if index is None else f"{at}/{index}"
            for name, inner in rule.fields.items():
                yield from outcomes(
                    inner, candidate.get(name, MISSING), f"{pointer}/{pointer_step(name)}", alternative_number
                )
        case _:
            assert_never(rule)


def _inner_outcomes(condition: Condition, value: Json, at: str) -> Iterator[ConditionOutcome]:
    parts = condition.operator.parts(condition.operand)
    for number, part in enumerate(parts, 1):
        yield from outcomes(part, value, at, number if type(condition.source) is list else None)


def _outcomes_without_object(
    rule: Rule, at: str, no_object_at: str, alternative_number: int | None
) -> Iterator[ConditionOutcome]:
    match rule:
        case Condition():
            yield ConditionOutcome(
                pointer=at,
                operator=rule.operator.name,
                expected=display_text(rule.source),
                actual=display_text(MISSING),
                held=False,
                no_object_at=no_object_at,
                alternative_number=alternative_number,
            )
        case AllOf():
            for each in rule.rules:
                yield from _outcomes_without_object(each, at, no_object_at, alternative_number)
        case ObjectRule():
            for name, inner in rule.fields.items():
                yield from _outcomes_without_object(
                    inner, f"{at}/{pointer_step(name)}", no_object_at, alternative_number
                )
        case _:
            assert_never(rule)


def _object_to_explain(rule: ObjectRule, value: Json) -> tuple[int | None, dict[str, Json] | None]:
    """The object to explain, after its index if it is in an array.

    In an array, it is the first object that matches, or else the object of which the most fields match.
    """
    if type(value) is dict:
        return None, value
    if type(value) is not list:
        return None, None
    objects = ((index, element) for index, element in enumerate(value) if type(element) is dict)
    first_match = next(((index, element) for index, element in objects if rule.holds_for_object(element)), None)
    if first_match is not None:
        return first_match
    # The search has consumed the first iterator.
    objects = ((index, element) for index, element in enumerate(value) if type(element) is dict)
    return max(
        islice(objects, CLOSEST_OBJECTS_MAX),
        key=lambda index_and_object: rule.count_matching_fields(index_and_object[1]),
        default=(None, None),
    )


def _decisive_value(condition: Condition, value: Json, at: str) -> tuple[str, Json]:
    """The value from which the result follows, with its pointer.

    For an array whose result is not that for `[]`, it is the first element `e` for which `[e]` and `[]` give different
    results. If there is none, it is the whole array.
    """
    if type(value) is not list or condition.operator.parts(condition.operand):
        return at, value
    holds_for_empty = condition.holds([])
    if condition.holds(value) != holds_for_empty:
        for index, element in enumerate(value):
            if type(element) in KINDS_BY_TYPE and condition.holds([element]) != holds_for_empty:
                return f"{at}/{index}", element
    return at, value
