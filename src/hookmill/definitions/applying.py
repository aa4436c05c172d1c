"""Planning and applying, on a factory. A plan is proven by taking its steps and undoing them, so that what it says can
be done is what apply does: all of it in one transaction, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hookmill.definitions.folder import read_folder
from hookmill.definitions.keys import WebhookKey
from hookmill.definitions.planning import (
    BACKTESTED,
    SYNC,
    Act,
    Kind,
    Plan,
    State,
    Step,
    filters_to_try,
    plan_of,
    warning_of,
)
from hookmill.definitions.problem import Problem, UnusableDefinitions
from hookmill.definitions.reading import AutomationDefinition, Definitions, WebhookDefinition, beyond_contract, read
from hookmill.definitions.telling import lines_of_plan, summary_of
from hookmill.domain.errors import Conflict, HookmillError, Invalid, NotFound, StoreUnavailable
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.webhook import Webhook, WebhookState

if TYPE_CHECKING:
    # What stands behind it takes longer to import than a folder takes to be checked.
    from hookmill.management import DefinitionAct, Management


class ConsentNeeded(Conflict):
    """What would be removed can't be brought back, and nobody agreed to that. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Applied:
    plan: Plan
    webhooks: tuple[Webhook, ...]
    """The factory's webhooks as they are now, with their uids."""


def validated(folder: Path, *, contract_only: bool = False) -> Definitions:
    """The definitions in a folder, without looking at any factory. Raises `UnusableDefinitions`.

    With `contract_only`, filters that use other operators than the contract's are problems too.
    """
    definitions = _usable(read(read_folder(folder)))
    if contract_only and (problems := beyond_contract(definitions)):
        raise UnusableDefinitions(problems)
    return definitions


def definitions_for(management: Management, may: MayManage, folder: Path) -> Definitions:
    """The definitions in a folder, and what is wrong with them for this factory. Raises nothing for that."""
    uids = {webhook.name: webhook.uid for webhook in management.webhooks.all(may)}
    return read(read_folder(folder), uids)


def state_of(management: Management, may: MayManage) -> State:
    """What there is in the factory."""
    return State(
        factory_name=may.factory.name,
        defined_by_files=may.factory.defined_by_files,
        webhooks=tuple(management.webhooks.all(may, with_deleted=True)),
        automations=tuple(management.automations.all(may)),
        secrets={secret.name: secret.has_value for secret in management.secrets.all(may)},
        default_runner=management.config.default_runner,
    )


def plan(management: Management, may: MayManage, definitions: Definitions) -> Plan:
    """What `apply` would do now. Changes nothing. Raises `UnusableDefinitions` with every problem."""
    from hookmill.management import DefinitionAct

    try:
        with _refusal_noted(management, may, DefinitionAct.PLAN), management.together(may):
            raise _Undone(_taken(management, may, definitions))
    except _Undone as undone:
        # A disk that is full keeps nobody from planning.
        with suppress(StoreUnavailable):
            _note_done(management, may, DefinitionAct.PLAN, undone.plan)
        return undone.plan


def apply(management: Management, may: MayManage, definitions: Definitions, *, may_delete: bool = False) -> Applied:
    """Make the factory what the files say, and keep it theirs. All or nothing.

    Raises `UnusableDefinitions`, and `ConsentNeeded` unless `may_delete`.
    """
    from hookmill.management import DefinitionAct

    with _refusal_noted(management, may, DefinitionAct.APPLY), management.together(may):
        done = _taken(management, may, definitions)
        if done.needs_consent is not None and not may_delete:
            raise ConsentNeeded(done.needs_consent)
        management.factories.take_by_files(may)
        webhooks = tuple(management.webhooks.all(may))
        _note_done(management, may, DefinitionAct.APPLY, done)
    return Applied(done, webhooks)


@contextmanager
def _refusal_noted(management: Management, may: MayManage, act: DefinitionAct) -> Iterator[None]:
    """Keep what was wrong with the files, for those who look at the factory."""
    from hookmill.management import DefinitionOutcome

    try:
        yield
    except (UnusableDefinitions, ConsentNeeded) as error:
        problems = [str(problem) for problem in error.problems] if isinstance(error, UnusableDefinitions) else []
        summary = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}." if problems else str(error)
        with suppress(StoreUnavailable):
            management.definition_runs.note(may, act, DefinitionOutcome.REFUSED, summary, problems)
        raise


def _note_done(management: Management, may: MayManage, act: DefinitionAct, plan: Plan) -> None:
    from hookmill.management import DefinitionOutcome

    management.definition_runs.note(may, act, DefinitionOutcome.DONE, summary_of(plan), lines_of_plan(plan))


def backtest(management: Management, may: MayView, definitions: Definitions) -> Iterator[Problem | None]:
    """Try every filter on what was stored last from its webhooks: a warning for each that matches nothing of
    it. Yields once per filter, because each may take long."""
    live = {one.uid for one in management.webhooks.all(may) if one.state is not WebhookState.DELETED}
    for automation, number in filters_to_try(definitions):
        trigger = automation.triggers[number]
        uids = [uid for uid in trigger.webhook_ids if uid in live]
        if not uids:
            yield None
            continue
        tried = management.filters.backtest(
            may,
            payload_filter=trigger.payload.source if trigger.payload is not None else None,
            event_types=trigger.event_types or None,
            webhook_ids=uids,
            last=BACKTESTED,
        )
        matched = len(tried.matching)
        yield warning_of(automation, number, matched, matched + len(tried.others))


class _Undone(Exception):
    """Ends a trial: leaving the transaction by an exception undoes what was done in it."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


def _taken(management: Management, may: MayManage, definitions: Definitions) -> Plan:
    """The plan, its steps taken in the transaction under way. Raises `UnusableDefinitions` with every problem."""
    found = plan_of(definitions, state_of(management, may))
    problems = list(found.problems)
    # With a file that can't be read, its webhook would look like one that was taken away.
    if not definitions.problems:
        at_fault = {problem.file for problem in problems}
        for step in found.steps:
            if step.definition is None or step.definition.file not in at_fault:
                problems += _take(management, may, step)
    if problems:
        raise UnusableDefinitions(problems)
    return found


def _take(management: Management, may: MayManage, step: Step) -> list[Problem]:
    """Take one step. What the operations say against it is told at its place in the file."""
    try:
        match step.kind, step.act:
            case Kind.WEBHOOK, Act.REMOVE:
                management.webhooks.delete(may, str(step.id))
            case Kind.AUTOMATION, Act.REMOVE:
                management.automations.delete(may, str(step.id))
            case Kind.WEBHOOK, _:
                _take_webhook(management, may, step)
            case Kind.AUTOMATION, _:
                _take_automation(management, may, step)
    except (Invalid, Conflict, NotFound) as error:
        return _told(step, error)
    return []


def _take_webhook(management: Management, may: MayManage, step: Step) -> None:
    wanted = step.definition
    assert isinstance(wanted, WebhookDefinition), "what is made or changed is defined"
    if step.act is Act.CREATE:
        management.webhooks.create(
            may,
            wanted.name,
            auth_mode=wanted.auth_mode,
            signature_scheme=wanted.signature_scheme,
            signature_options=wanted.signature_options,
            answers_handshakes=wanted.answers_handshakes,
            secret_name=wanted.secret_name,
            delivery_id_header=wanted.delivery_id_header,
            event_header=wanted.event_header,
            enabled=wanted.enabled is not False,
        )
        return
    uid, keys = str(step.id), {change.key for change in step.changes}
    headers = {WebhookKey.DELIVERY_ID_HEADER, WebhookKey.EVENT_HEADER}
    if keys - {SYNC, WebhookKey.ENABLED} - headers:
        management.webhooks.redefine(
            may,
            uid,
            auth_mode=wanted.auth_mode,
            signature_scheme=wanted.signature_scheme,
            signature_options=wanted.signature_options,
            answers_handshakes=wanted.answers_handshakes,
            secret_name=wanted.secret_name,
            delivery_id_header=wanted.delivery_id_header,
            event_header=wanted.event_header,
        )
    elif headers & keys:
        # Unlike a redefinition, this is possible while the provider's secret is still awaited.
        management.webhooks.change(
            may, uid, delivery_id_header=wanted.delivery_id_header, event_header=wanted.event_header
        )
    if SYNC in keys:
        management.webhooks.sync(may, uid)
    if WebhookKey.ENABLED in keys:
        management.webhooks.set_enabled(may, uid, bool(wanted.enabled))


def _take_automation(management: Management, may: MayManage, step: Step) -> None:
    wanted = step.definition
    assert isinstance(wanted, AutomationDefinition), "what is made or changed is defined"
    triggers = [trigger.as_json() for trigger in wanted.triggers]
    runner = wanted.runner or management.config.default_runner
    if step.act is Act.CREATE:
        management.automations.create(
            may,
            wanted.name,
            prompt=wanted.prompt,
            triggers=triggers,
            runner=runner,
            enabled=wanted.enabled is not False,
        )
        return
    keys = {change.key for change in step.changes}
    management.automations.change(
        may,
        str(step.id),
        prompt=wanted.prompt if "prompt" in keys else None,
        triggers=triggers if "triggers" in keys else None,
        runner=runner if "runner" in keys else None,
        enabled=wanted.enabled if "enabled" in keys else None,
    )


def _told(step: Step, error: HookmillError) -> list[Problem]:
    definition = step.definition
    if definition is None:
        raise error
    if isinstance(error, Invalid) and error.faults:
        return [definition.problem(fault.pointer, fault.message) for fault in error.faults]
    # Mode, scheme and header were judged when the file was read: what is left to be unfit is the secret.
    about_secret = isinstance(error, Invalid) and step.kind is Kind.WEBHOOK
    return [definition.problem(f"/{WebhookKey.SECRET_NAME}" if about_secret else "", str(error))]


def _usable(definitions: Definitions) -> Definitions:
    if definitions.problems:
        raise UnusableDefinitions(definitions.problems)
    return definitions


def without_changes(plan: Plan) -> bool:
    """Whether the plan says that nothing is to be done, but for secrets to be taken up."""
    left = [replace(step, changes=tuple(one for one in step.changes if one.key != SYNC)) for step in plan.steps]
    return all(step.act is Act.CHANGE and not step.changes for step in left)
