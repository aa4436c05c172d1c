"""Tests a draft on a stored delivery, and on previous deliveries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain import ids, payload
from hookmill.domain.automation import Trigger
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.errors import Invalid, NotFound
from hookmill.domain.ids import WebhookUid
from hookmill.domain.payload import Json
from hookmill.domain.permission import MayView
from hookmill.domain.run_policy import RunPolicy
from hookmill.management import Backtest, FilterTest, Management, evaluate_filter
from hookmill.presentation.filter import policy_outcome
from hookmill.web.dashboard.filter_editor.field_tree import name_shown, value_shown
from hookmill.web.dashboard.filter_editor.typed import ParsedTriggers

DELIVERIES_OFFERED: Final = 20
BACKTESTED: Final = 50
SUMMARY_BYTES_MAX: Final = 16_384
"""Larger payloads are listed without a summary, so that the list stays fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The stored delivery on which a draft is tested."""

    delivery: Delivery
    raw: bytes
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOutcome:
    """The results of one trigger on the sample and on previous deliveries. None if there are no deliveries."""

    test: FilterTest | None
    backtest: Backtest | None

    @property
    def tested(self) -> int:
        return len(self.backtest.matching) + len(self.backtest.others) if self.backtest is not None else 0

    @property
    def policy_outcome(self) -> str | None:
        """What the run policy would do with the matching deliveries."""
        return policy_outcome(self.backtest) if self.backtest is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    triggers: tuple[TriggerOutcome, ...]

    @property
    def would_trigger(self) -> bool | None:
        tests = [trigger.test for trigger in self.triggers if trigger.test is not None]
        return any(test.would_trigger for test in tests) if tests else None

    @property
    def webhook_check(self) -> bool:
        return any(trigger.test is not None and trigger.test.webhook_check for trigger in self.triggers)

    @property
    def asks_for_event(self) -> bool:
        return any(trigger.test is not None and trigger.test.event_types for trigger in self.triggers)

    @property
    def event_check(self) -> bool:
        return any(trigger.test is not None and trigger.test.event_check for trigger in self.triggers)

    @property
    def payload_check(self) -> bool:
        return any(trigger.test is not None and trigger.test.payload_check for trigger in self.triggers)


def outcome(
    management: Management,
    may: MayView,
    parsed: ParsedTriggers,
    sample: Sample | None,
    webhooks: Mapping[WebhookUid, Any],
    policy: RunPolicy,
) -> Outcome | None:
    """The results of the draft, from the evaluator that triggers use. None if the draft is invalid."""
    if not parsed.is_usable:
        return None
    outcomes = []
    for trigger in parsed.triggers:
        test = None
        if sample is not None:
            chosen = sample.delivery.webhook_uid in trigger.webhook_ids
            test = evaluate_filter(trigger, sample.raw, event=sample.delivery.event, webhook_check=chosen)
        uids = [uid for uid in trigger.webhook_ids if uid in webhooks]
        backtest = _backtest(management, may, trigger, uids, policy) if uids else None
        outcomes.append(TriggerOutcome(test=test, backtest=backtest))
    return Outcome(triggers=tuple(outcomes))


def would_trigger(triggers: Sequence[Trigger], sample: Sample) -> bool:
    """Whether one of these triggers matches the sample."""
    uid = sample.delivery.webhook_uid
    event = sample.delivery.event
    tests = (
        evaluate_filter(trigger, sample.raw, event=event, webhook_check=uid in trigger.webhook_ids)
        for trigger in triggers
    )
    return any(test.would_trigger for test in tests)


def _backtest(
    management: Management, may: MayView, trigger: Trigger, uids: Sequence[str], policy: RunPolicy
) -> Backtest:
    if trigger.matches_every_delivery and not policy.can_hold_runs:
        # Every delivery matches, so their bodies are not read.
        return Backtest(matching=tuple(_newest(management, may, uids, BACKTESTED)), others=())
    return management.filters.backtest(
        may,
        payload_filter=trigger.payload.source if trigger.payload is not None else None,
        event_types=trigger.event_types or None,
        webhook_ids=uids,
        last=BACKTESTED,
        policy=policy,
    )


def _newest(management: Management, may: MayView, uids: Sequence[str], limit: int) -> list[Delivery]:
    """The newest deliveries with a payload, of these webhooks, or of all webhooks if `uids` is empty."""
    by_key: dict[bytes, Delivery] = {}
    for uid in uids or (None,):
        newest = management.log.newest(may, webhook=uid, label=Label.ACCEPTED, limit=limit)
        by_key.update((delivery.key, delivery) for delivery in newest)
    return [by_key[key] for key in sorted(by_key, reverse=True)[:limit]]


def sample(management: Management, may: MayView, shown_id: str) -> Sample | None:
    """The delivery with this id; None if it has no stored payload."""
    try:
        delivery = management.log.get(may, shown_id)
        raw = management.log.payload(may, shown_id)
    except (NotFound, Invalid):
        return None
    parsed = payload.parse(raw)
    return None if isinstance(parsed, payload.NotJson) else Sample(delivery=delivery, raw=raw, body=parsed.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleChoice:
    """A stored delivery in the list, with a summary of its payload."""

    id: str
    delivery: Delivery
    about: str


def sample_choices(
    management: Management, may: MayView, webhook_ids: Sequence[str], also: str = ""
) -> list[SampleChoice]:
    """The newest deliveries with a payload, of these webhooks or of all, and the selected delivery `also`."""
    newest = _newest(management, may, webhook_ids, DELIVERIES_OFFERED)
    choices = [
        SampleChoice(id=ids.delivery_id(delivery.key), delivery=delivery, about=_about(management, may, delivery))
        for delivery in newest
    ]
    if also and also not in {choice.id for choice in choices}:
        picked = sample(management, may, also)
        if picked is not None:
            choices.append(
                SampleChoice(id=also, delivery=picked.delivery, about=_about(management, may, picked.delivery))
            )
    return choices


_SUMMARY_FIELDS: Final = ("type", "event", "event_type", "eventType", "action", "kind", "state", "status", "name", "id")


def _about(management: Management, may: MayView, delivery: Delivery) -> str:
    """A summary of the payload: one or two of its fields, cut short."""
    if delivery.size > SUMMARY_BYTES_MAX:
        return ""
    stored = sample(management, may, ids.delivery_id(delivery.key))
    if stored is None:
        return ""
    body = stored.body
    if type(body) is not dict:
        return "" if type(body) is list else value_shown(body)[:60]
    present = [name for name in _SUMMARY_FIELDS if type(body.get(name)) not in (dict, list, type(None))]
    names = present[:2] or [name for name, of in body.items() if type(of) not in (dict, list)][:1]
    return ", ".join(f"{name_shown(name)[:30]}: {value_shown(body[name])[:40]}" for name in names)
