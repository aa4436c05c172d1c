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


def result(would_trigger: bool) -> str:
    return "Would trigger" if would_trigger else "Would not trigger"


def webhook_check(*, held: bool) -> str:
    return f"Webhook check: {_outcome(held)}"


def print_checks(test: FilterTest, *, shows_webhook_check: bool = True) -> None:
    """Print each check, and each condition with the value that it met."""
    if shows_webhook_check:
        print_line(f"  {webhook_check(held=test.webhook_check)}")
    else:
        print_line("  Webhook check: none, because a body has no webhook")
    if test.event_types:
        print_line(f"  Event check: {_outcome(test.event_check)}; {_event_comparison(test)}")
    if test.explanation is None:
        print_line("  Payload check: passed; without a filter, every payload passes")
        return
    print_line(f"  Payload check: {_outcome(test.payload_check)}")
    if not test.explanation.conditions:
        return
    print_table(
        [Column("  HELD", whole=True), Column("FIELD"), Column("CONDITION"), Column("FOUND")],
        list(_rows(test.explanation.conditions)),
    )


def checks_as_json(test: FilterTest, *, shows_webhook_check: bool = True) -> dict[str, Any]:
    """The same as JSON. `webhook_check` is null without a webhook."""
    checks: dict[str, Any] = plain(FilterTestView.of(test))
    return checks if shows_webhook_check else checks | {"webhook_check": None}


def _event_comparison(test: FilterTest) -> str:
    expected = ", ".join(map(shown, test.event_types))
    if test.event is None:
        return f"the delivery has no event type, expected {expected}"
    return f"the event type is {shown(test.event)}, expected {expected}"


def _outcome(held: bool) -> str:
    return "passed" if held else "failed"


def _rows(conditions: Iterable[ConditionOutcome], within: str = "") -> Iterator[tuple[str, str, str, str]]:
    """A row for each condition. The conditions inside `$any` and `$not` follow it, with their place."""
    for condition in conditions:
        inside = within if condition.alternative is None else f"{within} {condition.alternative}"
        place = f"{inside}: {condition.pointer or '/'}" if inside else condition.pointer or "/"
        yield "  yes" if condition.held else "  no", place, _condition(condition), _actual_value(condition)
        yield from _rows(condition.within, f"{inside} > {condition.operator}" if inside else condition.operator)


def _condition(condition: ConditionOutcome) -> str:
    return f"{condition.operator} {condition.expected}"


def _actual_value(condition: ConditionOutcome) -> str:
    if condition.no_object_at is None:
        return condition.found
    return f"no object at {condition.no_object_at or '/'}"
