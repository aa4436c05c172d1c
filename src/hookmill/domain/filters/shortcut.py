"""Strings that a body must hold for a filter to match: most deliveries fail on a word that isn't even in them, and
seeing that takes no decoding.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias, assert_never

from hookmill.domain.filters.rules import AllOf, Condition, ObjectRule, Rule
from hookmill.domain.payload import plain_spelling

REQUIRED_MAX: Final = 4
"""Groups that are looked for in a body, and strings in a group."""

Group: TypeAlias = tuple[bytes, ...]
"""Strings as bodies spell them, of which one must be in a body that matches."""


def required(rule: Rule) -> Iterator[Group]:
    """Groups of strings: of each group, one must be in a body for the rule to hold for anything in it."""
    match rule:
        case Condition():
            group = rule.operator.required(rule.operand)
            if 0 < len(group) <= REQUIRED_MAX:
                yield group
        case AllOf():
            for each in rule.rules:
                yield from required(each)
        case ObjectRule():
            for each in rule.fields.values():
                yield from required(each)
        case _:
            assert_never(rule)


def required_of_any(rules: Iterable[Rule]) -> Group:
    """The same where one of several rules must hold: nothing, unless each of them requires something."""
    smallest = [min(required(rule), key=len, default=()) for rule in rules]
    return tuple(spelling for group in smallest for spelling in group) if all(smallest) else ()


def spelled_whole(texts: Iterable[str]) -> Group:
    """One of these strings, as a whole."""
    spellings = [plain_spelling(text) for text in texts]
    return () if None in spellings else tuple(spelling for spelling in spellings if spelling is not None)


def spelled_from_start(text: str) -> Group:
    """A string that starts so."""
    return tuple(spelling[:-1] for spelling in spelled_whole([text]))


def spelled_to_end(text: str) -> Group:
    """A string that ends so."""
    return tuple(spelling[1:] for spelling in spelled_whole([text]))


def spelled_inside(text: str) -> Group:
    """A string that has this in it, if there is anything in it."""
    return tuple(spelling[1:-1] for spelling in spelled_whole([text])) if text else ()
