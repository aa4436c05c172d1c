"""Print why a filter would trigger or not, for a filter test and for a delivery of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from hookmill.cli.output import Column, print_line, print_table
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.client.types import ConditionJson, FilterTestJson


def result_text(would_trigger: bool) -> str:
    return "Would trigger" if would_trigger else "Would not trigger"


def webhook_check_line(*, passed: bool) -> str:
    """Whether the trigger selects the delivery's webhook, as a line."""
    return f"Webhook check: {_check_result(passed=passed)}"


def print_checks(test: FilterTestJson, *, shows_webhook_check: bool = True) -> None:
    """Print each check, and each condition with the value that the delivery has."""
    if shows_webhook_check:
        print_line(f"  {webhook_check_line(passed=test['webhook_check'])}")
    else:
        print_line("  Webhook check: none, because a body has no webhook")
    if test["event_types"]:
        print_line(f"  Event check: {_check_result(passed=test['event_check'])}; {_event_comparison(test)}")
    if not test["conditions"]:
        print_line("  Payload check: passed; without conditions, every payload passes")
        return
    print_line(f"  Payload check: {_check_result(passed=test['payload_check'])}")
    print_table(
        [Column("  HELD", no_wrap=True), Column("FIELD"), Column("CONDITION"), Column("FOUND")],
        list(_rows(test["conditions"])),
    )


def _event_comparison(test: FilterTestJson) -> str:
    expected = ", ".join(map(shown, test["event_types"]))
    if test["event"] is None:
        return f"the delivery has no event type, expected {expected}"
    return f"the event type is {shown(test['event'])}, expected {expected}"


def _check_result(*, passed: bool) -> str:
    return "passed" if passed else "failed"


def _rows(conditions: Iterable[ConditionJson], parent: str = "") -> Iterator[tuple[str, str, str, str]]:
    """A row for each condition. After `$any` and `$not`, a row for each condition inside them, with its place.

    `parent` is the place of the condition that contains these conditions.
    """
    for condition in conditions:
        operator, pointer = condition["operator"], condition["pointer"] or "/"
        prefix = parent if condition["alternative"] is None else f"{parent} {condition['alternative']}"
        place = f"{prefix}: {pointer}" if prefix else pointer
        expected = f"{operator} {condition['expected']}"
        yield "  yes" if condition["held"] else "  no", place, expected, _actual_value(condition)
        yield from _rows(condition["within"], f"{prefix} > {operator}" if prefix else operator)


def _actual_value(condition: ConditionJson) -> str:
    if condition["no_object_at"] is None:
        return condition["found"]
    return f"no object at {condition['no_object_at'] or '/'}"
