"""Plan and apply definitions on a factory.

`plan` applies the steps to a copy of the factory in memory, so that it finds every problem that `apply` would find.
`apply` applies all steps in one transaction, or none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hookmill.definitions.folder import Files, read_folder
from hookmill.definitions.keys import WEBHOOK_FIELDS, fault_in_file, new_uid
from hookmill.definitions.planning import (
    APPLY_BACKTEST_DELIVERIES,
    SYNC_CHANGE,
    Plan,
    PlannedAction,
    State,
    Step,
    applied_spec,
    backtest_warning,
    filters_to_backtest,
    plan_of,
    with_webhook_ids,
)
from hookmill.definitions.problem import Problem, UnusableDefinitions
from hookmill.definitions.reading import (
    AutomationDefinition,
    Definitions,
    WebhookDefinition,
    problems_beyond_contract,
    read_definitions,
)
from hookmill.definitions.rendering import lines_of_plan, summary_of
from hookmill.domain.automation import Automation
from hookmill.domain.definition_run import DefinitionKind
from hookmill.domain.errors import Changed, Conflict, Fault, HookmillError, Invalid, NotFound, StoreUnavailable
from hookmill.domain.ids import WebhookUid
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.webhook import Webhook, WebhookState

if TYPE_CHECKING:
    # Only for types: importing it takes longer than checking a folder.
    from hookmill.management import DefinitionAct, Management


BACKTEST_SECONDS: Final = 20.0
"""How long the filters of all files are tested: a client waits for the result."""


class ConsentNeeded(Conflict):
    """The plan removes what can't be restored, and the caller did not allow that. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    plan: Plan
    webhooks: tuple[Webhook, ...]
    """The factory's webhooks after the apply, with their uids."""


def validated_definitions(folder: Path, *, contract_only: bool = False) -> Definitions:
    """The definitions in a folder, checked without a factory. Raises `UnusableDefinitions`.

    With `contract_only`, everything that the contract does not have is a problem, too.
    """
    definitions = require_usable(read_folder(folder))
    if contract_only and (problems := problems_beyond_contract(definitions)):
        raise UnusableDefinitions(problems)
    return definitions


def definitions_for(management: Management, may: MayManage, files: Files) -> Definitions:
    """The definitions in the files, with their problems. The factory's uids improve some error texts."""
    uid_by_name = {webhook.name: webhook.uid for webhook in management.webhooks.all(may)}
    return read_definitions(files, uid_by_name)


def state_of(management: Management, may: MayManage) -> State:
    """The present state of the factory."""
    secrets = management.secrets.all(may)
    return State(
        factory_name=may.factory.name,
        defined_by_files=may.factory.defined_by_files,
        webhooks=tuple(management.webhooks.all(may, with_deleted=True)),
        automations=tuple(management.automations.all(may)),
        has_value_by_secret_name={secret.name: secret.has_value for secret in secrets},
        own_secret_names=tuple(
            secret.name for secret in secrets if not secret.for_runs and (secret.created_here or secret.used_by)
        ),
        default_runner=management.config.default_runner,
    )


def plan(management: Management, may: MayManage, definitions: Definitions) -> Plan:
    """The plan that `apply` would perform now. Raises `UnusableDefinitions` with all problems.

    Changes no webhook and no automation, but records the plan for the factory's page.
    """
    from hookmill.management import DefinitionAct

    with _recording_refusal(management, may, DefinitionAct.PLAN), management.rehearsing(may):
        new_plan = _plan_and_apply_steps(management, may, definitions)
    # On a full disk, planning still works, but the plan can't be recorded.
    with suppress(StoreUnavailable):
        _record_success(management, may, DefinitionAct.PLAN, new_plan)
    return new_plan


def apply(
    management: Management,
    may: MayManage,
    definitions: Definitions,
    *,
    may_delete: bool = False,
    expected_digest: str | None = None,
) -> ApplyResult:
    """Change the factory to match the files, all or nothing. From then on only files can change it.

    Raises `UnusableDefinitions`; without `may_delete`, `ConsentNeeded` for what can't be restored; and `Changed` if the
    plan is not the one with `expected_digest`.
    """
    from hookmill.management import DefinitionAct

    with _recording_refusal(management, may, DefinitionAct.APPLY), management.one_transaction(may):
        applied_plan = _plan_and_apply_steps(management, may, definitions)
        if expected_digest not in (None, applied_plan.digest):
            raise Changed("The factory has changed since this was planned. Nothing was changed. Plan again.")
        if applied_plan.consent_reason is not None and not may_delete:
            raise ConsentNeeded(applied_plan.consent_reason)
        management.factories.define_by_files(may)
        webhooks = tuple(management.webhooks.all(may))
        _record_success(management, may, DefinitionAct.APPLY, applied_plan)
    return ApplyResult(applied_plan, webhooks)


@contextmanager
def _recording_refusal(management: Management, may: MayManage, action: DefinitionAct) -> Iterator[None]:
    """Record a refusal of the files, and raise it again. The factory's page shows the problems."""
    from hookmill.management import DefinitionOutcome

    try:
        yield
    except (UnusableDefinitions, ConsentNeeded) as error:
        problems = [str(problem) for problem in error.problems] if isinstance(error, UnusableDefinitions) else []
        summary = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}." if problems else str(error)
        with suppress(StoreUnavailable):
            management.definition_runs.store(may, action, DefinitionOutcome.REFUSED, summary, problems)
        raise


def _record_success(management: Management, may: MayManage, action: DefinitionAct, plan: Plan) -> None:
    from hookmill.management import DefinitionOutcome

    management.definition_runs.store(may, action, DefinitionOutcome.DONE, summary_of(plan), lines_of_plan(plan))


def backtest(
    management: Management, may: MayView, definitions: Definitions, *, seconds: float = BACKTEST_SECONDS
) -> list[Problem]:
    """Test every trigger with conditions on the last stored deliveries of its webhooks. Returns warnings about them.

    After `seconds`, the others are not tested, which is a warning, too.
    """
    live_uids = {webhook.uid for webhook in management.webhooks.all(may) if webhook.state is not WebhookState.DELETED}
    deadline = time.monotonic() + seconds
    warnings: list[Problem] = []
    filters = filters_to_backtest(definitions)
    for number, (automation, trigger_index, conditions) in enumerate(filters):
        if time.monotonic() > deadline:
            message = (
                f"Of {len(filters)} filters, {len(filters) - number} were not tested, from here on: it took too long."
            )
            warnings.append(automation.problem("/triggers", message))
            break
        uids = [uid for uid in conditions.webhook_ids if uid in live_uids]
        if not uids:
            continue
        result = management.filters.backtest(may, conditions, webhooks=uids, last=APPLY_BACKTEST_DELIVERIES)
        matched_count = len(result.matching)
        tested_count = matched_count + len(result.others)
        warning = backtest_warning(automation, trigger_index, conditions, matched_count, tested_count)
        warnings += [warning] if warning is not None else []
    return warnings


def _plan_and_apply_steps(management: Management, may: MayManage, definitions: Definitions) -> Plan:
    """Plan, and apply the steps in the open transaction. Raises `UnusableDefinitions` with all problems."""
    state = state_of(management, may)
    new_plan = plan_of(definitions, state)
    problems = list(new_plan.problems)
    # If a file can't be read, the plan contains the removal of its webhook. So no step is applied.
    if not definitions.problems:
        files_with_problems = {problem.file for problem in problems}
        automations: dict[str | None, Automation] = {automation.id: automation for automation in state.automations}
        uids: dict[WebhookUid, str] = {}
        for step in new_plan.steps:
            if not uids and isinstance(step.definition, AutomationDefinition):
                # All webhooks that files name exist now: automations are the last steps.
                uids = {new_uid(webhook.name): webhook.uid for webhook in management.webhooks.all(may)}
            if step.definition is None or step.definition.file not in files_with_problems:
                problems += _apply_step(management, may, step, automations.get(step.id), uids)
    if problems:
        raise UnusableDefinitions(problems)
    return new_plan


def _apply_step(
    management: Management,
    may: MayManage,
    step: Step,
    existing: Automation | None,
    uids: Mapping[WebhookUid, str],
) -> list[Problem]:
    """Apply one step. An error of an operation becomes a problem at its place in the file.

    `existing`: the automation that it changes. `uids`: what replaces those of `new_uid`.
    """
    try:
        match step.kind, step.action:
            case DefinitionKind.WEBHOOK, PlannedAction.REMOVE:
                management.webhooks.delete(may, str(step.id))
            case DefinitionKind.AUTOMATION, PlannedAction.REMOVE:
                management.automations.delete(may, str(step.id))
            case DefinitionKind.WEBHOOK, _:
                _apply_webhook(management, may, step)
            case DefinitionKind.AUTOMATION, _:
                _apply_automation(management, may, step, existing, uids)
    except (Invalid, Conflict, NotFound) as error:
        return _problems_of(step, error)
    return []


def _apply_webhook(management: Management, may: MayManage, step: Step) -> None:
    definition = step.definition
    assert isinstance(definition, WebhookDefinition), "a step that creates or changes has a definition"
    if step.action is PlannedAction.CREATE:
        management.webhooks.create(may, definition.spec.as_json())
        return
    uid = str(step.id)
    changes = {WEBHOOK_FIELDS[change.key]: change.after for change in step.changes if change.key in WEBHOOK_FIELDS}
    management.webhooks.change(may, uid, changes)
    if any(change.key == SYNC_CHANGE for change in step.changes):
        management.webhooks.sync(may, uid)


def _apply_automation(
    management: Management, may: MayManage, step: Step, existing: Automation | None, uids: Mapping[WebhookUid, str]
) -> None:
    definition = step.definition
    assert isinstance(definition, AutomationDefinition), "a step that creates or changes has a definition"
    spec = with_webhook_ids(applied_spec(definition, existing, management.config.default_runner), uids)
    if existing is None:
        management.automations.create(may, spec)
    else:
        management.automations.redefine(may, existing.id, spec)


def _problems_of(step: Step, error: HookmillError) -> list[Problem]:
    definition = step.definition
    if definition is None:
        raise error
    faults = error.faults if isinstance(error, Invalid) else ()
    if not faults:
        faults = (Fault(error.pointer if isinstance(error, Conflict) else "", str(error)),)
    if step.kind is DefinitionKind.WEBHOOK:
        faults = tuple(map(fault_in_file, faults))
    return [definition.problem(fault.pointer, fault.message) for fault in faults]


def require_usable(files: Files) -> Definitions:
    """The definitions in the files, without a factory. Raises `UnusableDefinitions`."""
    definitions = read_definitions(files)
    if definitions.problems:
        raise UnusableDefinitions(definitions.problems)
    return definitions


def changes_no_definition(plan: Plan) -> bool:
    """Whether no step of the plan does more than make a webhook use the newest value of its secret."""
    steps = [
        replace(step, changes=tuple(change for change in step.changes if change.key != SYNC_CHANGE))
        for step in plan.steps
    ]
    return all(step.action is PlannedAction.CHANGE and not step.changes for step in steps)
