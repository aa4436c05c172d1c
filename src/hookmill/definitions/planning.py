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


class Act(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"


class Kind(StrEnum):
    WEBHOOK = "webhook"
    AUTOMATION = "automation"


@dataclass(frozen=True, slots=True)
class Change:
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

    act: Act
    kind: Kind
    name: str
    id: str | None
    """The uid, or the automation's id; None for what is yet to be made."""
    changes: tuple[Change, ...] = ()
    definition: Definition | None = field(default=None, compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        changes = [
            {"key": one.key, "before": one.before, "after": one.after, "concerns_senders": one.concerns_senders}
            for one in self.changes
        ]
        return {
            "act": self.act.value,
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
        return {one.name: one for one in self.webhooks if one.state is not WebhookState.DELETED}


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
    automations = {one.name: one for one in state.automations}
    webhook_steps = [_webhook_step(one, live.get(one.name)) for one in definitions.webhooks]
    automation_steps = [_automation_step(one, automations.get(one.name), state) for one in definitions.automations]
    removed_webhooks = _removed(Kind.WEBHOOK, definitions.webhooks, {name: one.uid for name, one in live.items()})
    removed_automations = _removed(
        Kind.AUTOMATION, definitions.automations, {name: one.id for name, one in automations.items()}
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
        problems=tuple(sorted((*definitions.problems, *_unmet_secrets(definitions, state, live)))),
        warnings=tuple(sorted(_warnings(definitions, state, live, removed_webhooks))),
        needs_consent=_consent(definitions, state, steps, takes_over=takes_over),
    )


# Steps


def _webhook_step(wanted: WebhookDefinition, known: Webhook | None) -> Step | None:
    if known is None:
        settings = [Change(key, None, value) for key, value in webhook_settings(wanted).items() if value]
        settings.append(Change(WebhookKey.ENABLED, None, wanted.enabled is not False))
        return Step(
            act=Act.CREATE, kind=Kind.WEBHOOK, name=wanted.name, id=None, changes=tuple(settings), definition=wanted
        )
    changes = [
        Change(key, before, after, key in _PROOFS)
        for (key, before), after in zip(webhook_settings(known).items(), webhook_settings(wanted).values(), strict=True)
        if before != after
    ]
    if not known.secret_is_current and all(change.key != WebhookKey.SECRET_NAME for change in changes):
        what = "the value last synced" if known.has_secret else "none yet"
        changes.append(Change(SYNC, what, "the newest value", known.has_secret))
    was_enabled = known.state is WebhookState.ENABLED
    if wanted.enabled is not None and wanted.enabled != was_enabled:
        changes.append(Change(WebhookKey.ENABLED, was_enabled, wanted.enabled, was_enabled))
    return _change(Kind.WEBHOOK, known.uid, wanted, changes)


_PROOFS: Final = {
    WebhookKey.AUTH_MODE,
    WebhookKey.SIGNATURE_SCHEME,
    WebhookKey.SIGNATURE_OPTIONS,
    WebhookKey.SECRET_NAME,
}


def webhook_settings(webhook: Webhook | WebhookDefinition) -> dict[str, Any]:
    """What a file says of a webhook but its name and its toggle, by key."""
    return {key: getattr(webhook, key.field) for key in WebhookKey if key not in _NO_SETTINGS}


_NO_SETTINGS: Final = {WebhookKey.NAME, WebhookKey.ENABLED}


def _automation_step(wanted: AutomationDefinition, known: Automation | None, state: State) -> Step | None:
    runner = wanted.runner or state.default_runner
    triggers = [trigger.as_json() for trigger in wanted.triggers]
    if known is None:
        return Step(
            act=Act.CREATE,
            kind=Kind.AUTOMATION,
            name=wanted.name,
            id=None,
            changes=(
                Change("runner", None, runner),
                Change("triggers", None, triggers),
                Change("prompt", None, wanted.prompt),
                Change("enabled", None, wanted.enabled is not False),
            ),
            definition=wanted,
        )
    changes = []
    if known.runner != runner:
        changes.append(Change("runner", known.runner, runner))
    if known.every_trigger != wanted.triggers:
        changes.append(Change("triggers", [trigger.as_json() for trigger in known.every_trigger], triggers))
    if prompt_of(known.prompt) != wanted.prompt:
        changes.append(Change("prompt", known.prompt, wanted.prompt))
    if wanted.enabled is not None and wanted.enabled != known.enabled:
        changes.append(Change("enabled", known.enabled, wanted.enabled))
    return _change(Kind.AUTOMATION, known.id, wanted, changes)


def _change(kind: Kind, known_as: str, wanted: Definition, changes: list[Change]) -> Step | None:
    if not changes:
        return None
    return Step(act=Act.CHANGE, kind=kind, name=wanted.name, id=known_as, changes=tuple(changes), definition=wanted)


def _removed(kind: Kind, wanted: Iterable[Definition], known: Mapping[str, str]) -> list[Step]:
    kept = {one.name for one in wanted}
    return [
        Step(act=Act.REMOVE, kind=kind, name=name, id=known_as)
        for name, known_as in sorted(known.items())
        if name not in kept
    ]


# What stands in the way


def _unmet_secrets(definitions: Definitions, state: State, live: Mapping[str, Webhook]) -> Iterable[Problem]:
    for wanted in definitions.webhooks:
        name, known = wanted.secret_name, live.get(wanted.name)
        has_value = state.secrets.get(name)
        # One that still awaits its provider's secret may go on waiting.
        waits = known is not None and not known.has_secret and wanted.enabled is not True
        if has_value is None:
            close = get_close_matches(name, state.secrets, n=1)
            meant = f", or did you mean {close[0]}?" if close else "."
            message = f"No team secret is named {name}. Create it first: hookmill secret create {name}{meant}"
            yield wanted.problem(f"/{WebhookKey.SECRET_NAME}", message)
        elif not has_value and not waits:
            message = f"Team secret {name} has no value yet. Give it one: hookmill secret replace {name}"
            yield wanted.problem(f"/{WebhookKey.SECRET_NAME}", message)


def _consent(definitions: Definitions, state: State, steps: Iterable[Step], *, takes_over: bool) -> str | None:
    """URLs die for ever. What was made by hand and is in no file is nowhere else."""
    removed = [step for step in steps if step.act is Act.REMOVE]
    webhooks = [step.name for step in removed if step.kind is Kind.WEBHOOK]
    automations = [step.name for step in removed if step.kind is Kind.AUTOMATION] if takes_over else []
    if not webhooks and not automations:
        return None
    loses = f"Factory {state.factory_name!r} would lose"
    said = []
    if webhooks:
        said.append(f"{loses} {_several('webhook', webhooks)}: senders get 404, and the URL never comes back.")
    if automations:
        said.append(f"{loses} {_several('automation', automations)}, whose prompt is in no file.")
    said.append("If these files are another factory's: --factory NAME.")
    if takes_over:
        said.append("It was made by hand so far: `hookmill export DIR` writes it as files.")
    said += _renamed(definitions, state, webhooks)
    return " ".join(said)


def _renamed(definitions: Definitions, state: State, removed: Iterable[str]) -> list[str]:
    """A file that was renamed looks like one webhook removed and another made."""
    live = state.live()
    new = [wanted for wanted in definitions.webhooks if wanted.name not in live]
    return [
        f"If {wanted.file} is {name!r} renamed, write name: {name} in it: the webhook and its URL stay."
        for name in removed
        for wanted in new
        if webhook_settings(wanted) == webhook_settings(live[name])
    ]


def _several(noun: str, names: list[str]) -> str:
    shown = ", ".join(map(repr, names))
    return f"{noun} {shown}" if len(names) == 1 else f"{len(names)} {noun}s ({shown})"


# What to know


def _warnings(
    definitions: Definitions, state: State, live: Mapping[str, Webhook], removed: Iterable[Step]
) -> Iterable[Problem]:
    """Why an automation will not fire although it is there."""
    toggles = {live[one.name].uid: one.enabled for one in definitions.webhooks if one.name in live}
    gone = {step.id for step in removed}
    known = {webhook.uid: webhook for webhook in state.webhooks}
    for automation in definitions.automations:
        for number, trigger in enumerate(automation.triggers):
            for uid in trigger.webhook_ids:
                if (what := _silence(uid, known.get(uid), gone, toggles, state)) is not None:
                    yield automation.problem(_place_of(automation, number, uid), what)


def _silence(
    uid: WebhookUid,
    webhook: Webhook | None,
    gone: set[str | None],
    toggles: Mapping[WebhookUid, bool | None],
    state: State,
) -> str | None:
    if webhook is None:
        return f"{uid} is not a webhook of factory {state.factory_name!r}, so it starts no runs."
    if webhook.state is WebhookState.DELETED:
        return f"{webhook.name!r} ({uid}) is deleted, so it starts no runs."
    if uid in gone:
        return f"{webhook.name!r} ({uid}) is in no file: it is deleted, and nothing will come from it."
    toggle = toggles.get(uid)
    if not (toggle if toggle is not None else webhook.state is WebhookState.ENABLED):
        return f"{webhook.name!r} ({uid}) is disabled, so it starts no runs until it is enabled."
    return None


def _place_of(automation: AutomationDefinition, number: int, uid: WebhookUid) -> str:
    index = automation.triggers[number].webhook_ids.index(uid)
    return f"/triggers/{number}/filter/webhook_ids/{index}"


BACKTESTED: Final = 120
"""How many stored deliveries a filter is tried on."""

Backtest = Callable[[Trigger, list[WebhookUid]], tuple[int, int]]
"""Of the last stored deliveries of these webhooks, how many the trigger would have matched; and how many there are."""


def filters_to_try(definitions: Definitions) -> list[tuple[AutomationDefinition, int]]:
    """The triggers whose filter can be tried on stored deliveries."""
    return [
        (automation, number)
        for automation in definitions.automations
        for number, trigger in enumerate(automation.triggers)
        if not trigger.takes_all
    ]


def warning_of(automation: AutomationDefinition, number: int, matched: int, tried: int) -> Problem | None:
    """What to say of a filter that was tried. Nothing where there was nothing to try it on."""
    if matched or not tried:
        return None
    what = (
        f"would have matched none of the last {tried} deliveries"
        if tried > 1
        else "would not have matched the one delivery"
    )
    message = f"This filter {what} stored from its webhooks. `hookmill filter test` shows why."
    part = "payload" if automation.triggers[number].payload is not None else "event"
    return automation.problem(f"/triggers/{number}/filter/{part}", message)
