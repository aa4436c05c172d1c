"""Operations on automations. Whoever listens to a webhook is settled, in every process, before the call returns."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hookmill.domain.automation import PROMPT_CHARACTERS_MAX, Automation, UnreadableTrigger, triggers_from_json
from hookmill.domain.errors import Conflict, Invalid, LimitReached
from hookmill.domain.ids import AutomationId, WebhookUid
from hookmill.domain.limits import AUTOMATIONS_PER_FACTORY
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.webhook import Webhook, WebhookState, usable_name
from hookmill.management import compatibility
from hookmill.management.installation import Installation, random_name
from hookmill.management.lookup import automation_named
from hookmill.store import automations, webhooks
from hookmill.store.database import Transaction


class Automations:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def create(
        self,
        may: MayManage,
        name: str,
        *,
        prompt: str,
        triggers: Any,
        runner: str | None = None,
        enabled: bool = True,
    ) -> Automation:
        """A new automation. `triggers` is the list as people write it; its filters are compiled here, once."""
        now = self._at.now()
        automation = Automation(
            id=AutomationId(random_name("aut")),
            factory_id=may.factory.id,
            name=usable_name("automation", name),
            enabled=enabled,
            version=1,
            prompt=_usable_prompt(prompt),
            runner=self._usable_runner(runner),
            triggers=triggers_from_json(triggers),
            created_at=now,
            updated_at=now,
        )
        with self._at.changing_definition(may) as change:
            if len(automations.names_in(change.tx, may.factory.id)) >= AUTOMATIONS_PER_FACTORY:
                raise LimitReached(
                    f"Factory {may.factory.name!r} has {AUTOMATIONS_PER_FACTORY} automations, the most it may have. "
                    "Delete one first."
                )
            _refuse_taken_name(change.tx, may, automation.name)
            automations.add(change.tx, automation)
            change.record("create", "automation", automation.id, automation.name, enabled=enabled)
        return automation

    def change(
        self,
        may: MayManage,
        named: str,
        *,
        prompt: str | None = None,
        triggers: Any = None,
        runner: str | None = None,
        new_name: str | None = None,
        enabled: bool | None = None,
    ) -> Automation:
        """The automation's next version. What is None stays."""
        if all(given is None for given in (prompt, triggers, runner, new_name)):
            return self.set_enabled(may, named, enabled) if enabled is not None else self.get(may, named)
        with self._at.changing_definition(may) as change:
            before = automation_named(change.tx, may, named)
            kept = (before.triggers, before.unreadable)
            wanted, unreadable = (triggers_from_json(triggers), ()) if triggers is not None else kept
            after = replace(
                before,
                version=before.version + 1,
                updated_at=change.now,
                name=usable_name("automation", new_name) if new_name is not None else before.name,
                prompt=_usable_prompt(prompt) if prompt is not None else before.prompt,
                runner=self._usable_runner(runner) if runner is not None else before.runner,
                triggers=wanted,
                unreadable=unreadable,
                enabled=enabled if enabled is not None else before.enabled,
            )
            fields = {name: name for name in ("name", "prompt", "runner", "enabled")} | {"triggers": "every_trigger"}
            changed = [name for name, field in fields.items() if getattr(before, field) != getattr(after, field)]
            if not changed:
                change.nothing()
                return before
            if after.name != before.name:
                _refuse_taken_name(change.tx, may, after.name)
            automations.save(change.tx, before, after)
            change.record("change", "automation", after.id, after.name, version=after.version, changed=changed)
        return after

    def all(self, may: MayView) -> Sequence[Automation]:
        with self._at.reading() as tx:
            return automations.in_factory(tx, may.factory.id)

    def get(self, may: MayView, named: str) -> Automation:
        """The automation with this id or name. Raises `NotFound`."""
        with self._at.reading() as tx:
            return automation_named(tx, may, named)

    def set_enabled(self, may: MayManage, named: str, enabled: bool) -> Automation:
        with self._at.changing(may) as change:
            automation = automation_named(change.tx, may, named)
            if automation.enabled == enabled:
                change.nothing()
                return automation
            automations.set_enabled(change.tx, automation, enabled, change.now)
            change.record("enable" if enabled else "disable", "automation", automation.id, automation.name)
            return automation_named(change.tx, may, automation.id)

    def delete(self, may: MayManage, named: str) -> Automation:
        """It starts nothing from the moment this returns. Its runs stay, and those under way go on."""
        with self._at.changing_definition(may) as change:
            automation = automation_named(change.tx, may, named)
            automations.delete(change.tx, automation, change.now)
            change.record("delete", "automation", automation.id, automation.name)
        return automation

    def warnings(self, may: MayView, automation: Automation) -> list[str]:
        """What keeps the automation from firing although it is enabled: triggers that can't be read, webhooks that
        are unknown, deleted or disabled, and event types that a webhook's deliveries don't have."""
        uids = sorted(automation.selected_webhooks())
        with self._at.reading() as tx:
            known = webhooks.with_uids(tx, uids)
        return [
            *(_of_unreadable(trigger) for trigger in automation.unreadable),
            *(warning for uid in uids if (warning := _warning(may, uid, known.get(uid))) is not None),
            *(_of_no_event(known[uid]) for uid in _asked_for_events(automation) if _has_no_event(may, known.get(uid))),
        ]

    def _usable_runner(self, runner: str | None) -> str:
        config = self._at.config
        chosen = runner or config.default_runner
        if chosen in config.runner_names:
            return chosen
        raise Invalid(
            f"No runner is named {chosen[:80]!r}. The operator configured: {', '.join(config.runner_names)}.",
            pointer="/runner",
        )


def _refuse_taken_name(tx: Transaction, may: MayManage, name: str) -> None:
    if automations.live_by_name(tx, may.factory.id, name) is not None:
        raise Conflict(f"Factory {may.factory.name!r} already has an automation named {name!r}. Choose another name.")


def _usable_prompt(prompt: str) -> str:
    if not prompt.strip():
        raise Invalid("The prompt is empty. Say what the run should do.", pointer="/prompt")
    if len(prompt) > PROMPT_CHARACTERS_MAX or "\x00" in prompt:
        raise Invalid(
            f"The prompt is longer than {PROMPT_CHARACTERS_MAX:,} characters, or holds a NUL.", pointer="/prompt"
        )
    if any("\ud800" <= character <= "\udfff" for character in prompt):
        raise Invalid("The prompt holds half of a surrogate pair, which no text file can.", pointer="/prompt")
    return prompt


def _of_unreadable(trigger: UnreadableTrigger) -> str:
    return (
        f"One of its triggers can't be read by this version, and starts nothing: {trigger.reason} It is kept until "
        "the triggers are replaced."
    )


def _asked_for_events(automation: Automation) -> list[WebhookUid]:
    """The webhooks of which no trigger takes deliveries without an event type."""
    asked = {uid for trigger in automation.triggers if trigger.event_types for uid in trigger.webhook_ids}
    others = {uid for trigger in automation.triggers if not trigger.event_types for uid in trigger.webhook_ids}
    return sorted(asked - others)


def _has_no_event(may: MayView, webhook: Webhook | None) -> bool:
    # Of another factory's webhook nothing is said but that it is none of this one.
    if webhook is None or webhook.factory_id != may.factory.id or webhook.state is WebhookState.DELETED:
        return False
    return not compatibility.reports_events(webhook)


def _of_no_event(webhook: Webhook) -> str:
    return (
        f"Deliveries of {webhook.name!r} ({webhook.uid}) have no event type, and every trigger that selects it asks "
        "for one: nothing of it matches. Name the header with the event type at the webhook."
    )


def _warning(may: MayView, uid: WebhookUid, webhook: Webhook | None) -> str | None:
    if webhook is None or webhook.factory_id != may.factory.id:
        return f"{uid} is not a webhook of factory {may.factory.name!r}: nothing will come from it."
    if webhook.state is WebhookState.DELETED:
        return f"{webhook.name!r} ({uid}) is deleted: nothing will come from it."
    if webhook.state is WebhookState.DISABLED:
        return f"{webhook.name!r} ({uid}) is disabled: nothing comes from it until it is enabled."
    return None
