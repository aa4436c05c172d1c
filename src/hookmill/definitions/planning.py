"""What applying definitions would do to a factory. Pure: a plan is made of what the files say and what there is."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final

from hookmill.definitions.keys import WebhookKey
from hookmill.definitions.problem import Problem
from hookmill.definitions.reading import (
    AutomationDefinition,
    Definition,
    Definitions,
    WebhookDefinition,
    prompt_of,
)
from hookmill.domain.automation import Automation, Trigger
from hookmill.domain.ids import WebhookUid
from hookmill.domain.webhook import Webhook, WebhookState


class PlannedAction(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"


class Kind(StrEnum):
    WEBHOOK = "webhook"
    AUTOMATION = "automation"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One key's value before and after. `concerns_senders`: who sends must do something, or is shut out."""

    key: str
    before: Any
    after: Any
    concerns_senders: bool = False


SYNC: Final = "secret"
"""The key of the change that takes up a secret's newest value. The values themselves are nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that is made, changed or removed."""

    action: PlannedAction
    kind: Kind
    name: str
    id: str | None
    """The uid, or the automation's id; None for what is yet to be made."""
    changes: tuple[PlannedChange, ...] = ()
    definition: Definition | None = field(default=None, compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        changes = [
            {
                "key": change.key,
                "before": change.before,
                "after": change.after,
                "concerns_senders": change.concerns_senders,
            }
            for change in self.changes
        ]
        return {
            "act": self.action.value,
            "kind": self.kind.value,
            "name": self.name,
            "id": self.id,
            "file": self.definition.file if self.definition is not None else None,
            "changes": changes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What there is in a factory, as far as definitions are concerned."""

    factory_name: str
    defined_by_files: bool
    webhooks: tuple[Webhook, ...]
    """Deleted ones too: an automation may still select one."""
    automations: tuple[Automation, ...]
    secrets: Mapping[str, bool]
    """Team secrets by name, and whether they have a value."""
    default_runner: str

    def live(self) -> dict[str, Webhook]:
        return {webhook.name: webhook for webhook in self.webhooks if webhook.state is not WebhookState.DELETED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps, in the order in which they are taken, and what to know before taking them."""

    factory_name: str
    steps: tuple[Step, ...]
    unchanged: int
    takes_over: bool
    """Whether the factory was made by hand so far, and is defined by files from this apply on."""
    problems: tuple[Problem, ...] = ()
    """Why it can't be applied."""
    warnings: tuple[Problem, ...] = ()
    needs_consent: str | None = None
    """Why it is applied only with explicit consent: what is removed can't be brought back."""

    @property
    def has_changes(self) -> bool:
        """Whether there is something to do. Who defines the factory is a change too: it closes other channels."""
        return bool(self.steps) or self.takes_over

    def as_json(self) -> dict[str, Any]:
        return {
            "changes": self.has_changes,
            "takes_over": self.takes_over,
            "needs_consent": self.needs_consent,
            "unchanged": self.unchanged,
            "steps": [step.as_json() for step in self.steps],
            "warnings": [warning.as_json() for warning in self.warnings],
        }


def plan_of(definitions: Definitions, state: State) -> Plan:
    """The way from what there is to what the files say. Whether it can be gone is for the operations to say."""
    live = state.live()
    automations = {item.name: item for item in state.automations}
    webhook_steps = [_webhook_step(item, live.get(item.name)) for item in definitions.webhooks]
    automation_steps = [_automation_step(item, automations.get(item.name), state) for item in definitions.automations]
    removed_webhooks = _removal_steps(
        Kind.WEBHOOK, definitions.webhooks, {name: item.uid for name, item in live.items()}
    )
    removed_automations = _removal_steps(
        Kind.AUTOMATION, definitions.automations, {name: item.id for name, item in automations.items()}
    )
    wanted = [step for step in (*webhook_steps, *automation_steps) if step is not None]
    # What goes makes room first: for names, and for the number of webhooks that a factory may have.
    steps = (*removed_automations, *removed_webhooks, *wanted)
    takes_over = not state.defined_by_files
    return Plan(
        factory_name=state.factory_name,
        steps=steps,
        unchanged=len(definitions.webhooks) + len(definitions.automations) - len(wanted),
        takes_over=takes_over,
        problems=tuple(sorted((*definitions.problems, *_missing_secrets(definitions, state, live)))),
        warnings=tuple(sorted(_warnings(definitions, state, live, removed_webhooks))),
        needs_consent=_consent_reason(definitions, state, steps, takes_over=takes_over),
    )


# Steps


def _webhook_step(definition: WebhookDefinition, existing: Webhook | None) -> Step | None:
    if existing is None:
        settings = [PlannedChange(key, None, value) for key, value in webhook_settings(definition).items() if value]
        settings.append(PlannedChange(WebhookKey.ENABLED, None, definition.enabled is not False))
        return Step(
            action=PlannedAction.CREATE,
            kind=Kind.WEBHOOK,
            name=definition.name,
            id=None,
            changes=tuple(settings),
            definition=definition,
        )
    changes = [
        PlannedChange(key, before, after, key in _AUTHENTICATION_KEYS)
        for (key, before), after in zip(
            webhook_settings(existing).items(), webhook_settings(definition).values(), strict=True
        )
        if before != after
    ]
    if not existing.secret_is_current and all(change.key != WebhookKey.SECRET_NAME for change in changes):
        current_value = "the value last synced" if existing.has_secret else "none yet"
        changes.append(PlannedChange(SYNC, current_value, "the newest value", existing.has_secret))
    was_enabled = existing.state is WebhookState.ENABLED
    if definition.enabled is not None and definition.enabled != was_enabled:
        changes.append(PlannedChange(WebhookKey.ENABLED, was_enabled, definition.enabled, was_enabled))
    return _change_step(Kind.WEBHOOK, existing.uid, definition, changes)


_AUTHENTICATION_KEYS: Final = {
    WebhookKey.AUTH_MODE,
    WebhookKey.SIGNATURE_SCHEME,
    WebhookKey.SIGNATURE_OPTIONS,
    WebhookKey.SECRET_NAME,
}


def webhook_settings(webhook: Webhook | WebhookDefinition) -> dict[str, Any]:
    """What a file says of a webhook but its name and its toggle, by key."""
    return {key: getattr(webhook, key.field) for key in WebhookKey if key not in _NOT_SETTINGS}


_NOT_SETTINGS: Final = {WebhookKey.NAME, WebhookKey.ENABLED}


def _automation_step(definition: AutomationDefinition, existing: Automation | None, state: State) -> Step | None:
    runner = definition.runner or state.default_runner
    triggers = [trigger.as_json() for trigger in definition.triggers]
    if existing is None:
        return Step(
            action=PlannedAction.CREATE,
            kind=Kind.AUTOMATION,
            name=definition.name,
            id=None,
            changes=(
                PlannedChange("runner", None, runner),
                PlannedChange("triggers", None, triggers),
                PlannedChange("prompt", None, definition.prompt),
                PlannedChange("enabled", None, definition.enabled is not False),
            ),
            definition=definition,
        )
    changes = []
    if existing.runner != runner:
        changes.append(PlannedChange("runner", existing.runner, runner))
    if existing.every_trigger != definition.triggers:
        changes.append(PlannedChange("triggers", [trigger.as_json() for trigger in existing.every_trigger], triggers))
    if prompt_of(existing.prompt) != definition.prompt:
        changes.append(PlannedChange("prompt", existing.prompt, definition.prompt))
    if definition.enabled is not None and definition.enabled != existing.enabled:
        changes.append(PlannedChange("enabled", existing.enabled, definition.enabled))
    return _change_step(Kind.AUTOMATION, existing.id, definition, changes)


def _change_step(kind: Kind, item_id: str, definition: Definition, changes: list[PlannedChange]) -> Step | None:
    if not changes:
        return None
    return Step(
        action=PlannedAction.CHANGE,
        kind=kind,
        name=definition.name,
        id=item_id,
        changes=tuple(changes),
        definition=definition,
    )


def _removal_steps(kind: Kind, definitions: Iterable[Definition], existing_ids: Mapping[str, str]) -> list[Step]:
    defined = {definition.name for definition in definitions}
    return [
        Step(action=PlannedAction.REMOVE, kind=kind, name=name, id=item_id)
        for name, item_id in sorted(existing_ids.items())
        if name not in defined
    ]


# What stands in the way


def _missing_secrets(definitions: Definitions, state: State, live: Mapping[str, Webhook]) -> Iterable[Problem]:
    for definition in definitions.webhooks:
        name, existing = definition.secret_name, live.get(definition.name)
        has_value = state.secrets.get(name)
        # One that still awaits its provider's secret may go on waiting.
        may_wait = existing is not None and not existing.has_secret and definition.enabled is not True
        if has_value is None:
            matches = get_close_matches(name, state.secrets, n=1)
            suggestion = f", or did you mean {matches[0]}?" if matches else "."
            message = f"No team secret is named {name}. Create it first: hookmill secret create {name}{suggestion}"
            yield definition.problem(f"/{WebhookKey.SECRET_NAME}", message)
        elif not has_value and not may_wait:
            message = f"Team secret {name} has no value yet. Give it one: hookmill secret replace {name}"
            yield definition.problem(f"/{WebhookKey.SECRET_NAME}", message)


def _consent_reason(definitions: Definitions, state: State, steps: Iterable[Step], *, takes_over: bool) -> str | None:
    """URLs die for ever. What was made by hand and is in no file is nowhere else."""
    removed = [step for step in steps if step.action is PlannedAction.REMOVE]
    webhooks = [step.name for step in removed if step.kind is Kind.WEBHOOK]
    automations = [step.name for step in removed if step.kind is Kind.AUTOMATION] if takes_over else []
    if not webhooks and not automations:
        return None
    subject = f"Factory {state.factory_name!r} would lose"
    sentences = []
    if webhooks:
        sentences.append(
            f"{subject} {_counted_names('webhook', webhooks)}: senders get 404, and the URL never comes back."
        )
    if automations:
        sentences.append(f"{subject} {_counted_names('automation', automations)}, whose prompt is in no file.")
    sentences.append("If these files are another factory's: --factory NAME.")
    if takes_over:
        sentences.append("It was made by hand so far: `hookmill export DIR` writes it as files.")
    sentences += _rename_hints(definitions, state, webhooks)
    return " ".join(sentences)


def _rename_hints(definitions: Definitions, state: State, removed: Iterable[str]) -> list[str]:
    """A file that was renamed looks like one webhook removed and another made."""
    live = state.live()
    new = [definition for definition in definitions.webhooks if definition.name not in live]
    return [
        f"If {definition.file} is {name!r} renamed, write name: {name} in it: the webhook and its URL stay."
        for name in removed
        for definition in new
        if webhook_settings(definition) == webhook_settings(live[name])
    ]


def _counted_names(noun: str, names: list[str]) -> str:
    shown = ", ".join(map(repr, names))
    return f"{noun} {shown}" if len(names) == 1 else f"{len(names)} {noun}s ({shown})"


# What to know


def _warnings(
    definitions: Definitions, state: State, live: Mapping[str, Webhook], removed: Iterable[Step]
) -> Iterable[Problem]:
    """Why an automation will not fire although it is there."""
    enabled_by_uid = {
        live[definition.name].uid: definition.enabled for definition in definitions.webhooks if definition.name in live
    }
    removed_ids = {step.id for step in removed}
    webhooks_by_uid = {webhook.uid: webhook for webhook in state.webhooks}
    for automation in definitions.automations:
        for number, trigger in enumerate(automation.triggers):
            for uid in trigger.webhook_ids:
                reason = _inactive_reason(uid, webhooks_by_uid.get(uid), removed_ids, enabled_by_uid, state)
                if reason is not None:
                    yield automation.problem(_pointer_to(automation, number, uid), reason)


def _inactive_reason(
    uid: WebhookUid,
    webhook: Webhook | None,
    removed_ids: set[str | None],
    enabled_by_uid: Mapping[WebhookUid, bool | None],
    state: State,
) -> str | None:
    if webhook is None:
        return f"{uid} is not a webhook of factory {state.factory_name!r}, so it starts no runs."
    if webhook.state is WebhookState.DELETED:
        return f"{webhook.name!r} ({uid}) is deleted, so it starts no runs."
    if uid in removed_ids:
        return f"{webhook.name!r} ({uid}) is in no file: it is deleted, and nothing will come from it."
    enabled = enabled_by_uid.get(uid)
    if not (enabled if enabled is not None else webhook.state is WebhookState.ENABLED):
        return f"{webhook.name!r} ({uid}) is disabled, so it starts no runs until it is enabled."
    return None


def _pointer_to(automation: AutomationDefinition, number: int, uid: WebhookUid) -> str:
    index = automation.triggers[number].webhook_ids.index(uid)
    return f"/triggers/{number}/filter/webhook_ids/{index}"


BACKTESTED: Final = 120
"""How many stored deliveries a filter is tried on."""

Backtest = Callable[[Trigger, list[WebhookUid]], tuple[int, int]]
"""Of the last stored deliveries of these webhooks, how many the trigger would have matched; and how many there are."""


def filters_to_backtest(definitions: Definitions) -> list[tuple[AutomationDefinition, int]]:
    """The triggers whose filter can be tried on stored deliveries."""
    return [
        (automation, number)
        for automation in definitions.automations
        for number, trigger in enumerate(automation.triggers)
        if not trigger.takes_all
    ]


def backtest_warning(automation: AutomationDefinition, number: int, matched: int, tried: int) -> Problem | None:
    """What to say of a filter that was tried. Nothing where there was nothing to try it on."""
    if matched or not tried:
        return None
    comparison = (
        f"would have matched none of the last {tried} deliveries"
        if tried > 1
        else "would not have matched the one delivery"
    )
    message = f"This filter {comparison} stored from its webhooks. `hookmill filter test` shows why."
    part = "payload" if automation.triggers[number].payload is not None else "event"
    return automation.problem(f"/triggers/{number}/filter/{part}", message)
