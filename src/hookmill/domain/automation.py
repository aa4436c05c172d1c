"""An automation: a prompt for a runner, and the deliveries that start it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hookmill.domain.errors import Fault, Invalid, InvalidFilter
from hookmill.domain.event import EVENT_CHARACTERS_MAX, is_event_type
from hookmill.domain.filters import CompiledFilter, compile_filter, filter_to_json
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.payload import Json, Parsed
from hookmill.domain.text import snake_case

PROVIDER: Final = "webhook"
EVENT: Final = "received"
PROMPT_CHARACTERS_MAX: Final = 100_000
TRIGGERS_MAX: Final = 20
_UID: Final = re.compile(r"wh_[0-9A-Za-z_-]{1,64}\Z")
WEBHOOKS_PER_TRIGGER_MAX: Final = 100
EVENT_TYPES_MAX: Final = 32
REASONS_MAX: Final = 3
"""How many of a stored filter's problems are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Which deliveries of its webhooks a trigger takes. Without any condition: every one."""

    event_types: tuple[str, ...] = ()
    """The delivery's event type is one of these. Empty: any, or none."""
    payload: CompiledFilter | None = None

    @property
    def takes_all(self) -> bool:
        return not self.event_types and self.payload is None

    def takes_event(self, event: str | None) -> bool:
        """Whether the event type passes. None is a delivery without one."""
        return not self.event_types or event in self.event_types

    def matches(self, event: str | None, payload: Parsed) -> bool:
        """Whether the delivery passes. The one place that decides: for admission, tests and backtests alike."""
        return self.takes_event(event) and (self.payload is None or self.payload.matches(payload))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger(DeliveryFilter):
    """`provider: webhook`, `event: received`: which webhooks, and which of their deliveries."""

    webhook_ids: tuple[WebhookUid, ...]

    def as_json(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {"webhook_ids": list(self.webhook_ids)}
        if self.event_types:
            chosen["event"] = list(self.event_types)
        if self.payload is not None:
            chosen["payload"] = self.payload.source
        return {"provider": PROVIDER, "event": EVENT, "filter": chosen}

    def as_text(self) -> str:
        """The same as JSON text, every number exact: the form to store."""
        event = f', "event": {json.dumps(list(self.event_types))}' if self.event_types else ""
        payload = f', "payload": {self.payload.source_json}' if self.payload is not None else ""
        chosen = f'{{"webhook_ids": {json.dumps(list(self.webhook_ids))}{event}{payload}}}'
        return f'{{"provider": "{PROVIDER}", "event": "{EVENT}", "filter": {chosen}}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableTrigger:
    """A stored trigger that this version can't read. It matches nothing, and is kept as it is for a version that can.

    `source` is the JSON that is stored; the stored text itself where that is no JSON.
    """

    source: Json
    reason: str = field(compare=False)

    @property
    def webhook_ids(self) -> tuple[WebhookUid, ...]:
        """The webhooks that it names where triggers name theirs."""
        chosen = self.source.get("filter") if isinstance(self.source, dict) else None
        uids = chosen.get("webhook_ids") if isinstance(chosen, dict) else None
        return tuple(WebhookUid(each) for each in uids if _is_uid(each)) if isinstance(uids, list) else ()

    def as_json(self) -> Json:
        return self.source

    def as_text(self) -> str:
        return filter_to_json(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Automation:
    id: AutomationId
    factory_id: FactoryId
    name: str
    enabled: bool
    version: int
    prompt: str
    runner: str
    triggers: tuple[Trigger, ...]
    created_at: int
    updated_at: int
    unreadable: tuple[UnreadableTrigger, ...] = ()

    @property
    def every_trigger(self) -> tuple[Trigger | UnreadableTrigger, ...]:
        """All that is stored, to be shown and to be stored again. Only `triggers` start anything."""
        return (*self.triggers, *self.unreadable)

    def selected_webhooks(self) -> frozenset[WebhookUid]:
        return frozenset(uid for trigger in self.every_trigger for uid in trigger.webhook_ids)

    def unfiltered_webhooks(self) -> frozenset[WebhookUid]:
        """Those of which every delivery starts it, whatever its event type and its payload."""
        return frozenset(uid for trigger in self.triggers if trigger.takes_all for uid in trigger.webhook_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One enabled automation as one webhook sees it: `filters` are those of its triggers that select the webhook."""

    automation_id: AutomationId
    version: int
    filters: tuple[DeliveryFilter, ...] = field(repr=False)

    def matches(self, event: str | None, payload: Parsed) -> bool:
        """Whether a delivery of this event type starts a run: once, however many of the triggers match."""
        return any(_holds(chosen, event, payload) for chosen in self.filters)


def _holds(chosen: DeliveryFilter, event: str | None, payload: Parsed) -> bool:
    """Evaluation is total. Should it fail all the same, it fails closed, and for this trigger alone."""
    try:
        return chosen.matches(event, payload)
    except Exception:
        return False


def triggers_from_json(given: Any) -> tuple[Trigger, ...]:
    """Triggers as a person wrote them. Raises `Invalid` with the place, or `InvalidFilter` with every problem."""
    if not isinstance(given, list) or not given:
        raise Invalid("An automation needs a list of one or more triggers.", pointer="/triggers")
    if len(given) > TRIGGERS_MAX:
        raise Invalid(f"An automation has at most {TRIGGERS_MAX} triggers; got {len(given)}.", pointer="/triggers")
    return tuple(_trigger(f"/triggers/{place}", trigger) for place, trigger in enumerate(given))


def triggers_from_stored(stored: Json) -> tuple[tuple[Trigger, ...], tuple[UnreadableTrigger, ...]]:
    """Triggers that were checked at their save, perhaps by another version: those that can be read, and the others."""
    triggers: list[Trigger] = []
    unreadable: list[UnreadableTrigger] = []
    for place, each in enumerate(stored if isinstance(stored, list) else [stored]):
        try:
            triggers.append(_trigger(f"/triggers/{place}", each))
        except InvalidFilter as error:
            reason = " ".join(f"{fault.pointer}: {fault.message}" for fault in error.faults[:REASONS_MAX])
            unreadable.append(UnreadableTrigger(source=each, reason=reason))
        except Invalid as error:
            unreadable.append(UnreadableTrigger(source=each, reason=str(error)))
        except Exception as error:
            # Whatever is wrong with one trigger, the others go on.
            unreadable.append(UnreadableTrigger(source=each, reason=f"A fault of type {type(error).__name__}."))
    return tuple(triggers), tuple(unreadable)


def _trigger(place: str, given: Any) -> Trigger:
    if not isinstance(given, dict):
        raise _refused(place, "a trigger is an object with provider, event and filter.")
    _only(place, given, {"provider", "event", "filter"})
    if given.get("provider") != PROVIDER or given.get("event") != EVENT:
        raise _refused(place, f"the one kind of trigger is provider: {PROVIDER}, event: {EVENT}.")
    chosen = given.get("filter")
    if not isinstance(chosen, dict):
        raise _refused(f"{place}/filter", "needs webhook_ids, and may have event and payload.")
    _only(f"{place}/filter", chosen, {"webhook_ids", "event", "payload"})
    uids = _webhook_ids(f"{place}/filter/webhook_ids", chosen.get("webhook_ids"))
    faults: list[Fault] = []
    event_types: tuple[str, ...] = ()
    payload: CompiledFilter | None = None
    if "event" in chosen:
        read = read_event_types(chosen["event"])
        if isinstance(read, tuple):
            event_types = read
        else:
            faults += [Fault(f"{place}/filter/event{fault.pointer}", fault.message) for fault in read]
    if "payload" in chosen:
        compiled = compile_filter(chosen["payload"])
        if isinstance(compiled, CompiledFilter):
            payload = compiled
        else:
            faults += [Fault(f"{place}/filter/payload{fault.pointer}", fault.message) for fault in compiled]
    if faults:
        raise InvalidFilter(faults)
    return Trigger(webhook_ids=uids, event_types=event_types, payload=payload)


def read_event_types(source: Json) -> tuple[str, ...] | list[Fault]:
    """The event types that a filter takes, each once; or all that is wrong with them, at its place in the list. Takes
    any JSON or YAML value, never raises."""
    if not isinstance(source, list | tuple) or not source:
        return [Fault("", "Event types are a list of one or more texts, such as push.")]
    if len(source) > EVENT_TYPES_MAX:
        return [Fault("", f"At most {EVENT_TYPES_MAX} event types; got {len(source)}. Use several triggers.")]
    faults = [
        Fault(f"/{place}", f"An event type is a text of 1 to {EVENT_CHARACTERS_MAX} printable characters.")
        for place, each in enumerate(source)
        if not isinstance(each, str) or not is_event_type(each)
    ]
    return faults or tuple(dict.fromkeys(source))


def _webhook_ids(place: str, given: Any) -> tuple[WebhookUid, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise _refused(place, "a list of one or more webhook uids, such as wh_….")
    if len(given) > WEBHOOKS_PER_TRIGGER_MAX:
        raise _refused(place, f"at most {WEBHOOKS_PER_TRIGGER_MAX} webhooks; got {len(given)}.")
    for uid in given:
        if not _is_uid(uid):
            raise _refused(
                place, f"{str(uid)[:100]!r} is not a webhook uid. Use the wh_… of the webhook, not its name."
            )
    return tuple(dict.fromkeys(WebhookUid(uid) for uid in given))


def _is_uid(given: Any) -> bool:
    return isinstance(given, str) and _UID.match(given) is not None


def _refused(place: str, what: str) -> Invalid:
    return Invalid(f"{place}: {what}", pointer=place)


def _only(place: str, given: dict[str, Any], known: set[str]) -> None:
    for key in given:
        if key not in known:
            likely = snake_case(key)
            instead = f"Did you mean {likely}?" if likely in known else f"Known here: {', '.join(sorted(known))}."
            raise _refused(place, f"unknown key {key[:100]!r}. {instead}")
