"""An automation: a prompt for a runner, and the deliveries and schedules that start it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from hookmill.domain.errors import Fault, Invalid, InvalidFilter
from hookmill.domain.event import EVENT_CHARACTERS_MAX, is_event_type
from hookmill.domain.filters import CompiledFilter, compile_filter
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.payload import Json, Parsed
from hookmill.domain.run_options import NO_OPTIONS, RunOptions
from hookmill.domain.run_policy import NO_POLICY, RunPolicy
from hookmill.domain.schedule import Schedule, schedule_from_json
from hookmill.domain.text import key_hint

TRIGGER_PROVIDER: Final = "webhook"
TRIGGER_EVENT: Final = "received"
"""The value of `event` in every trigger with the provider `webhook`. Not the event type of a delivery."""
SCHEDULE_PROVIDER: Final = "schedule"
SCHEDULE_EVENT: Final = "cron_fired"
PROMPT_CHARACTERS_MAX: Final = 100_000
TRIGGERS_MAX: Final = 20
_UID: Final = re.compile(r"wh_[0-9A-Za-z_-]{1,64}\Z")
WEBHOOKS_PER_TRIGGER_MAX: Final = 100
EVENT_TYPES_MAX: Final = 32
REASONS_MAX: Final = 3
"""The maximum number of problems that the reason of an unreadable trigger, or a log event, lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """The conditions of a trigger on the deliveries of its webhooks. Without conditions, every delivery matches."""

    event_types: tuple[str, ...] = ()
    """The delivery's event type must be one of these. If empty, any delivery matches, even without an event type."""
    payload: CompiledFilter | None = None

    @property
    def matches_every_delivery(self) -> bool:
        """Whether there are no conditions."""
        return not self.event_types and self.payload is None

    def matches_event_type(self, event: str | None) -> bool:
        """Whether the event type matches. `event` is None if the delivery has no event type."""
        return not self.event_types or event in self.event_types

    def matches(self, event: str | None, payload: Parsed) -> bool:
        """Whether the delivery matches. The ingress, filter tests and backtests all use this method."""
        return self.matches_event_type(event) and (self.payload is None or self.payload.matches(payload))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger(DeliveryFilter):
    """A trigger of the kind `provider: webhook`, `event: received`: its webhooks, and conditions on deliveries."""

    webhook_ids: tuple[WebhookUid, ...]

    def as_json(self) -> dict[str, Any]:
        filter_json: dict[str, Any] = {"webhook_ids": list(self.webhook_ids)}
        if self.event_types:
            filter_json["event"] = list(self.event_types)
        if self.payload is not None:
            filter_json["payload"] = self.payload.source
        return {"provider": TRIGGER_PROVIDER, "event": TRIGGER_EVENT, "filter": filter_json}

    def as_text(self) -> str:
        """The trigger as JSON text with exact numbers, which is the stored form."""
        event = f', "event": {json.dumps(list(self.event_types))}' if self.event_types else ""
        payload = f', "payload": {self.payload.source_json}' if self.payload is not None else ""
        filter_text = f'{{"webhook_ids": {json.dumps(list(self.webhook_ids))}{event}{payload}}}'
        return f'{{"provider": "{TRIGGER_PROVIDER}", "event": "{TRIGGER_EVENT}", "filter": {filter_text}}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTrigger(Schedule):
    """A trigger of the kind `provider: schedule`, `event: cron_fired`."""

    def as_json(self) -> dict[str, Any]:
        return {"provider": SCHEDULE_PROVIDER, "event": SCHEDULE_EVENT, "schedule": self.schedule_json()}

    def as_text(self) -> str:
        """The stored form."""
        return json.dumps(self.as_json())


@dataclass(frozen=True, slots=True, kw_only=True)
class Automation:
    """An automation, in its current version. `enabled`: whether deliveries and schedules start runs.

    Times are in µs since 1970.
    """

    id: AutomationId
    factory_id: FactoryId
    name: str
    enabled: bool
    version: int
    prompt: str
    runner: str
    triggers: tuple[Trigger, ...]
    """The triggers that select deliveries. The other kinds have fields of their own."""
    created_at: int
    updated_at: int
    schedules: tuple[ScheduleTrigger, ...] = ()
    unreadable_triggers: str | None = None
    """Why the stored triggers can't be read. Then there are none, and nothing starts runs."""
    policy: RunPolicy = NO_POLICY
    options: RunOptions = NO_OPTIONS
    pause_reason: str | None = None
    """Why the service disabled the automation; None if it is enabled, or if a person disabled it."""

    @property
    def all_triggers(self) -> tuple[Trigger | ScheduleTrigger, ...]:
        return (*self.triggers, *self.schedules)

    @property
    def unreadable_parts(self) -> dict[str, str]:
        """The stored parts that can't be read, each with the reason. Until they are replaced, no run starts."""
        parts = {
            "triggers": self.unreadable_triggers,
            "run policy": self.policy.unreadable,
            "run options": self.options.unreadable,
        }
        return {name: reason for name, reason in parts.items() if reason is not None}

    def selected_webhook_uids(self) -> frozenset[WebhookUid]:
        """The webhooks that any trigger selects."""
        return frozenset(chain.from_iterable(trigger.webhook_ids for trigger in self.triggers))

    def unfiltered_webhook_uids(self) -> frozenset[WebhookUid]:
        """The webhooks of which every delivery starts the automation, whatever its event type and payload."""
        return frozenset(
            uid for trigger in self.triggers if trigger.matches_every_delivery for uid in trigger.webhook_ids
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The triggers of one enabled automation that select one webhook."""

    automation_id: AutomationId
    version: int
    triggers: tuple[DeliveryFilter, ...] = field(repr=False)
    """The triggers. Only their conditions are needed here, because all of them select the webhook."""
    policy: RunPolicy = NO_POLICY

    def matches(self, event: str | None, payload: Parsed) -> bool:
        """Whether a delivery starts a run. The delivery starts only one run, even if several triggers match.

        If a defect makes the evaluation of a trigger raise, the others are still evaluated. If none of them matches,
        the exception is raised.
        """
        fault: Exception | None = None
        for trigger in self.triggers:
            try:
                if trigger.matches(event, payload):
                    return True
            except Exception as error:
                fault = error
        if fault is not None:
            raise fault
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggersByKind:
    """The triggers of an automation by kind."""

    delivery_triggers: tuple[Trigger, ...] = ()
    schedules: tuple[ScheduleTrigger, ...] = ()
    unreadable: str | None = None
    """Why the stored triggers can't be read. Then there are none."""


def triggers_from_json(source: Any) -> TriggersByKind:
    """The triggers in a user's JSON.

    Raises for the first invalid trigger: `Invalid` with a pointer, or `InvalidFilter` with every problem of its event
    types and payload filter.
    """
    if not isinstance(source, list) or not source:
        raise Invalid("An automation needs a list of one or more triggers.", pointer="/triggers")
    if len(source) > TRIGGERS_MAX:
        raise Invalid(f"An automation has at most {TRIGGERS_MAX} triggers; got {len(source)}.", pointer="/triggers")
    triggers = [_trigger(f"/triggers/{index}", trigger_json) for index, trigger_json in enumerate(source)]
    schedule_names: set[str] = set()
    for index, trigger in enumerate(triggers):
        if isinstance(trigger, ScheduleTrigger):
            if trigger.name in schedule_names:
                raise _invalid_error(f"/triggers/{index}/schedule/name", same_schedule_name_message(trigger.name))
            schedule_names.add(trigger.name)
    return TriggersByKind(
        delivery_triggers=tuple(trigger for trigger in triggers if isinstance(trigger, Trigger)),
        schedules=tuple(trigger for trigger in triggers if isinstance(trigger, ScheduleTrigger)),
    )


def same_schedule_name_message(name: str) -> str:
    return f"another schedule of the automation is named {name!r}. Names of schedules are unique."


def triggers_from_stored(stored_json: Json) -> TriggersByKind:
    """The triggers in stored JSON. Never raises."""
    try:
        return triggers_from_json(stored_json)
    except InvalidFilter as error:
        reason = " ".join(f"{fault.pointer}: {fault.message}" for fault in error.faults[:REASONS_MAX])
    except Invalid as error:
        reason = str(error)
    except Exception as error:
        # A fault in one automation must not affect the others.
        reason = f"A fault of type {type(error).__name__}."
    return TriggersByKind(unreadable=reason)


def _trigger(pointer: str, source: Any) -> Trigger | ScheduleTrigger:
    if not isinstance(source, dict):
        raise _invalid_error(
            pointer, "a trigger must be an object with provider and event, and with either filter or schedule."
        )
    if source.get("provider") == SCHEDULE_PROVIDER:
        return _schedule_trigger(pointer, source)
    _refuse_unknown_keys(pointer, source, {"provider", "event", "filter"})
    if source.get("provider") != TRIGGER_PROVIDER or source.get("event") != TRIGGER_EVENT:
        raise _invalid_error(
            pointer,
            f"the kinds of triggers are provider: {TRIGGER_PROVIDER}, event: {TRIGGER_EVENT}; and "
            f"provider: {SCHEDULE_PROVIDER}, event: {SCHEDULE_EVENT}.",
        )
    return _delivery_trigger(pointer, source)


def _schedule_trigger(pointer: str, source: dict[str, Any]) -> ScheduleTrigger:
    _refuse_unknown_keys(pointer, source, {"provider", "event", "schedule"})
    if source.get("event") != SCHEDULE_EVENT:
        raise _invalid_error(f"{pointer}/event", f"the event of a schedule must be {SCHEDULE_EVENT}.")
    try:
        return schedule_trigger(source.get("schedule"))
    except Invalid as error:
        [fault] = error.faults  # `schedule_from_json` always reports one fault.
        raise _invalid_error(f"{pointer}/schedule{fault.pointer}", fault.message) from None


def schedule_trigger(source: Any) -> ScheduleTrigger:
    """The trigger with this schedule. Raises `Invalid` with a pointer into `source`."""
    schedule = schedule_from_json(source)
    return ScheduleTrigger(
        name=schedule.name, cron=schedule.cron, timezone=schedule.timezone, catch_up=schedule.catch_up
    )


def _delivery_trigger(pointer: str, source: dict[str, Any]) -> Trigger:
    filter_json = source.get("filter")
    if not isinstance(filter_json, dict):
        raise _invalid_error(f"{pointer}/filter", "must be an object with webhook_ids, and may have event and payload.")
    _refuse_unknown_keys(f"{pointer}/filter", filter_json, {"webhook_ids", "event", "payload"})
    uids = _webhook_ids(f"{pointer}/filter/webhook_ids", filter_json.get("webhook_ids"))
    faults: list[Fault] = []
    event_types: tuple[str, ...] = ()
    payload: CompiledFilter | None = None
    if "event" in filter_json:
        types_or_faults = read_event_types(filter_json["event"])
        if isinstance(types_or_faults, tuple):
            event_types = types_or_faults
        else:
            faults += [Fault(f"{pointer}/filter/event{fault.pointer}", fault.message) for fault in types_or_faults]
    if "payload" in filter_json:
        compiled = compile_filter(filter_json["payload"])
        if isinstance(compiled, CompiledFilter):
            payload = compiled
        else:
            faults += [Fault(f"{pointer}/filter/payload{fault.pointer}", fault.message) for fault in compiled]
    if faults:
        raise InvalidFilter(faults)
    return Trigger(webhook_ids=uids, event_types=event_types, payload=payload)


def read_event_types(source: Json) -> tuple[str, ...] | list[Fault]:
    """The distinct event types of a filter, or every problem with its pointer.

    `source` may be any JSON or YAML value. Never raises.
    """
    if not isinstance(source, list | tuple) or not source:
        return [Fault("", "Event types must be a list of one or more texts, such as push.")]
    if len(source) > EVENT_TYPES_MAX:
        return [Fault("", f"At most {EVENT_TYPES_MAX} event types; got {len(source)}. Use several triggers.")]
    faults = [
        Fault(f"/{index}", f"An event type must be a text of 1 to {EVENT_CHARACTERS_MAX} printable characters.")
        for index, name in enumerate(source)
        if not isinstance(name, str) or not is_event_type(name)
    ]
    return faults or tuple(dict.fromkeys(source))


def _webhook_ids(pointer: str, source: Any) -> tuple[WebhookUid, ...]:
    if not isinstance(source, Sequence) or isinstance(source, str) or not source:
        raise _invalid_error(pointer, "must be a list of one or more webhook uids, such as wh_….")
    if len(source) > WEBHOOKS_PER_TRIGGER_MAX:
        raise _invalid_error(pointer, f"at most {WEBHOOKS_PER_TRIGGER_MAX} webhooks; got {len(source)}.")
    for uid in source:
        if not _is_uid(uid):
            raise _invalid_error(
                pointer, f"{str(uid)[:100]!r} is not a webhook uid. Use the wh_… of the webhook, not its name."
            )
    return tuple(dict.fromkeys(WebhookUid(uid) for uid in source))


def _is_uid(value: Any) -> bool:
    return isinstance(value, str) and _UID.match(value) is not None


def _invalid_error(pointer: str, message: str) -> Invalid:
    return Invalid(f"{pointer}: {message}", pointer=pointer)


def _refuse_unknown_keys(pointer: str, source: dict[str, Any], allowed: set[str]) -> None:
    for key in source:
        if key not in allowed:
            raise _invalid_error(pointer, f"unknown key {key[:100]!r}. {key_hint(key, allowed)}")
