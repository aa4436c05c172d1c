"""An automation: a prompt for a runner, and the deliveries and schedules that start it.

`AutomationSpec` is what a person may set. `Automation` adds what the service knows.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field
from msgspec.structs import force_setattr

from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.event import EVENT_CHARACTERS_MAX, is_event_type
from hookmill.domain.filters import CompiledFilter
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.name import usable_name
from hookmill.domain.payload import Parsed
from hookmill.domain.run_options import OPTION_FIELDS, OPTIONS_PART, RunOptions
from hookmill.domain.run_policy import NO_POLICY, POLICY_PART, RunPolicy, read_stored
from hookmill.domain.schedule import Schedule
from hookmill.domain.spec import Spec, merge_patch, read

TRIGGERS_PART: Final = "triggers"
"""The name of the stored triggers in `unreadable_parts`."""
PROMPT_CHARACTERS_MAX: Final = 100_000
TRIGGERS_MAX: Final = 20
WEBHOOKS_PER_TRIGGER_MAX: Final = 100
EVENT_TYPES_MAX: Final = 32

_EVENT_TYPE_PHRASE: Final = f"a text of 1 to {EVENT_CHARACTERS_MAX} printable characters"
EventTypeName = Annotated[
    str,
    Meta(min_length=1, max_length=EVENT_CHARACTERS_MAX, pattern=r"\S", extra={"phrase": _EVENT_TYPE_PHRASE}),
]


SelectedUid = Annotated[
    WebhookUid,
    Meta(pattern="^wh_[0-9A-Za-z_-]{1,64}$", extra={"phrase": "the uid of a webhook (wh_…), which is not its name"}),
]


class DeliveryFilter(Spec, frozen=True, kw_only=True, omit_defaults=True):
    """Which deliveries start a run: those of the webhooks that meet the conditions `event` and `payload`."""

    webhook_ids: Annotated[
        tuple[SelectedUid, ...],
        Meta(
            min_length=1,
            max_length=WEBHOOKS_PER_TRIGGER_MAX,
            description="The uids of the webhooks whose deliveries start a run. `hookmill webhook list` shows them.",
            extra={"phrase": f"a list of 1 to {WEBHOOKS_PER_TRIGGER_MAX} webhook uids, such as wh_…"},
        ),
    ]
    event: Annotated[
        tuple[EventTypeName, ...],
        Meta(
            min_length=1,
            max_length=EVENT_TYPES_MAX,
            description="The event types that start a run, such as push. Omitted: every delivery starts one, even "
            "without an event type.",
            extra={"phrase": f"a list of 1 to {EVENT_TYPES_MAX} texts, such as push. Use several triggers for more"},
        ),
    ] = ()
    payload: Annotated[
        CompiledFilter | None,
        Meta(description="The payload filter. Omitted: every payload matches.", extra={"phrase": "an object"}),
    ] = None

    def __post_init__(self) -> None:
        # Equal filters have equal values.
        force_setattr(self, "webhook_ids", tuple(dict.fromkeys(self.webhook_ids)))
        force_setattr(self, "event", tuple(dict.fromkeys(self.event)))

    def problems(self) -> Iterator[Fault]:
        for number, name in enumerate(self.event):
            if not is_event_type(name):
                yield Fault(f"/event/{number}", f"Each item of event must be {_EVENT_TYPE_PHRASE}.")

    @property
    def matches_every_delivery(self) -> bool:
        """Whether there are no conditions."""
        return not self.event and self.payload is None

    def matches_event_type(self, event: str | None) -> bool:
        """Whether the event type matches. `event` is None if the delivery has no event type."""
        return not self.event or event in self.event

    def matches(self, event: str | None, payload: Parsed) -> bool:
        """Whether the delivery matches. The ingress, filter tests and backtests all use this method."""
        return self.matches_event_type(event) and (self.payload is None or self.payload.matches(payload))


class WebhookTrigger(Spec, frozen=True, kw_only=True, tag_field="provider", tag="webhook"):
    """Which deliveries start an automation: by webhook, event type and payload."""

    event: Annotated[Literal["received"], Meta(description="Not the event type of a delivery.")]
    filter: DeliveryFilter


class ScheduleTrigger(Spec, frozen=True, kw_only=True, tag_field="provider", tag="schedule"):
    """A schedule that starts an automation."""

    event: Literal["cron_fired"]
    schedule: Schedule


Trigger = Annotated[
    WebhookTrigger | ScheduleTrigger,
    Meta(
        extra={
            "phrase": "an object: either provider: webhook, event: received and filter; or provider: schedule, "
            "event: cron_fired and schedule"
        }
    ),
]
Triggers = Annotated[
    tuple[Trigger, ...],
    Meta(
        min_length=1,
        max_length=TRIGGERS_MAX,
        description="What starts a run: deliveries and schedules. If several triggers match a delivery, they start one "
        "run.",
        extra={"phrase": f"a list of 1 to {TRIGGERS_MAX} triggers"},
    ),
]


Prompt = Annotated[
    str,
    Meta(description="What a run should do.", extra_json_schema={"minLength": 1, "maxLength": PROMPT_CHARACTERS_MAX}),
]


class TriggerList(Spec, frozen=True, kw_only=True):
    """The triggers of an automation, which are stored apart from its policy and its options."""

    triggers: Triggers

    def problems(self) -> Iterator[Fault]:
        yield from same_schedule_names(self.triggers)


def filters_of(triggers: Collection[Trigger]) -> tuple[DeliveryFilter, ...]:
    """The filters of the triggers that select deliveries."""
    return tuple(trigger.filter for trigger in triggers if isinstance(trigger, WebhookTrigger))


def schedules_of(triggers: Collection[Trigger]) -> tuple[Schedule, ...]:
    return tuple(trigger.schedule for trigger in triggers if isinstance(trigger, ScheduleTrigger))


def same_schedule_names(triggers: Collection[Trigger]) -> Iterator[Fault]:
    """A fault for each schedule that has the name of an earlier one."""
    names: set[str] = set()
    for number, trigger in enumerate(triggers):
        if isinstance(trigger, ScheduleTrigger):
            if (name := trigger.schedule.name) in names:
                message = f"Another schedule of the automation is named {name!r}. Names of schedules are unique."
                yield Fault(f"/triggers/{number}/schedule/name", message)
            names.add(name)


class AutomationWithoutPrompt(RunOptions, frozen=True, kw_only=True):
    """What a person may set of an automation, without its prompt, which may be long."""

    name: Annotated[str, Meta(description="Unique in the factory.", extra_json_schema={"maxLength": 100})]
    enabled: Annotated[bool, Meta(description="Whether deliveries and schedules start runs.")] = True
    runner: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1_000,
            description="The configured runner that performs the runs. Omitted: the installation's default.",
        ),
    ] = field(default_factory=str)
    triggers: Triggers

    def __post_init__(self) -> None:
        super().__post_init__()
        force_setattr(self, "name", self.name.strip())

    def problems(self) -> Iterator[Fault]:
        yield from super().problems()
        yield from same_schedule_names(self.triggers)
        try:
            usable_name("automation", self.name)
        except Invalid as error:
            yield Fault("/name", str(error))

    def as_json(self) -> dict[str, Any]:
        fields = super().as_json()
        return {name: fields[name] for name in ("name", "enabled", "runner") if name in fields} | fields

    @property
    def filters(self) -> tuple[DeliveryFilter, ...]:
        """The filters of the triggers that select deliveries."""
        return filters_of(self.triggers)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return schedules_of(self.triggers)

    def selected_webhook_uids(self) -> frozenset[WebhookUid]:
        """The webhooks that any trigger selects."""
        return frozenset(chain.from_iterable(each.webhook_ids for each in self.filters))

    def unfiltered_webhook_uids(self) -> frozenset[WebhookUid]:
        """The webhooks of which every delivery starts the automation, whatever its event type and payload."""
        return frozenset(uid for each in self.filters if each.matches_every_delivery for uid in each.webhook_ids)


class AutomationSpec(AutomationWithoutPrompt, frozen=True, kw_only=True):
    """What a person may set of an automation."""

    prompt: Prompt

    def problems(self) -> Iterator[Fault]:
        yield from super().problems()
        if not self.prompt.strip():
            yield Fault("/prompt", "The prompt is empty. Describe what the run should do.")
        if len(self.prompt) > PROMPT_CHARACTERS_MAX or "\x00" in self.prompt:
            yield Fault(
                "/prompt",
                f"The prompt is longer than {PROMPT_CHARACTERS_MAX:,} characters, or contains a NUL. "
                "Shorten it, or remove the NUL.",
            )
        if any("\ud800" <= character <= "\udfff" for character in self.prompt):
            yield Fault(
                "/prompt",
                "The prompt contains half of a surrogate pair, which a text file can't contain. Remove it.",
            )


class Automation(AutomationSpec, frozen=True, kw_only=True):
    """An automation, in its current version. Times are in µs since 1970."""

    id: AutomationId
    factory_id: FactoryId
    version: int
    created_at: int
    updated_at: int
    pause_reason: str | None = None
    """Why the service disabled the automation; None if it is enabled, or if a person disabled it."""
    unreadable_parts: dict[str, str] = field(default_factory=dict)
    """The stored parts that can't be read, each with the reason. Until they are replaced, no run starts."""

    @property
    def spec(self) -> AutomationSpec:
        return AutomationSpec(**{name: getattr(self, name) for name in AutomationSpec.__struct_fields__})

    def patched(self, patch: Mapping[str, Any]) -> AutomationSpec:
        """The spec after a JSON merge patch. Raises `Invalid`, also if a part can't be read and stays."""
        self.refuse_unreadable(patch)
        return read(AutomationSpec, merge_patch(self.spec.as_json(), patch))

    def refuse_unreadable(self, replaced: Collection[str]) -> None:
        """Raises `Invalid` if a stored part can't be read, unless all of its fields are replaced: the others would get
        their defaults."""
        for part, reason in self.unreadable_parts.items():
            if any(name not in replaced for name in STORED_PARTS[part]):
                raise Invalid(
                    f"The automation can't be saved, because its stored {part} can't be read: {reason} Replace all "
                    f"fields of the {part} with one request of the API: {', '.join(STORED_PARTS[part])}."
                )


STORED_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    TRIGGERS_PART: ("triggers",),
    POLICY_PART: RunPolicy.__struct_fields__,
    OPTIONS_PART: OPTION_FIELDS,
}
"""The fields of each part that is stored as JSON."""


def changed_fields(before: AutomationSpec, after: AutomationSpec) -> list[str]:
    return [name for name in AutomationSpec.__struct_fields__ if getattr(before, name) != getattr(after, name)]


def triggers_from_stored(stored_json: str) -> tuple[Trigger, ...] | str:
    """The triggers of a stored automation, or why they can't be read. Never raises."""
    stored = read_stored(TriggerList, stored_json, field="triggers")
    return stored if isinstance(stored, str) else stored.triggers


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The triggers of one enabled automation that select one webhook."""

    automation_id: AutomationId
    version: int
    filters: tuple[DeliveryFilter, ...]
    """Those that select the webhook. So only their other conditions are needed here."""
    policy: RunPolicy = NO_POLICY

    def matches(self, event: str | None, payload: Parsed) -> bool:
        """Whether a delivery starts a run. The delivery starts only one run, even if several triggers match.

        If a defect makes the evaluation of a trigger raise, the others are still evaluated. If none of them matches,
        the exception is raised.
        """
        fault: Exception | None = None
        for delivery_filter in self.filters:
            try:
                if delivery_filter.matches(event, payload):
                    return True
            except Exception as error:
                fault = error
        if fault is not None:
            raise fault
        return False
