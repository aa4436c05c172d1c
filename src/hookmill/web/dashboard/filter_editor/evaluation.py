"""Evaluates a draft of triggers on a stored delivery, and on previous deliveries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain import ids, payload
from hookmill.domain.automation import DeliveryFilter
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.errors import Invalid, NotFound
from hookmill.domain.ids import WebhookUid
from hookmill.domain.payload import Json
from hookmill.domain.permission import MayView
from hookmill.domain.run_policy import RunPolicy
from hookmill.management import Backtest, FilterTest, Management, evaluate_filter
from hookmill.presentation.filter import policy_outcome
from hookmill.web.dashboard.filter_editor.field_tree import display_name, display_value
from hookmill.web.dashboard.filter_editor.parsing import ParsedTriggers

SAMPLE_CHOICES_MAX: Final = 20
BACKTEST_DELIVERIES: Final = 50
SUMMARY_BYTES_MAX: Final = 16_384
"""A larger payload has no summary, so that the list stays fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The stored delivery on which a draft is tested."""

    delivery: Delivery
    raw: bytes
    """The body, byte for byte."""
    body: Json
    """The parsed body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOutcome:
    """The results of one trigger: on the sample, and on previous deliveries.

    `test` is None without a sample. `backtest` is None if the factory has none of the trigger's webhooks.
    """

    test: FilterTest | None
    backtest: Backtest | None

    @property
    def tested_count(self) -> int:
        """How many previous deliveries the trigger was evaluated on."""
        return len(self.backtest.matching) + len(self.backtest.others) if self.backtest is not None else 0

    @property
    def policy_outcome(self) -> str | None:
        """A sentence about the effect of the run policy on the matching deliveries."""
        return policy_outcome(self.backtest) if self.backtest is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOutcome:
    """The results of all triggers of a draft. A check passes if it passes for any of the triggers."""

    triggers: tuple[TriggerOutcome, ...]

    @property
    def would_trigger(self) -> bool | None:
        """Whether the sample would start a run; None without a sample."""
        tests = [trigger.test for trigger in self.triggers if trigger.test is not None]
        return any(test.would_trigger for test in tests) if tests else None

    @property
    def webhook_check(self) -> bool:
        return any(trigger.test is not None and trigger.test.webhook_check for trigger in self.triggers)

    @property
    def requires_event(self) -> bool:
        """Whether any trigger requires an event type."""
        return any(trigger.test is not None and trigger.test.event_types for trigger in self.triggers)

    @property
    def event_check(self) -> bool:
        return any(trigger.test is not None and trigger.test.event_check for trigger in self.triggers)

    @property
    def payload_check(self) -> bool:
        return any(trigger.test is not None and trigger.test.payload_check for trigger in self.triggers)


def evaluate_draft(
    management: Management,
    may: MayView,
    parsed: ParsedTriggers,
    sample: Sample | None,
    webhooks: Mapping[WebhookUid, Any],
    policy: RunPolicy,
) -> DraftOutcome | None:
    """The results of the draft, from the same evaluator as for deliveries. None if the draft is invalid.

    `webhooks`: the webhooks of the factory, by uid.
    """
    if not parsed.is_usable:
        return None
    outcomes = []
    for conditions in parsed.filters:
        test = None
        if sample is not None:
            selects_webhook = sample.delivery.webhook_uid in conditions.webhook_ids
            test = evaluate_filter(conditions, sample.raw, event=sample.delivery.event, webhook_check=selects_webhook)
        uids = [uid for uid in conditions.webhook_ids if uid in webhooks]
        backtest = _backtest(management, may, conditions, uids, policy) if uids else None
        outcomes.append(TriggerOutcome(test=test, backtest=backtest))
    return DraftOutcome(triggers=tuple(outcomes))


def would_trigger(filters: Sequence[DeliveryFilter], sample: Sample) -> bool:
    """Whether one of these filters matches the sample."""
    uid = sample.delivery.webhook_uid
    event = sample.delivery.event
    tests = (evaluate_filter(each, sample.raw, event=event, webhook_check=uid in each.webhook_ids) for each in filters)
    return any(test.would_trigger for test in tests)


def _backtest(
    management: Management, may: MayView, conditions: DeliveryFilter, uids: Sequence[str], policy: RunPolicy
) -> Backtest:
    if conditions.matches_every_delivery and not policy.can_hold_runs:
        # Every delivery matches, and the policy needs no keys from the bodies, so the bodies are not read.
        return Backtest(matching=tuple(_newest(management, may, uids, BACKTEST_DELIVERIES)), others=())
    return management.filters.backtest(
        may,
        conditions,
        webhooks=uids,
        last=BACKTEST_DELIVERIES,
        policy=policy,
    )


def _newest(management: Management, may: MayView, uids: Sequence[str], limit: int) -> list[Delivery]:
    """The newest deliveries with a payload, of these webhooks, or of all webhooks if `uids` is empty."""
    deliveries_by_key: dict[bytes, Delivery] = {}
    for uid in uids or (None,):
        newest = management.log.newest(may, webhook=uid, label=Label.ACCEPTED, limit=limit)
        deliveries_by_key.update((delivery.key, delivery) for delivery in newest)
    return [deliveries_by_key[key] for key in sorted(deliveries_by_key, reverse=True)[:limit]]


def load_sample(management: Management, may: MayView, delivery_id: str) -> Sample | None:
    """The delivery with this id; None if there is none, or if it has no stored JSON payload."""
    try:
        delivery = management.log.get(may, delivery_id)
        raw = management.log.payload(may, delivery_id)
    except (NotFound, Invalid):
        return None
    parsed = payload.parse(raw)
    return None if isinstance(parsed, payload.NotJson) else Sample(delivery=delivery, raw=raw, body=parsed.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleChoice:
    """An option of the list of deliveries to test on."""

    id: str
    delivery: Delivery
    summary: str
    """One or two fields of the payload; empty for a large payload."""


def sample_choices(
    management: Management, may: MayView, webhook_ids: Sequence[str], selected_id: str = ""
) -> list[SampleChoice]:
    """The newest deliveries with a payload, of these webhooks or of all, and the delivery `selected_id`."""
    newest = _newest(management, may, webhook_ids, SAMPLE_CHOICES_MAX)
    choices = [
        SampleChoice(id=ids.delivery_id(delivery.key), delivery=delivery, summary=_summary(management, may, delivery))
        for delivery in newest
    ]
    if selected_id and selected_id not in {choice.id for choice in choices}:
        selected = load_sample(management, may, selected_id)
        if selected is not None:
            choices.append(
                SampleChoice(
                    id=selected_id,
                    delivery=selected.delivery,
                    summary=_summary(management, may, selected.delivery),
                )
            )
    return choices


_SUMMARY_FIELDS: Final = ("type", "event", "event_type", "eventType", "action", "kind", "state", "status", "name", "id")


def _summary(management: Management, may: MayView, delivery: Delivery) -> str:
    """One or two fields of the payload, cut short; empty if it is large, an array, or no longer stored."""
    if delivery.size > SUMMARY_BYTES_MAX:
        return ""
    sample = load_sample(management, may, ids.delivery_id(delivery.key))
    if sample is None:
        return ""
    body = sample.body
    if type(body) is not dict:
        return "" if type(body) is list else display_value(body)[:60]
    present = [name for name in _SUMMARY_FIELDS if type(body.get(name)) not in (dict, list, type(None))]
    names = present[:2] or [name for name, value in body.items() if type(value) not in (dict, list)][:1]
    return ", ".join(f"{display_name(name)[:30]}: {display_value(body[name])[:40]}" for name in names)
