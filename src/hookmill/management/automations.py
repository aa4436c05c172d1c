"""Operations on automations. A change takes effect in every process before the call returns."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import structs

from hookmill.domain import ids
from hookmill.domain.automation import STORED_PARTS, Automation, AutomationSpec, changed_fields
from hookmill.domain.errors import Conflict, Invalid, LimitReached
from hookmill.domain.ids import AutomationId, RunKey, WebhookUid
from hookmill.domain.limits import AUTOMATIONS_PER_FACTORY, BODY_BYTES_MAX
from hookmill.domain.payload import NotJson, Parsed, parse
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.results import DeclaredResult, kind_problem
from hookmill.domain.run import ByPerson, Run
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_secrets import NO_SECRETS
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.management.installation import Change, Operations, random_id
from hookmill.management.lookup import automation_named, run_of
from hookmill.store import automations, schedules, secrets, webhooks
from hookmill.store.database import Transaction
from hookmill.store.runs import adding
from hookmill.store.schedules import NextTimes


class Automations(Operations):
    def create(self, may: MayManage, spec: AutomationSpec) -> Automation:
        """Create an automation.

        Without a runner, the automation has the operator's default runner. Raises `Invalid`, `Conflict` for a taken
        name, or `LimitReached` at the factory's limit.
        """
        now = self._installation.now()
        automation = Automation(
            **structs.asdict(self._with_runner(spec)),
            id=AutomationId(random_id("aut")),
            factory_id=may.factory.id,
            version=1,
            created_at=now,
            updated_at=now,
        )
        self._refuse_unusable(may, automation, AutomationSpec.__struct_fields__)
        with self._installation.changing_definition(may) as change:
            if automations.count_live(change.tx, may.factory.id) >= AUTOMATIONS_PER_FACTORY:
                raise LimitReached(
                    f"Factory {may.factory.name!r} has {AUTOMATIONS_PER_FACTORY} automations, which is the limit. "
                    "Delete one first."
                )
            _refuse_taken_name(change.tx, may, automation.name)
            self._refuse_unusable_secrets(change.tx, may, automation)
            automations.add(change.tx, automation)
            change.record("create", "automation", automation.id, automation.name, enabled=automation.enabled)
        return automation

    def change(self, may: MayManage, id_or_name: str, patch: Mapping[str, Any]) -> Automation:
        """Save a new version of the automation, with a JSON merge patch of its spec.

        The version stays if nothing changes, or if `enabled` is the only field of the patch.
        """
        if not patch:
            return self.get(may, id_or_name)
        if patch.keys() == {"enabled"} and isinstance(patch["enabled"], bool):
            return self.set_enabled(may, id_or_name, patch["enabled"])
        with self._installation.changing_definition(may) as change:
            before = automation_named(change.tx, may, id_or_name)
            return self._save(change, may, before, before.patched(patch))

    def redefine(self, may: MayManage, id_or_name: str, spec: AutomationSpec) -> Automation:
        """Save a new version of the automation with this spec, which also replaces what can't be read."""
        with self._installation.changing_definition(may) as change:
            return self._save(change, may, automation_named(change.tx, may, id_or_name), spec)

    def _save(self, change: Change, may: MayManage, before: Automation, spec: AutomationSpec) -> Automation:
        changed = changed_fields(before, self._with_runner(spec))
        if changed in ([], ["enabled"]) and not before.unreadable_parts:
            return self._set_enabled(change, may, before, spec.enabled)
        after = structs.replace(
            before,
            **structs.asdict(self._with_runner(spec)),
            version=before.version + 1,
            updated_at=change.now,
            unreadable_parts={},
        )
        # The operator may have removed what the automation uses. Other changes must be possible nevertheless.
        self._refuse_unusable(may, after, changed)
        if after.name != before.name:
            _refuse_taken_name(change.tx, may, after.name)
        if not {"secrets", "runner"}.isdisjoint(changed):
            self._refuse_unusable_secrets(change.tx, may, after)
        automations.save(change.tx, before, after)
        changed += [name for part in before.unreadable_parts for name in STORED_PARTS[part] if name not in changed]
        change.record("change", "automation", after.id, after.name, version=after.version, changed=changed)
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
            return self._set_enabled(change, may, automation_named(change.tx, may, id_or_name), enabled)

    def _set_enabled(self, change: Change, may: MayManage, automation: Automation, enabled: bool) -> Automation:
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
        if not automation.secrets:
            return
        rule = self._installation.config.secret_rules.get(automation.runner, NO_SECRETS)
        for index, secret in enumerate(automation.run_secrets):
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
        workspace = automation.workspace
        if workspace is None or workspace.repository in self._installation.config.repositories_for(may):
            return []
        return [f"The operator allows no repository {workspace.repository!r} for this factory, so its runs fail."]

    def _result_warnings(self, may: MayView, automation: Automation) -> list[str]:
        problems = (self._destination_problem(may, result) for result in automation.results)
        return [f"A result is not delivered: {problem}" for problem in dict.fromkeys(problems) if problem is not None]

    def _refuse_unusable(self, may: MayManage, spec: AutomationSpec, changed: Collection[str]) -> None:
        """Raises `Invalid` if the operator's settings don't allow the value of a changed field."""
        config = self._installation.config
        if "runner" in changed and spec.runner not in config.runner_names:
            raise Invalid(
                f"No runner is named {spec.runner[:80]!r}. The operator configured: {', '.join(config.runner_names)}.",
                pointer="/runner",
            )
        if "workspace" in changed:
            self._refuse_unusable_workspace(may, spec)
        if "results" in changed:
            self._refuse_unusable_destinations(may, spec)

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

    def _with_runner(self, spec: AutomationSpec) -> AutomationSpec:
        """The spec, with the default runner if it names none."""
        return spec if spec.runner else structs.replace(spec, runner=self._installation.config.default_runner)


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
    if not automation.secrets:
        return {}
    existing = secrets.for_runs(tx, may.factory.id, (secret.name for secret in automation.run_secrets))
    return {index: secret.name for index, secret in enumerate(automation.run_secrets) if secret.name not in existing}


def _missing_secret_text(may: MayView, name: str) -> str:
    # The text is the same for secrets of webhooks and of other factories, of which the caller may not know.
    return (
        f"Factory {may.factory.name!r} has no secret for runs named {name}. Create it: "
        f"hookmill secret create {name} --for-runs --from-stdin."
    )


def _refuse_taken_name(tx: Transaction, may: MayManage, name: str) -> None:
    if automations.live_by_name(tx, may.factory.id, name) is not None:
        raise Conflict(f"Factory {may.factory.name!r} already has an automation named {name!r}. Choose another name.")


def _webhooks_selected_only_by_event_type(automation: Automation) -> list[WebhookUid]:
    """The webhooks for which every trigger requires an event type."""
    with_event_types = {uid for each in automation.filters if each.event for uid in each.webhook_ids}
    without_event_types = {uid for each in automation.filters if not each.event for uid in each.webhook_ids}
    return sorted(with_event_types - without_event_types)


def _lacks_events(may: MayView, webhook: Webhook | None) -> bool:
    # Details of another factory's webhook must not be revealed; `_webhook_warning` covers it.
    if webhook is None or webhook.factory_id != may.factory.id or webhook.state is WebhookState.DELETED:
        return False
    return not webhook.defines_event_type


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
