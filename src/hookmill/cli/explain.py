"""Print why a filter would trigger or not, for a filter test and for a delivery of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hookmill.cli.output import Column, print_line, print_table
from hookmill.domain.text import shown
from hookmill.presentation.filter import FilterTestView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.domain.filters import ConditionOutcome
    from hookmill.management import FilterTest


def result_text(would_trigger: bool) -> str:
    return "Would trigger" if would_trigger else "Would not trigger"


def webhook_check_line(*, passed: bool) -> str:
    """Whether the trigger selects the delivery's webhook, as a line."""
    return f"Webhook check: {_check_result(passed=passed)}"


def print_checks(test: FilterTest, *, shows_webhook_check: bool = True) -> None:
    """Print each check, and each condition with the value that the delivery has."""
    if shows_webhook_check:
        print_line(f"  {webhook_check_line(passed=test.webhook_check)}")
    else:
        print_line("  Webhook check: none, because a body has no webhook")
    if test.event_types:
        print_line(f"  Event check: {_check_result(passed=test.event_check)}; {_event_comparison(test)}")
    if test.explanation is None:
        print_line("  Payload check: passed; without a filter, every payload passes")
        return
    print_line(f"  Payload check: {_check_result(passed=test.payload_check)}")
    if not test.explanation.conditions:
        return
    print_table(
        [Column("  HELD", no_wrap=True), Column("FIELD"), Column("CONDITION"), Column("FOUND")],
        list(_rows(test.explanation.conditions)),
    )


def checks_as_json(test: FilterTest, *, shows_webhook_check: bool = True) -> dict[str, Any]:
    """The checks that `print_checks` prints, as JSON. `webhook_check` is null for a body without a webhook."""
    checks: dict[str, Any] = plain(FilterTestView.of(test))
    return checks if shows_webhook_check else checks | {"webhook_check": None}


def _event_comparison(test: FilterTest) -> str:
    expected = ", ".join(map(shown, test.event_types))
    if test.event is None:
        return f"the delivery has no event type, expected {expected}"
    return f"the event type is {shown(test.event)}, expected {expected}"


def _check_result(*, passed: bool) -> str:
    return "passed" if passed else "failed"


def _rows(conditions: Iterable[ConditionOutcome], parent: str = "") -> Iterator[tuple[str, str, str, str]]:
    """A row for each condition. After `$any` and `$not`, a row for each condition inside them, with its place.

    `parent` is the place of the condition that contains these conditions.
    """
    for condition in conditions:
        prefix = parent if condition.alternative_number is None else f"{parent} {condition.alternative_number}"
        place = f"{prefix}: {condition.pointer or '/'}" if prefix else condition.pointer or "/"
        yield "  yes" if condition.held else "  no", place, _condition_text(condition), _actual_value(condition)
        yield from _rows(condition.inner_outcomes, f"{prefix} > {condition.operator}" if prefix else condition.operator)


def _condition_text(condition: ConditionOutcome) -> str:
    return f"{condition.operator} {condition.expected}"


def _actual_value(condition: ConditionOutcome) -> str:
    if condition.no_object_at is None:
        return condition.actual
    return f"no object at {condition.no_object_at or '/'}"
