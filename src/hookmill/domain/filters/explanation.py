"""Why a payload passes a filter, or does not: each condition with the value that it was about."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, assert_never

from hookmill.domain.filters.rendering import pointer_step, shown
from hookmill.domain.filters.rules import AllOf, Condition, ObjectRule, Rule
from hookmill.domain.filters.values import KINDS, MISSING
from hookmill.domain.payload import Json

CLOSEST_OF: Final = 1_000
"""Objects of an array that an explanation compares when none of them matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionOutcome:
    """One condition against one payload. `expected` and `found` are JSON for people, cut when long."""

    pointer: str
    """The place in the payload that was evaluated, as a JSON pointer. What can't be printed is escaped."""
    operator: str
    expected: str
    found: str
    """The value there, or the word `missing`, which is no JSON. What nests further is `{…}` or `[…]`."""
    held: bool
    no_object_at: str | None = None
    """Where an object is wanted and none is, if that is why the condition failed. Empty for the body."""
    alternative: int | None = None
    """Which alternative of the `$any` that it stands in it belongs to, counted from 1."""
    within: "tuple[ConditionOutcome, ...]" = ()
    """What stands inside this condition (`$any`, `$not`), which decides whether this one holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Matched means that every condition held. Of an array, the matching object is shown, or the closest."""

    matched: bool
    conditions: tuple[ConditionOutcome, ...]


def outcomes(rule: Rule, value: Json, at: str, alternative: int | None = None) -> Iterator[ConditionOutcome]:
    """An outcome for each condition of the rule. `at` is where the value stands in the payload."""
    match rule:
        case Condition():
            place, decisive = _deciding_element(rule, value, at)
            yield ConditionOutcome(
                pointer=place,
                operator=rule.operator.name,
                expected=shown(rule.source),
                found=shown(decisive),
                held=rule.holds(value),
                alternative=alternative,
                within=tuple(_within(rule, value, at)),
            )
        case AllOf():
            for each in rule.rules:
                yield from outcomes(each, value, at, alternative)
        case ObjectRule():
            index, found = _shown_object(rule, value)
            if found is None:
                yield from _without_object(rule, at, at, alternative)
                return
            place = at if index is None else f"{at}/{index}"
            for name, inner in rule.fields.items():
                yield from outcomes(inner, found.get(name, MISSING), f"{place}/{pointer_step(name)}", alternative)
        case _:
            assert_never(rule)


def _within(condition: Condition, value: Json, at: str) -> Iterator[ConditionOutcome]:
    parts = condition.operator.parts(condition.operand)
    for number, part in enumerate(parts, 1):
        yield from outcomes(part, value, at, number if type(condition.source) is list else None)


def _without_object(rule: Rule, at: str, no_object_at: str, alternative: int | None) -> Iterator[ConditionOutcome]:
    match rule:
        case Condition():
            yield ConditionOutcome(
                pointer=at,
                operator=rule.operator.name,
                expected=shown(rule.source),
                found=shown(MISSING),
                held=False,
                no_object_at=no_object_at,
                alternative=alternative,
            )
        case AllOf():
            for each in rule.rules:
                yield from _without_object(each, at, no_object_at, alternative)
        case ObjectRule():
            for name, inner in rule.fields.items():
                yield from _without_object(inner, f"{at}/{pointer_step(name)}", no_object_at, alternative)
        case _:
            assert_never(rule)


def _shown_object(rule: ObjectRule, value: Json) -> tuple[int | None, dict[str, Json] | None]:
    """The object to explain, and its index in an array: the first that holds, or else the closest."""
    if type(value) is dict:
        return None, value
    if type(value) is not list:
        return None, None
    objects = ((index, element) for index, element in enumerate(value) if type(element) is dict)
    first = next(((index, element) for index, element in objects if rule.holds_for(element)), None)
    if first is not None:
        return first
    objects = ((index, element) for index, element in enumerate(value) if type(element) is dict)
    return max(islice(objects, CLOSEST_OF), key=lambda one: rule.held_count(one[1]), default=(None, None))


def _deciding_element(condition: Condition, value: Json, at: str) -> tuple[str, Json]:
    """The element that alone turns an array's outcome from an empty one's; without such, the array."""
    if type(value) is not list or condition.operator.parts(condition.operand):
        return at, value
    undecided = condition.holds([])
    if condition.holds(value) != undecided:
        for index, element in enumerate(value):
            if type(element) in KINDS and condition.holds(element) != undecided:
                return f"{at}/{index}", element
    return at, value
