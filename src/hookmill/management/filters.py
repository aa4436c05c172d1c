"""Would it trigger, and why? Asked of stored deliveries, and answered by the evaluator that triggers use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hookmill.domain import payload
from hookmill.domain.automation import Automation, Subscription, Trigger
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.errors import Invalid, InvalidFilter
from hookmill.domain.filters import CompiledFilter, Explanation, compile_filter
from hookmill.domain.ids import WebhookUid
from hookmill.domain.limits import BACKTEST_MAX
from hookmill.domain.payload import Parsed
from hookmill.domain.permission import MayView
from hookmill.domain.run import Run
from hookmill.management.finding import delivery_of, payload_of, webhook_named
from hookmill.management.installation import Installation
from hookmill.store import automations, deliveries, runs


@dataclass(frozen=True, slots=True)
class FilterTest:
    """Would this delivery trigger? With the outcome of both checks, and why."""

    would_trigger: bool
    webhook_check: bool
    payload_check: bool
    explanation: Explanation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Stored deliveries that a draft would have triggered on, and those it would not have; newest first."""

    matching: tuple[Delivery, ...]
    others: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationVerdict:
    """What one automation, as it is now, makes of a delivery; and the runs of it that the delivery has."""

    automation: Automation
    would_trigger: bool
    triggers: tuple[FilterTest, ...]
    runs: tuple[Run, ...]


class Filters:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def test(
        self, may: MayView, shown_id: str, *, given: Any = None, webhook_ids: Sequence[str] | None = None
    ) -> FilterTest:
        """Would this filter, with this selection of webhooks, trigger on a stored delivery? `None` selects every
        webhook."""
        chosen = compiled_filter(given) if given is not None else None
        with self._at.reading() as tx:
            delivery = delivery_of(tx, may, shown_id)
            body = payload_of(tx, delivery)
        return judge_filter(chosen, body, webhook_check=webhook_ids is None or delivery.webhook_uid in webhook_ids)

    def backtest(
        self, may: MayView, *, given: Any = None, webhook_ids: Sequence[str] | None = None, last: int = 50
    ) -> Backtest:
        """Which of the last stored deliveries of these webhooks would a draft have triggered on?

        Raises `InvalidFilter`, and `NotFound` for a webhook that the factory has not.
        """
        if not 1 <= last <= BACKTEST_MAX:
            raise Invalid(f"A backtest looks at 1 to {BACKTEST_MAX} deliveries; got {last}.", pointer="/last")
        chosen = compiled_filter(given) if given is not None else None
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
            matches = body is not None and (chosen is None or chosen.matches(_parsed(body)))
            (matching if matches else others).append(delivery)
        return Backtest(matching=tuple(matching), others=tuple(others))

    def explain(self, may: MayView, shown_id: str) -> Sequence[AutomationVerdict]:
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
                _judged(trigger.payload, parsed, webhook_check=delivery.webhook_uid in trigger.webhook_ids)
                for trigger in automation.triggers
            )
            verdicts.append(
                AutomationVerdict(
                    automation=automation,
                    would_trigger=automation.enabled and any(test.would_trigger for test in tests),
                    triggers=tests,
                    runs=tuple(run for run in started if run.automation_id == automation.id),
                )
            )
        return verdicts


def judge_filter(chosen: CompiledFilter | None, body: bytes, *, webhook_check: bool = True) -> FilterTest:
    """The verdict that a trigger would reach on this body, by the evaluator that triggers use. Raises `Invalid` for
    no JSON."""
    return _judged(chosen, _parsed(body), webhook_check=webhook_check)


def _judged(chosen: CompiledFilter | None, parsed: Parsed, *, webhook_check: bool) -> FilterTest:
    explanation = chosen.explain(parsed) if chosen is not None else None
    payload_check = explanation is None or explanation.matched
    return FilterTest(webhook_check and payload_check, webhook_check, payload_check, explanation)


def _parsed(body: bytes) -> Parsed:
    parsed = payload.parse(body)
    if isinstance(parsed, payload.NotJson):
        raise Invalid(f"The body is not JSON: {parsed.reason}.")
    return parsed


def would_trigger(automation: Automation, webhook: WebhookUid, parsed: Parsed) -> bool:
    """Whether a delivery with this body starts the automation, as admission decides it."""
    selecting: list[Trigger] = [trigger for trigger in automation.triggers if webhook in trigger.webhook_ids]
    heard = Subscription(
        automation_id=automation.id,
        version=automation.version,
        filters=tuple(trigger.payload for trigger in selecting),
    )
    return heard.matches(parsed)


def compiled_filter(given: Any) -> CompiledFilter:
    """The filter, ready to be evaluated. Raises `InvalidFilter` with every problem."""
    compiled = compile_filter(given)
    if isinstance(compiled, CompiledFilter):
        return compiled
    raise InvalidFilter(compiled)
