"""Tests filters on stored deliveries, with the evaluator that triggers use, and explains the results."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hookmill.domain import payload
from hookmill.domain.automation import Automation, DeliveryFilter, Subscription
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.filters import Explanation
from hookmill.domain.ids import AutomationId, DeliveryKey, WebhookUid
from hookmill.domain.limits import BACKTEST_DELIVERIES_MAX
from hookmill.domain.payload import Parsed
from hookmill.domain.permission import MayView
from hookmill.domain.run import Run
from hookmill.domain.run_policy import NO_POLICY, RunPolicy, superseded_by_debounce
from hookmill.domain.spec import read
from hookmill.management.installation import Operations
from hookmill.management.lookup import delivery_of, payload_of, webhook_named
from hookmill.store import automations, deliveries
from hookmill.store.database import Transaction
from hookmill.store.runs import pages


@dataclass(frozen=True, slots=True)
class FilterTest:
    """Whether a trigger would match a delivery, with the result of each check."""

    would_trigger: bool
    """Whether all three checks pass."""
    webhook_check: bool
    event_check: bool
    event_types: tuple[str, ...]
    """The event types that the trigger requires; empty if it accepts any."""
    event: str | None
    """The event type of the delivery."""
    payload_check: bool
    explanation: Explanation | None
    """The conditions of the payload filter; None without a payload filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """The tested deliveries: the `matching` ones, and the `others`, which don't match. Newest first."""

    matching: tuple[Delivery, ...]
    others: tuple[Delivery, ...]
    key_count: int | None = None
    """How many different policy keys the matching deliveries have; None without a policy that needs keys."""
    superseded_keys: frozenset[DeliveryKey] = frozenset()
    """The keys of the matching deliveries whose runs the policy's debounce would supersede."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationMatch:
    """Whether the current version of an automation matches a delivery, and the automation's runs of this delivery."""

    automation: Automation
    would_trigger: bool
    """Whether the automation is enabled, and one of its triggers matches."""
    trigger_tests: tuple[FilterTest, ...]
    runs: tuple[Run, ...]


class Filters(Operations):
    def test(
        self,
        may: MayView,
        delivery_id: str,
        draft: DeliveryFilter,
        *,
        webhooks: Sequence[str] | None = None,
    ) -> FilterTest:
        """Test a draft, which is a filter that is not (yet) part of a trigger, on a stored delivery.

        `webhooks` are uids or names, which replace those of the draft. None accepts every webhook. Raises `NotFound`
        for an unknown webhook, and for a delivery that is unknown or has no payload.
        """
        with self._installation.reading() as tx:
            delivery = delivery_of(tx, may, delivery_id)
            body = payload_of(tx, delivery)
            uids = _uids(tx, may, webhooks)
        is_selected = uids is None or delivery.webhook_uid in uids
        return evaluate_filter(draft, body, event=delivery.event, webhook_check=is_selected)

    def backtest(
        self,
        may: MayView,
        draft: DeliveryFilter,
        *,
        webhooks: Sequence[str] | None = None,
        last: int = 50,
        policy: RunPolicy = NO_POLICY,
    ) -> Backtest:
        """Test a draft on the `last` newest Accepted deliveries of these webhooks. None matches all, as in `test`.

        With a policy, the result also has the number of the runs' policy keys, and the deliveries whose runs debounce
        would supersede.
        Raises `Invalid`, and `NotFound` for a webhook that the factory does not have.
        """
        if not 1 <= last <= BACKTEST_DELIVERIES_MAX:
            raise Invalid(f"A backtest tests 1 to {BACKTEST_DELIVERIES_MAX} deliveries, not {last}.", pointer="/last")
        matching: list[Delivery] = []
        others: list[Delivery] = []
        policy_keys: list[bytes | None] = []
        with self._installation.reading() as tx:
            uids = _uids(tx, may, webhooks)
            stored_deliveries = deliveries.newest(tx, may.factory.id, webhooks=uids, label=Label.ACCEPTED, limit=last)
        for delivery in stored_deliveries:
            # One body at a time, each in its own transaction: all bodies would fill the memory, and a long transaction
            # would occupy a connection that others wait for.
            with self._installation.reading() as tx:
                body = deliveries.payload(tx, delivery.key)
            parsed = _parsed(body) if body is not None else None
            if parsed is None or not draft.matches(delivery.event, parsed):
                others.append(delivery)
                continue
            matching.append(delivery)
            # The keys are compared with each other only, so any automation's id will do.
            policy_keys.append(policy.policy_key(AutomationId(""), parsed))
        superseded_positions: set[int] = set()
        oldest_first = matching[::-1]
        if policy.debounce is not None:
            arrivals = [
                (key, delivery.received_at) for key, delivery in zip(reversed(policy_keys), oldest_first, strict=True)
            ]
            superseded_positions = superseded_by_debounce(policy.debounce, arrivals)
        return Backtest(
            matching=tuple(matching),
            others=tuple(others),
            key_count=len(set(policy_keys)) if policy.can_hold_runs else None,
            superseded_keys=frozenset(oldest_first[position].key for position in superseded_positions),
        )

    def explain(self, may: MayView, delivery_id: str) -> Sequence[AutomationMatch]:
        """How the current version of each automation evaluates a stored delivery; each with its runs of this delivery.

        Raises `NotFound` for a delivery that is unknown or has no payload. Only the newest thousand runs are included.
        """
        with self._installation.reading() as tx:
            delivery = delivery_of(tx, may, delivery_id)
            body = payload_of(tx, delivery)
            factory_automations = automations.in_factory(tx, may.factory.id)
            delivery_runs = pages.page_of_runs(tx, factory=may.factory.id, delivery=delivery.key, limit=1000)
        parsed = _parsed(body)
        matches = []
        for automation in factory_automations:
            tests = tuple(
                _evaluate(each, parsed, delivery.event, webhook_check=delivery.webhook_uid in each.webhook_ids)
                for each in automation.filters
            )
            matches.append(
                AutomationMatch(
                    automation=automation,
                    would_trigger=automation.enabled and any(test.would_trigger for test in tests),
                    trigger_tests=tests,
                    runs=tuple(run for run in delivery_runs if run.automation_id == automation.id),
                )
            )
        return matches


def evaluate_filter(
    delivery_filter: DeliveryFilter, body: bytes, *, event: str | None = None, webhook_check: bool = True
) -> FilterTest:
    """The result that a trigger with this filter has on this body and event type. Raises `Invalid` if the body is not
    JSON."""
    return _evaluate(delivery_filter, _parsed(body), event, webhook_check=webhook_check)


def _uids(tx: Transaction, may: MayView, webhooks: Sequence[str] | None) -> Sequence[WebhookUid] | None:
    return [webhook_named(tx, may, uid_or_name).uid for uid_or_name in webhooks] if webhooks is not None else None


def _evaluate(delivery_filter: DeliveryFilter, parsed: Parsed, event: str | None, *, webhook_check: bool) -> FilterTest:
    explanation = delivery_filter.payload.explain(parsed) if delivery_filter.payload is not None else None
    return FilterTest(
        would_trigger=webhook_check and delivery_filter.matches(event, parsed),
        webhook_check=webhook_check,
        event_check=delivery_filter.matches_event_type(event),
        event_types=delivery_filter.event,
        event=event,
        payload_check=explanation is None or explanation.matched,
        explanation=explanation,
    )


def _parsed(body: bytes) -> Parsed:
    parsed = payload.parse(body)
    if isinstance(parsed, payload.NotJson):
        raise Invalid(f"The body is not JSON: {parsed.reason}.")
    return parsed


def any_trigger_matches(automation: Automation, delivery: Delivery, parsed: Parsed) -> bool:
    """Whether a trigger of the automation matches the delivery, as the ingress decides it. `parsed` is its body.

    The automation may be disabled.
    """
    subscription = Subscription(
        automation_id=automation.id,
        version=automation.version,
        filters=tuple(each for each in automation.filters if delivery.webhook_uid in each.webhook_ids),
    )
    return subscription.matches(delivery.event, parsed)


def draft_filter(payload_filter: Any = None, event_types: Any = None) -> DeliveryFilter:
    """A filter for any webhook, from JSON. Raises `Invalid` with every problem, at `/event/…` or `/filter/…`."""
    source = {"webhook_ids": ["wh_any"], "event": event_types}
    if payload_filter is not None:
        source["payload"] = payload_filter
    try:
        return read(DeliveryFilter, source)
    except Invalid as error:
        faults = [Fault(re.sub("^/payload", "/filter", fault.pointer), fault.message) for fault in error.faults]
        raise Invalid.at(faults) from None
