"""The strings that every body that matches a filter contains.

Most deliveries that don't match lack such a string. Searching for it needs no decoding of the body.
"""

from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from hookmill.domain.filters.rules import AllOf, Condition, Group, ObjectRule, Rule
from hookmill.domain.payload import plain_spelling

REQUIRED_MAX: Final = 4
"""The maximum number of groups to search for in a body, and of strings in a group."""


def required_groups_of(rule: Rule) -> Iterator[Group]:
    """The groups of strings for a rule. The rule can hold only if the body contains a string of each group."""
    match rule:
        case Condition():
            group = rule.operator.required_group(rule.operand)
            if 0 < len(group) <= REQUIRED_MAX:
                yield group
        case AllOf():
            for each in rule.rules:
                yield from required_groups_of(each)
        case ObjectRule():
            for each in rule.fields.values():
                yield from required_groups_of(each)
        case _:
            assert_never(rule)


def required_group_of_any(rules: Iterable[Rule]) -> Group:
    """The group for `$any`, of which one rule must hold: a group of each rule, merged. Empty if a rule has no group."""
    smallest_groups = [min(required_groups_of(rule), key=len, default=()) for rule in rules]
    return tuple(spelling for group in smallest_groups for spelling in group) if all(smallest_groups) else ()


def group_for_equal(texts: Iterable[str]) -> Group:
    """The group for a value that equals one of these strings."""
    spellings = [plain_spelling(text) for text in texts]
    return () if None in spellings else tuple(spelling for spelling in spellings if spelling is not None)


def group_for_prefix(text: str) -> Group:
    """The group for a value that starts with this text."""
    return tuple(spelling[:-1] for spelling in group_for_equal([text]))


def group_for_suffix(text: str) -> Group:
    """The group for a value that ends with this text."""
    return tuple(spelling[1:] for spelling in group_for_equal([text]))


def group_for_substring(text: str) -> Group:
    """The group for a value that contains this text. Empty for an empty text."""
    return tuple(spelling[1:-1] for spelling in group_for_equal([text])) if text else ()
