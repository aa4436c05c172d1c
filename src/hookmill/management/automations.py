"""Operations on automations. A change takes effect in every process before the call returns."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hookmill.domain import ids
from hookmill.domain.automation import (
    PROMPT_CHARACTERS_MAX,
    Automation,
    TriggersByKind,
    triggers_from_json,
)
from hookmill.domain.errors import Conflict, Invalid, LimitReached
from hookmill.domain.ids import AutomationId, RunKey, WebhookUid
from hookmill.domain.limits import AUTOMATIONS_PER_FACTORY, BODY_BYTES_MAX
from hookmill.domain.name import usable_name
from hookmill.domain.payload import NotJson, Parsed, parse
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.results import DeclaredResult, kind_problem
from hookmill.domain.run import ByPerson, Run
from hookmill.domain.run_options import OPTION_FIELDS, RunOptions, changed_options, options_from_json
from hookmill.domain.run_policy import changed_policy, policy_from_json
from hookmill.domain.run_secrets import NO_SECRETS
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.management import compatibility
from hookmill.management.installation import Operations, random_id
from hookmill.management.lookup import automation_named, run_of
from hookmill.store import automations, schedules, secrets, webhooks
from hookmill.store.database import Transaction
from hookmill.store.runs import adding
from hookmill.store.schedules import NextTimes


class Automations(Operations):
    def create(
        self,
        may: MayManage,
        name: str,
        *,
        prompt: str,
        triggers: Any,
        runner: str | None = None,
        enabled: bool = True,
        policy: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Automation:
        """Create an automation. `triggers` is the JSON list; `policy` and `options` have the JSON fields of a run
        policy and of run options.

        Without a runner, the automation has the operator's default runner. Raises `Invalid`, `Conflict` for a taken
        name, or `LimitReached` at the factory's limit.
        """
        now = self._installation.now()
        new_triggers = triggers_from_json(triggers)
        automation = Automation(
            id=AutomationId(random_id("aut")),
            factory_id=may.factory.id,
            name=usable_name("automation", name),
            enabled=enabled,
            version=1,
            prompt=_usable_prompt(prompt),
            runner=self._usable_runner(runner),
            triggers=new_triggers.delivery_triggers,
            schedules=new_triggers.schedules,
            policy=policy_from_json(policy or {}),
            options=self._usable_options(may, options_from_json(options or {})),
            created_at=now,
            updated_at=now,
        )
        with self._installation.changing_definition(may) as change:
            if automations.count_live(change.tx, may.factory.id) >= AUTOMATIONS_PER_FACTORY:
                raise LimitReached(
                    f"Factory {may.factory.name!r} has {AUTOMATIONS_PER_FACTORY} automations, which is the limit. "
                    "Delete one first."
                )
            _refuse_taken_name(change.tx, may, automation.name)
            self._refuse_unusable_secrets(change.tx, may, automation)
            automations.add(change.tx, automation)
            change.record("create", "automation", automation.id, automation.name, enabled=enabled)
        return automation

    def change(
        self,
        may: MayManage,
        id_or_name: str,
        *,
        prompt: str | None = None,
        triggers: Any = None,
        runner: str | None = None,
        new_name: str | None = None,
        enabled: bool | None = None,
        policy: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Automation:
        """Save a new version of the automation. A field stays unchanged if its argument is None.

        `policy` and `options` have the changed JSON fields of the run policy and of the run options; a field that is
        None is reset. The version stays if nothing changes, or if `enabled` is the only argument.
        """
        if all(argument is None for argument in (prompt, triggers, runner, new_name)) and not policy and not options:
            return self.set_enabled(may, id_or_name, enabled) if enabled is not None else self.get(may, id_or_name)
        with self._installation.changing_definition(may) as change:
            before = automation_named(change.tx, may, id_or_name)
            new_triggers = triggers_from_json(triggers) if triggers is not None else _triggers_of(before)
            after = replace(
                before,
                version=before.version + 1,
                updated_at=change.now,
                name=usable_name("automation", new_name) if new_name is not None else before.name,
                prompt=_usable_prompt(prompt) if prompt is not None else before.prompt,
                runner=self._usable_runner(runner) if runner is not None else before.runner,
                triggers=new_triggers.delivery_triggers,
                schedules=new_triggers.schedules,
                unreadable_triggers=None,
                policy=changed_policy(before.policy, policy or {}),
                options=self._changed_options(may, before.options, options or {}),
                enabled=enabled if enabled is not None else before.enabled,
            )
            attributes_by_field = {name: name for name in ("name", "prompt", "runner", "enabled", "policy")}
            attributes_by_field["triggers"] = "all_triggers"
            changed_fields = [
                field
                for field, attribute in attributes_by_field.items()
                if getattr(before, attribute) != getattr(after, attribute)
            ]
            options_before, options_after = before.options.as_json(), after.options.as_json()
            changed_fields += [
                name
                for name in OPTION_FIELDS
                if options_before.get(name) != options_after.get(name) or before.options.unreadable is not None
            ]
            if not changed_fields:
                change.skip_audit()
                return before
            if after.name != before.name:
                _refuse_taken_name(change.tx, may, after.name)
            if after.options.secrets != before.options.secrets or after.runner != before.runner:
                self._refuse_unusable_secrets(change.tx, may, after)
            automations.save(change.tx, before, after)
            change.record("change", "automation", after.id, after.name, version=after.version, changed=changed_fields)
            # Enabling it has also removed its pause reason.
            return automation_named(change.tx, may, after.id)

    def all(self, may: MayView) -> Sequence[Automation]:
        with self._installation.reading() as tx:
            return automations.in_factory(tx, may.factory.id)

    def get(self, may: MayView, id_or_name: str) -> Automation:
        """The automation with this id or name. Raises `NotFound`."""
        with self._installation.reading() as tx:
            return automation_named(tx, may, id_or_name)

    def set_enabled(self, may: MayManage, id_or_name: str, enabled: bool) -> Automation:
        """Enable or disable the automation. A change also resets its consecutive failures and its pause reason."""
        with self._installation.changing(may) as change:
            automation = automation_named(change.tx, may, id_or_name)
            if automation.enabled == enabled:
                change.skip_audit()
                return automation
            automations.set_enabled(change.tx, automation, enabled, change.now)
            change.record("enable" if enabled else "disable", "automation", automation.id, automation.name)
            return automation_named(change.tx, may, automation.id)

    def delete(self, may: MayManage, id_or_name: str) -> Automation:
        """Delete the automation. When the call returns, it can start no more runs. Existing runs stay and continue."""
        with self._installation.changing_definition(may, needs_disk_space=False) as change:
            automation = automation_named(change.tx, may, id_or_name)
            automations.delete(change.tx, automation, change.now)
            change.record("delete", "automation", automation.id, automation.name)
        return automation

    def start_run(self, may: MayManage, id_or_name: str, body: bytes | None = None) -> Run:
        """Create a run without a delivery. `body` is its payload, as the text of a JSON value.

        Raises `Invalid` if the body is too large or not JSON, and `Conflict` if the automation is disabled.
        """
        payload = _usable_payload(body) if body is not None else None
        with self._installation.changing(may, needs_disk_space=True) as change:
            automation = automation_named(change.tx, may, id_or_name)
            if not automation.enabled:
                raise Conflict(f"Automation {automation.name!r} is disabled. Enable it first. Nothing was started.")
            key = RunKey(ids.time_ordered_key(change.now, os.urandom(8)))
            adding.add(
                change.tx,
                key,
                automation=automation,
                started_by=ByPerson(name=may.actor.name),
                now=change.now,
                payload=payload,
                body=body,
            )
            change.record("run", "automation", automation.id, automation.name, run=ids.run_id(key))
            return run_of(change.tx, may, ids.run_id(key))

    def next_times(self, may: MayView) -> Mapping[AutomationId, NextTimes]:
        """The next time of each schedule of all automations. Automations without schedules are omitted."""
        with self._installation.reading() as tx:
            return schedules.next_times(tx, may.factory.id)

    def next_times_of(self, _may: MayView, automation: Automation) -> NextTimes:
        """The next time of each schedule of one automation, by name."""
        if not automation.schedules:
            return {}
        with self._installation.reading() as tx:
            return schedules.next_times_of(tx, automation.id)

    def warnings(self, may: MayView, automation: Automation) -> list[str]:
        """Reasons why an enabled automation might not start runs or not deliver results, one sentence each.

        They are triggers, policies and options that can't be read; a runner that is not configured; secrets that were
        deleted; repositories and destinations that the factory may not use; webhooks that are unknown, deleted or
        disabled; and event types that a webhook's deliveries don't have.
        """
        uids = sorted(automation.selected_webhook_uids())
        with self._installation.reading() as tx:
            selected_webhooks = webhooks.with_uids(tx, uids)
            missing_secrets = _missing_secrets(tx, may, automation)
        return [
            *(
                f"No run starts, because its stored {part} can't be read: {reason} Replace all of it."
                for part, reason in automation.unreadable_parts.items()
            ),
            *self._runner_warnings(automation),
            *self._workspace_warnings(may, automation),
            *self._result_warnings(may, automation),
            *(f"{_missing_secret_text(may, name)} Until then, its runs fail." for name in missing_secrets.values()),
            *(
                warning
                for uid in uids
                if (warning := _webhook_warning(may, uid, selected_webhooks.get(uid))) is not None
            ),
            *(
                _missing_events_warning(selected_webhooks[uid])
                for uid in _webhooks_selected_only_by_event_type(automation)
                if _lacks_events(may, selected_webhooks.get(uid))
            ),
        ]

    def _refuse_unusable_secrets(self, tx: Transaction, may: MayManage, automation: Automation) -> None:
        """Raises `Invalid` if runs of the automation can't get one of its secrets."""
        if not automation.options.secrets:
            return
        rule = self._installation.config.secret_rules.get(automation.runner, NO_SECRETS)
        for index, secret in enumerate(automation.options.run_secrets):
            if (problem := rule.problem_of(automation.runner, secret.variable)) is not None:
                raise Invalid(problem, pointer=f"/secrets/{index}")
        for index, name in _missing_secrets(tx, may, automation).items():
            raise Invalid(_missing_secret_text(may, name), pointer=f"/secrets/{index}")

    def _runner_warnings(self, automation: Automation) -> list[str]:
        if automation.runner in self._installation.config.runner_names:
            return []
        return [
            f"The runner {automation.runner!r} is no longer configured, so its runs fail. Choose another runner, or "
            "ask the operator of this installation."
        ]

    def _workspace_warnings(self, may: MayView, automation: Automation) -> list[str]:
        workspace = automation.options.workspace
        if workspace is None or workspace.repository in self._installation.config.repositories_for(may):
            return []
        return [f"The operator allows no repository {workspace.repository!r} for this factory, so its runs fail."]

    def _result_warnings(self, may: MayView, automation: Automation) -> list[str]:
        problems = (self._destination_problem(may, result) for result in automation.options.results)
        return [f"A result is not delivered: {problem}" for problem in dict.fromkeys(problems) if problem is not None]

    def _changed_options(self, may: MayManage, options: RunOptions, changes: Mapping[str, Any]) -> RunOptions:
        after = changed_options(options, changes)
        # The operator may have removed a repository or a destination. Other changes must be possible nevertheless.
        if after.workspace != options.workspace:
            self._refuse_unusable_workspace(may, after)
        if after.results != options.results:
            self._refuse_unusable_destinations(may, after)
        return after

    def _usable_options(self, may: MayManage, options: RunOptions) -> RunOptions:
        """The options. Raises `Invalid` if the factory may not use their repository or one of their destinations."""
        self._refuse_unusable_workspace(may, options)
        self._refuse_unusable_destinations(may, options)
        return options

    def _refuse_unusable_workspace(self, may: MayManage, options: RunOptions) -> None:
        allowed = self._installation.config.repositories_for(may)
        if options.workspace is None or options.workspace.repository in allowed:
            return
        raise Invalid(
            f"Factory {may.factory.name!r} may not use a repository {options.workspace.repository!r}. The operator "
            f"allowed: {', '.join(allowed) or 'none'}.",
            pointer="/workspace/repository",
        )

    def _refuse_unusable_destinations(self, may: MayManage, options: RunOptions) -> None:
        for number, result in enumerate(options.results):
            if (problem := self._destination_problem(may, result)) is not None:
                raise Invalid(problem, pointer=f"/results/{number}/destination")

    def _destination_problem(self, may: MayView, result: DeclaredResult) -> str | None:
        """Why the result can't be delivered; None: it can."""
        allowed = self._installation.config.destinations_for(may)
        if (rules := allowed.get(result.destination)) is not None:
            return kind_problem(result.kind, result.destination, rules)
        return (
            f"Factory {may.factory.name!r} may not use a destination {result.destination!r}. The operator allowed: "
            f"{', '.join(allowed) or 'none'}."
        )

    def _usable_runner(self, runner: str | None) -> str:
        config = self._installation.config
        name = runner or config.default_runner
        if name in config.runner_names:
            return name
        raise Invalid(
            f"No runner is named {name[:80]!r}. The operator configured: {', '.join(config.runner_names)}.",
            pointer="/runner",
        )


def _triggers_of(automation: Automation) -> TriggersByKind:
    if (reason := automation.unreadable_triggers) is not None:
        raise Invalid(
            f"The automation can't be saved, because its stored triggers can't be read: {reason} Replace all of them.",
            pointer="/triggers",
        )
    return TriggersByKind(delivery_triggers=automation.triggers, schedules=automation.schedules)


def _usable_payload(body: bytes) -> Parsed:
    if len(body) > BODY_BYTES_MAX:
        raise Invalid(
            f"The payload has {len(body):,} bytes. The limit is {BODY_BYTES_MAX:,}, as for deliveries.",
            pointer="/payload",
        )
    parsed = parse(body)
    if isinstance(parsed, NotJson):
        raise Invalid(f"The payload is not JSON: {parsed.reason}.", pointer="/payload")
    return parsed


def _missing_secrets(tx: Transaction, may: MayView, automation: Automation) -> dict[int, str]:
    """The names of the automation's secrets that its runs can't get, by their position in the list."""
    if not automation.options.secrets:
        return {}
    existing = secrets.for_runs(tx, may.factory.id, (secret.name for secret in automation.options.run_secrets))
    return {
        index: secret.name for index, secret in enumerate(automation.options.run_secrets) if secret.name not in existing
    }


def _missing_secret_text(may: MayView, name: str) -> str:
    # The text is the same for secrets of webhooks and of other factories, of which the caller may not know.
    return (
        f"Factory {may.factory.name!r} has no secret for runs named {name}. Create it: "
        f"hookmill secret create {name} --for-runs --from-stdin."
    )


def _refuse_taken_name(tx: Transaction, may: MayManage, name: str) -> None:
    if automations.live_by_name(tx, may.factory.id, name) is not None:
        raise Conflict(f"Factory {may.factory.name!r} already has an automation named {name!r}. Choose another name.")


def _usable_prompt(prompt: str) -> str:
    if not prompt.strip():
        raise Invalid("The prompt is empty. Describe what the run should do.", pointer="/prompt")
    if len(prompt) > PROMPT_CHARACTERS_MAX or "\x00" in prompt:
        raise Invalid(
            f"The prompt is longer than {PROMPT_CHARACTERS_MAX:,} characters, or contains a NUL. "
            "Shorten it, or remove the NUL.",
            pointer="/prompt",
        )
    if any("\ud800" <= character <= "\udfff" for character in prompt):
        raise Invalid(
            "The prompt contains half of a surrogate pair, which a text file can't contain. Remove it.",
            pointer="/prompt",
        )
    return prompt


def _webhooks_selected_only_by_event_type(automation: Automation) -> list[WebhookUid]:
    """The webhooks for which every trigger requires an event type."""
    with_event_types = {uid for trigger in automation.triggers if trigger.event_types for uid in trigger.webhook_ids}
    without_event_types = {
        uid for trigger in automation.triggers if not trigger.event_types for uid in trigger.webhook_ids
    }
    return sorted(with_event_types - without_event_types)


def _lacks_events(may: MayView, webhook: Webhook | None) -> bool:
    # Details of another factory's webhook must not be revealed; `_webhook_warning` covers it.
    if webhook is None or webhook.factory_id != may.factory.id or webhook.state is WebhookState.DELETED:
        return False
    return not compatibility.defines_event_type(webhook)


def _missing_events_warning(webhook: Webhook) -> str:
    return (
        f"Deliveries of {webhook.name!r} ({webhook.uid}) have no event type. Every trigger that selects it requires "
        "one, so none matches. Set the webhook's event header."
    )


def _webhook_warning(may: MayView, uid: WebhookUid, webhook: Webhook | None) -> str | None:
    if webhook is None or webhook.factory_id != may.factory.id:
        return f"{uid} is not a webhook of factory {may.factory.name!r}, so it starts no runs."
    if webhook.state is WebhookState.DELETED:
        return f"{webhook.name!r} ({uid}) is deleted, so it starts no runs."
    if webhook.state is WebhookState.DISABLED:
        return f"{webhook.name!r} ({uid}) is disabled, so it starts no runs until it is enabled."
    return None
