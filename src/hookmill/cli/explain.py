"""Why a filter would trigger, or would not: the same words for a filter test and for a delivery of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hookmill.cli.output import Column, line, table
from hookmill.domain.text import shown
from hookmill.presentation.filter import FilterTestView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.domain.filters import ConditionOutcome
    from hookmill.management import FilterTest


def verdict(would_trigger: bool) -> str:
    return "Would trigger" if would_trigger else "Would not trigger"


def webhook_check(*, held: bool) -> str:
    return f"Webhook check: {_outcome(held)}"


def print_checks(test: FilterTest, *, webhook_known: bool = True) -> None:
    """Each check, and each condition with the value that it found."""
    if webhook_known:
        line(f"  {webhook_check(held=test.webhook_check)}")
    else:
        line("  Webhook check: none, as a body alone comes from no webhook")
    if test.event_types:
        line(f"  Event check: {_outcome(test.event_check)}; {_event_asked_for(test)}")
    if test.explanation is None:
        line("  Payload check: passed; no filter, so every payload does")
        return
    line(f"  Payload check: {_outcome(test.payload_check)}")
    if not test.explanation.conditions:
        return
    table(
        [Column("  HELD", whole=True), Column("FIELD"), Column("CONDITION"), Column("FOUND")],
        list(_rows(test.explanation.conditions)),
    )


def checks_as_json(test: FilterTest, *, webhook_known: bool = True) -> dict[str, Any]:
    """The same as JSON. `webhook_check` is null where there is no webhook to check."""
    checks: dict[str, Any] = plain(FilterTestView.of(test))
    return checks if webhook_known else checks | {"webhook_check": None}


def _event_asked_for(test: FilterTest) -> str:
    wanted = ", ".join(map(shown, test.event_types))
    if test.event is None:
        return f"the delivery has no event type, and {wanted} is asked for"
    return f"{shown(test.event)} is the event type, and {wanted} is asked for"


def _outcome(held: bool) -> str:
    return "passed" if held else "failed"


def _rows(conditions: Iterable[ConditionOutcome], within: str = "") -> Iterator[tuple[str, str, str, str]]:
    """A line for each condition. What stands in `$any` or `$not` follows it, and says so."""
    for condition in conditions:
        inside = within if condition.alternative is None else f"{within} {condition.alternative}"
        place = f"{inside}: {condition.pointer or '/'}" if inside else condition.pointer or "/"
        yield "  yes" if condition.held else "  no", place, _condition(condition), _found(condition)
        yield from _rows(condition.within, f"{inside} > {condition.operator}" if inside else condition.operator)


def _condition(condition: ConditionOutcome) -> str:
    return f"{condition.operator} {condition.expected}"


def _found(condition: ConditionOutcome) -> str:
    if condition.no_object_at is None:
        return condition.found
    return f"no object at {condition.no_object_at or '/'}"
