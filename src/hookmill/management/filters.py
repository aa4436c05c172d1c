"""Would it trigger, and why? Asked of stored deliveries, and answered by the evaluator that triggers use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hookmill.domain import payload
from hookmill.domain.automation import Automation, DeliveryFilter, Subscription, read_event_types
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.errors import Fault, Invalid, InvalidFilter
from hookmill.domain.filters import Explanation, compile_filter
from hookmill.domain.limits import BACKTEST_MAX
from hookmill.domain.payload import Parsed
from hookmill.domain.permission import MayView
from hookmill.domain.run import Run
from hookmill.management.installation import Installation
from hookmill.management.lookup import delivery_of, payload_of, webhook_named
from hookmill.store import automations, deliveries, runs


@dataclass(frozen=True, slots=True)
class FilterTest:
    """Would this delivery trigger? With the outcome of each check, and why."""

    would_trigger: bool
    webhook_check: bool
    event_check: bool
    event_types: tuple[str, ...]
    """Those that are asked for; none where the event type does not matter."""
    event: str | None
    """That of the delivery."""
    payload_check: bool
    explanation: Explanation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Stored deliveries that a draft would have triggered on, and those it would not have; newest first."""

    matching: tuple[Delivery, ...]
    others: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationMatch:
    """What one automation, as it is now, makes of a delivery; and the runs of it that the delivery has."""

    automation: Automation
    would_trigger: bool
    triggers: tuple[FilterTest, ...]
    runs: tuple[Run, ...]


class Filters:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def test(
        self,
        may: MayView,
        shown_id: str,
        *,
        given: Any = None,
        event_types: Any = None,
        webhook_ids: Sequence[str] | None = None,
    ) -> FilterTest:
        """Would this filter, with these event types and this selection of webhooks, trigger on a stored delivery?
        `None` takes every payload, event type and webhook."""
        chosen = drafted_filter(given, event_types)
        with self._at.reading() as tx:
            delivery = delivery_of(tx, may, shown_id)
            body = payload_of(tx, delivery)
        is_selected = webhook_ids is None or delivery.webhook_uid in webhook_ids
        return judge_filter(chosen, body, event=delivery.event, webhook_check=is_selected)

    def backtest(
        self,
        may: MayView,
        *,
        given: Any = None,
        event_types: Any = None,
        webhook_ids: Sequence[str] | None = None,
        last: int = 50,
    ) -> Backtest:
        """Which of the last stored deliveries of these webhooks would a draft have triggered on?

        Raises `InvalidFilter`, and `NotFound` for a webhook that the factory has not.
        """
        if not 1 <= last <= BACKTEST_MAX:
            raise Invalid(f"A backtest looks at 1 to {BACKTEST_MAX} deliveries; got {last}.", pointer="/last")
        chosen = drafted_filter(given, event_types)
        matching: list[Delivery] = []
        others: list[Delivery] = []
        with self._at.reading() as tx:
            uids = [webhook_named(tx, may, named).uid for named in webhook_ids] if webhook_ids is not None else None
            stored = deliveries.newest(tx, may.factory.id, webhooks=uids, label=Label.ACCEPTED, limit=last)
        for delivery in stored:
            # One body at a time, each in a reading of its own: all of them together would fill the memory, and keep a
            # connection from those who wait for one.
            with self._at.reading() as tx:
                body = deliveries.payload(tx, delivery.key)
            matches = body is not None and chosen.matches(delivery.event, _parsed(body))
            (matching if matches else others).append(delivery)
        return Backtest(matching=tuple(matching), others=tuple(others))

    def explain(self, may: MayView, shown_id: str) -> Sequence[AutomationMatch]:
        """Which automations a stored delivery triggers, as they are now, and why; each with its runs."""
        with self._at.reading() as tx:
            delivery = delivery_of(tx, may, shown_id)
            body = payload_of(tx, delivery)
            every = automations.in_factory(tx, may.factory.id)
            started = runs.page_of_runs(tx, factory=may.factory.id, delivery=delivery.key, limit=1000)
        parsed = _parsed(body)
        verdicts = []
        for automation in every:
            tests = tuple(
                _judged(trigger, parsed, delivery.event, webhook_check=delivery.webhook_uid in trigger.webhook_ids)
                for trigger in automation.triggers
            )
            verdicts.append(
                AutomationMatch(
                    automation=automation,
                    would_trigger=automation.enabled and any(test.would_trigger for test in tests),
                    triggers=tests,
                    runs=tuple(run for run in started if run.automation_id == automation.id),
                )
            )
        return verdicts


def judge_filter(
    chosen: DeliveryFilter, body: bytes, *, event: str | None = None, webhook_check: bool = True
) -> FilterTest:
    """The result that a trigger would reach on this body and event type, by the evaluator that triggers use. Raises
    `Invalid` for no JSON."""
    return _judged(chosen, _parsed(body), event, webhook_check=webhook_check)


def _judged(chosen: DeliveryFilter, parsed: Parsed, event: str | None, *, webhook_check: bool) -> FilterTest:
    explanation = chosen.payload.explain(parsed) if chosen.payload is not None else None
    return FilterTest(
        would_trigger=webhook_check and chosen.matches(event, parsed),
        webhook_check=webhook_check,
        event_check=chosen.takes_event(event),
        event_types=chosen.event_types,
        event=event,
        payload_check=explanation is None or explanation.matched,
        explanation=explanation,
    )


def _parsed(body: bytes) -> Parsed:
    parsed = payload.parse(body)
    if isinstance(parsed, payload.NotJson):
        raise Invalid(f"The body is not JSON: {parsed.reason}.")
    return parsed


def would_trigger(automation: Automation, delivery: Delivery, parsed: Parsed) -> bool:
    """Whether the delivery, with this body, starts the automation, as admission decides it."""
    heard = Subscription(
        automation_id=automation.id,
        version=automation.version,
        filters=tuple(trigger for trigger in automation.triggers if delivery.webhook_uid in trigger.webhook_ids),
    )
    return heard.matches(delivery.event, parsed)


def drafted_filter(payload_filter: Any = None, event_types: Any = None) -> DeliveryFilter:
    """A draft, ready to be evaluated. Raises `InvalidFilter` with every problem."""
    faults: list[Fault] = []
    types = read_event_types(event_types) if event_types is not None else ()
    if isinstance(types, list):
        faults += [Fault(f"/event{fault.pointer}", fault.message) for fault in types]
        types = ()
    compiled = compile_filter(payload_filter) if payload_filter is not None else None
    if isinstance(compiled, list):
        faults += compiled
        compiled = None
    if faults:
        raise InvalidFilter(faults)
    return DeliveryFilter(event_types=types, payload=compiled)
