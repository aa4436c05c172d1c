"""Compute what applying definitions would change in a factory. Pure: a plan depends on definitions and a state only."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from msgspec import structs

from hookmill.definitions.keys import REFERENCE, WEBHOOK_FIELDS, is_new, key_of, new_uid
from hookmill.definitions.problem import Problem
from hookmill.definitions.reading import (
    AutomationDefinition,
    Definition,
    Definitions,
    WebhookDefinition,
    normalized_prompt,
)
from hookmill.domain.automation import (
    STORED_PARTS,
    Automation,
    AutomationSpec,
    DeliveryFilter,
    WebhookTrigger,
    changed_fields,
)
from hookmill.domain.definition_run import DefinitionKind
from hookmill.domain.ids import WebhookUid
from hookmill.domain.webhook import AUTHENTICATION_FIELDS, Webhook, WebhookSpec, WebhookState


class PlannedAction(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The value of one key before and after.

    `concerns_senders`: after the change, deliveries are refused until the sender is reconfigured or, if the webhook is
    disabled, until it is enabled again.
    """

    key: str
    before: Any
    after: Any
    concerns_senders: bool = False


SYNC_CHANGE: Final = "secret"
"""The `key` of a change that makes a webhook use the newest value of its secret. A plan has no value of a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A webhook or automation that the plan creates, changes or removes."""

    action: PlannedAction
    kind: DefinitionKind
    name: str
    id: str | None
    """The webhook's uid or the automation's id; None if it does not exist yet."""
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
    """The part of a factory's state that a plan depends on."""

    factory_name: str
    defined_by_files: bool
    webhooks: tuple[Webhook, ...]
    """Includes deleted webhooks, which automations can still select."""
    automations: tuple[Automation, ...]
    has_value_by_secret_name: Mapping[str, bool]
    """For each team secret: whether it has a value."""
    own_secret_names: tuple[str, ...]
    """The team secrets for webhooks that this factory created or uses."""
    default_runner: str

    def live_webhooks_by_name(self) -> dict[str, Webhook]:
        return {webhook.name: webhook for webhook in self.webhooks if webhook.state is not WebhookState.DELETED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps in the order in which they are applied, with problems and warnings."""

    factory_name: str
    steps: tuple[Step, ...]
    unchanged_count: int
    """The number of webhooks and automations that already match their files."""
    files_take_over: bool
    """Whether this apply makes files the only way to change the factory's webhooks and automations."""
    problems: tuple[Problem, ...] = ()
    """Why the plan can't be applied."""
    warnings: tuple[Problem, ...] = ()
    consent_reason: str | None = None
    """Why the plan needs explicit consent: it removes objects that can't be restored. None without such a removal."""

    @property
    def has_changes(self) -> bool:
        """Whether applying the plan changes anything. Taking over the factory is a change, even without steps."""
        return bool(self.steps) or self.files_take_over

    @property
    def digest(self) -> str:
        """Equal for plans that change the same things from the same state."""
        steps = [step.as_json() for step in self.steps]
        return sha256(json.dumps([self.files_take_over, steps], sort_keys=True, default=str).encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        return {
            "changes": self.has_changes,
            "takes_over": self.files_take_over,
            "needs_consent": self.consent_reason,
            "unchanged": self.unchanged_count,
            "steps": [step.as_json() for step in self.steps],
            "warnings": [warning.as_json() for warning in self.warnings],
        }


def plan_of(definitions: Definitions, state: State) -> Plan:
    """The steps from the present state to the definitions. Applying them can still fail: management checks more."""
    live_webhooks = state.live_webhooks_by_name()
    automations = {automation.name: automation for automation in state.automations}
    webhook_steps = [
        _webhook_step(definition, live_webhooks.get(definition.name)) for definition in definitions.webhooks
    ]
    names = {new_uid(definition.name): f"{REFERENCE}{definition.name}" for definition in definitions.webhooks}
    automation_steps = [
        _automation_step(definition, automations.get(definition.name), state, names)
        for definition in definitions.automations
    ]
    webhook_removals = _removal_steps(
        DefinitionKind.WEBHOOK, definitions.webhooks, {name: webhook.uid for name, webhook in live_webhooks.items()}
    )
    automation_removals = _removal_steps(
        DefinitionKind.AUTOMATION,
        definitions.automations,
        {name: automation.id for name, automation in automations.items()},
    )
    creations_and_changes = [step for step in (*webhook_steps, *automation_steps) if step is not None]
    # Removals come first: they free names, and lower the number of webhooks, which is limited.
    steps = (*automation_removals, *webhook_removals, *creations_and_changes)
    files_take_over = not state.defined_by_files
    return Plan(
        factory_name=state.factory_name,
        steps=steps,
        unchanged_count=len(definitions.webhooks) + len(definitions.automations) - len(creations_and_changes),
        files_take_over=files_take_over,
        problems=tuple(sorted((*definitions.problems, *_secret_problems(definitions, state, live_webhooks)))),
        warnings=tuple(
            sorted((*definitions.warnings, *_warnings(definitions, state, live_webhooks, webhook_removals)))
        ),
        consent_reason=_consent_reason(definitions, state, steps, files_take_over=files_take_over),
    )


# Steps


def _webhook_step(definition: WebhookDefinition, existing: Webhook | None) -> Step | None:
    if existing is None:
        initial = [PlannedChange(key, None, value) for key, value in webhook_settings(definition.spec).items() if value]
        initial.append(PlannedChange("enabled", None, definition.enabled is not False))
        return Step(
            action=PlannedAction.CREATE,
            kind=DefinitionKind.WEBHOOK,
            name=definition.name,
            id=None,
            changes=tuple(initial),
            definition=definition,
        )
    before, after = webhook_settings(existing), webhook_settings(definition.spec)
    changes = [
        PlannedChange(key, before[key], after[key], key in _AUTHENTICATION_KEYS)
        for key in before
        if before[key] != after[key]
    ]
    if not existing.secret_is_current and all(change.key != "secretName" for change in changes):
        current_value = "the value last synced" if existing.has_secret else "none yet"
        changes.append(PlannedChange(SYNC_CHANGE, current_value, "the newest value", existing.has_secret))
    was_enabled = existing.state is WebhookState.ENABLED
    if definition.enabled is not None and definition.enabled != was_enabled:
        changes.append(PlannedChange("enabled", was_enabled, definition.enabled, was_enabled))
    return _change_step(DefinitionKind.WEBHOOK, existing.uid, definition, changes)


_AUTHENTICATION_KEYS: Final = set(map(key_of, AUTHENTICATION_FIELDS))


def webhook_settings(webhook: WebhookSpec) -> dict[str, Any]:
    """The settings of a webhook's file by key, without `name` and `enabled`."""
    settings = {key: getattr(webhook, field) for key, field in WEBHOOK_FIELDS.items() if key not in ("name", "enabled")}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}


def _automation_step(
    definition: AutomationDefinition, existing: Automation | None, state: State, names: Mapping[WebhookUid, str]
) -> Step | None:
    """`names`: how the plan shows the webhooks that have no uid yet."""
    spec = applied_spec(definition, existing, state.default_runner)
    after = {**with_webhook_ids(spec, names).as_json(), "enabled": spec.enabled}
    if existing is None:
        return Step(
            action=PlannedAction.CREATE,
            kind=DefinitionKind.AUTOMATION,
            name=definition.name,
            id=None,
            changes=tuple(PlannedChange(key, None, value) for key, value in after.items() if key != "name"),
            definition=definition,
        )
    before = {**existing.spec.as_json(), "enabled": existing.enabled}
    # A part that can't be read is replaced as a whole.
    changed = {
        *changed_fields(existing, spec),
        *(name for part in existing.unreadable_parts for name in STORED_PARTS[part]),
    }
    changes = [
        PlannedChange(key, before.get(key), after.get(key))
        for key in AutomationSpec.__struct_fields__
        if key in changed
    ]
    return _change_step(DefinitionKind.AUTOMATION, existing.id, definition, changes)


def applied_spec(definition: AutomationDefinition, existing: Automation | None, default_runner: str) -> AutomationSpec:
    """The automation after applying the file. What the file leaves out has its default, or stays."""
    spec = structs.replace(definition.spec, runner=definition.spec.runner or default_runner)
    if existing is None:
        return spec
    is_same_prompt = normalized_prompt(existing.prompt) == spec.prompt
    return structs.replace(
        spec,
        prompt=existing.prompt if is_same_prompt else spec.prompt,
        enabled=existing.enabled if definition.enabled is None else definition.enabled,
    )


def with_webhook_ids(spec: AutomationSpec, replacements: Mapping[WebhookUid, str]) -> AutomationSpec:
    """The spec with other ids of some webhooks."""
    return structs.replace(
        spec,
        triggers=tuple(
            structs.replace(
                trigger,
                filter=structs.replace(
                    trigger.filter,
                    webhook_ids=tuple(WebhookUid(replacements.get(uid, uid)) for uid in trigger.filter.webhook_ids),
                ),
            )
            if isinstance(trigger, WebhookTrigger)
            else trigger
            for trigger in spec.triggers
        ),
    )


def _change_step(
    kind: DefinitionKind, item_id: str, definition: Definition, changes: list[PlannedChange]
) -> Step | None:
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


def _removal_steps(
    kind: DefinitionKind, definitions: Iterable[Definition], existing_ids: Mapping[str, str]
) -> list[Step]:
    defined = {definition.name for definition in definitions}
    return [
        Step(action=PlannedAction.REMOVE, kind=kind, name=name, id=item_id)
        for name, item_id in sorted(existing_ids.items())
        if name not in defined
    ]


# Problems


def _secret_problems(definitions: Definitions, state: State, live_webhooks: Mapping[str, Webhook]) -> Iterable[Problem]:
    for definition in definitions.webhooks:
        name, existing = definition.spec.secret_name or "", live_webhooks.get(definition.name)
        has_value = state.has_value_by_secret_name.get(name)
        # An existing webhook that waits for its provider's secret is no problem, unless the file enables it.
        may_wait = existing is not None and not existing.has_secret and definition.enabled is not True
        if has_value is None:
            matches = get_close_matches(name, state.own_secret_names, n=1)
            suggestion = f", or did you mean {matches[0]}?" if matches else "."
            message = f"No team secret is named {name}. Create it first: hookmill secret create {name}{suggestion}"
            yield definition.problem("/secretName", message)
        elif not has_value and not may_wait:
            message = f"Team secret {name} has no value yet. Set one: hookmill secret replace {name}"
            yield definition.problem("/secretName", message)


def _consent_reason(
    definitions: Definitions, state: State, steps: Iterable[Step], *, files_take_over: bool
) -> str | None:
    """Why the steps need consent: a webhook's URL can't be restored, nor an automation that has no file."""
    removals = [step for step in steps if step.action is PlannedAction.REMOVE]
    webhooks = [step.name for step in removals if step.kind is DefinitionKind.WEBHOOK]
    automations = [step.name for step in removals if step.kind is DefinitionKind.AUTOMATION] if files_take_over else []
    if not webhooks and not automations:
        return None
    subject = f"Factory {state.factory_name!r} would lose"
    sentences = []
    if webhooks:
        sentences.append(
            f"{subject} {_counted_names('webhook', webhooks)}: senders get 404, and the URL can't be restored."
        )
    if automations:
        sentences.append(f"{subject} {_counted_names('automation', automations)}, whose prompt has no file.")
    sentences.append("If the files are for another factory, use --factory NAME.")
    if files_take_over:
        sentences.append(
            f"Factory {state.factory_name!r} was not defined by files so far: `hookmill export DIR` writes it as files."
        )
    sentences += _rename_hints(definitions, state, webhooks)
    return " ".join(sentences)


def _rename_hints(definitions: Definitions, state: State, removed_names: Iterable[str]) -> list[str]:
    """Hints for renamed files. Each looks like the removal of one webhook and the creation of another."""
    live_webhooks = state.live_webhooks_by_name()
    new_definitions = [definition for definition in definitions.webhooks if definition.name not in live_webhooks]
    return [
        f"If {definition.file} is the renamed file of {name!r}, add the line name: {name} to it. "
        "Then the webhook keeps its URL."
        for name in removed_names
        for definition in new_definitions
        if webhook_settings(definition.spec) == webhook_settings(live_webhooks[name])
    ]


def _counted_names(noun: str, names: list[str]) -> str:
    quoted_names = ", ".join(map(repr, names))
    return f"{noun} {quoted_names}" if len(names) == 1 else f"{len(names)} {noun}s ({quoted_names})"


# Warnings


def _warnings(
    definitions: Definitions, state: State, live_webhooks: Mapping[str, Webhook], webhook_removals: Iterable[Step]
) -> Iterable[Problem]:
    """A warning for each webhook that triggers select, but that will start no runs, at the first of these triggers."""
    enabled_by_uid = {
        live_webhooks[definition.name].uid: definition.enabled
        for definition in definitions.webhooks
        if definition.name in live_webhooks
    }
    removed_ids = {step.id for step in webhook_removals}
    webhooks_by_uid = {webhook.uid: webhook for webhook in state.webhooks}
    uses_by_uid: dict[WebhookUid, list[tuple[AutomationDefinition, str]]] = {}
    for automation in definitions.automations:
        for trigger_index, conditions in automation.filters():
            for uid_index, uid in enumerate(conditions.webhook_ids):
                pointer = f"/triggers/{trigger_index}/filter/webhook_ids/{uid_index}"
                uses_by_uid.setdefault(uid, []).append((automation, pointer))
    for uid, uses in uses_by_uid.items():
        if is_new(uid):
            continue
        reason = _inactive_reason(uid, webhooks_by_uid.get(uid), removed_ids, enabled_by_uid, state)
        if reason is not None:
            first_automation, pointer = uses[0]
            others = len(uses) - 1
            remark = f" {others} more trigger{'s' if others > 1 else ''} select{'' if others > 1 else 's'} it."
            yield first_automation.problem(pointer, reason + (remark if others else ""))


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
        return f"{webhook.name!r} ({uid}) has no file, so this apply deletes it. It then starts no runs."
    enabled_in_file = enabled_by_uid.get(uid)
    will_be_enabled = webhook.state is WebhookState.ENABLED if enabled_in_file is None else enabled_in_file
    if not will_be_enabled:
        return f"{webhook.name!r} ({uid}) is disabled, so it starts no runs until it is enabled."
    return None


APPLY_BACKTEST_DELIVERIES: Final = 120
"""The number of stored deliveries on which an apply tests each filter."""


def filters_to_backtest(definitions: Definitions) -> list[tuple[AutomationDefinition, int, DeliveryFilter]]:
    """The filters of triggers with conditions, each with its automation and its index in the file's triggers."""
    return [
        (automation, trigger_index, conditions)
        for automation in definitions.automations
        for trigger_index, conditions in automation.filters()
        if not conditions.matches_every_delivery
    ]


def backtest_warning(
    automation: AutomationDefinition,
    trigger_index: int,
    conditions: DeliveryFilter,
    matched_count: int,
    tested_count: int,
) -> Problem | None:
    """A warning if the filter matched none of the tested deliveries. None if it matched one, or none was tested."""
    if matched_count or not tested_count:
        return None
    comparison = (
        f"would have matched none of the last {tested_count} deliveries"
        if tested_count > 1
        else "would not have matched the one delivery"
    )
    message = f"This filter {comparison} stored from its webhooks. `hookmill filter test` shows why."
    part = "payload" if conditions.payload is not None else "event"
    return automation.problem(f"/triggers/{trigger_index}/filter/{part}", message)
