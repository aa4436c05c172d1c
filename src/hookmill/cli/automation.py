"""`hookmill automation`: prompts, and the deliveries and schedules that start their runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hookmill.cli import inputs, options
from hookmill.cli.automation_options import (
    PromptOptions,
    RunOptionChanges,
    RunOptionGroup,
    TriggerChanges,
    TriggerOptions,
    without_none,
)
from hookmill.cli.option_groups import with_option_groups
from hookmill.cli.output import (
    Column,
    command_line,
    confirm,
    json_line,
    print_error,
    print_fields,
    print_json,
    print_line,
    print_table,
    utc_with_zone,
)
from hookmill.cli.session import factory_session
from hookmill.domain.automation import TRIGGERS_PART, Automation, AutomationSpec, DeliveryFilter
from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.ids import WebhookUid, run_id
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.domain.spec import read
from hookmill.domain.text import shown, shown_lines
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.presentation.automation import (
    AutomationInListView,
    AutomationView,
    option_lines,
    schedule_text,
    state_text,
)
from hookmill.presentation.run import RunView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.cli.session import FactorySession

commands = typer.Typer(no_args_is_help=True, help="Automations: prompts that deliveries and schedules start.")

AutomationArgument = Annotated[
    str, typer.Argument(metavar="AUTOMATION", help="The automation's name or id.", show_default=False)
]
Runner = Annotated[
    str | None, typer.Option("--runner", metavar="RUNNER", help="The configured runner that performs its runs.")
]


@commands.command()
@with_option_groups
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, unique in the factory.", show_default=False)],
    prompt: PromptOptions,
    trigger: TriggerOptions,
    run_options: RunOptionGroup,
    runner: Runner = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Create it disabled.")] = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Create an automation. Matching deliveries and its schedules start runs."""
    inputs.require_exactly_one(prompt=prompt.prompt, prompt_file=prompt.prompt_file)
    inputs.require_at_least_one(webhook=trigger.webhook, schedule=trigger.schedule, triggers_file=trigger.triggers_file)
    triggers = trigger.read_triggers()
    schedules = trigger.schedule_triggers()
    if not trigger.webhook and triggers is None:
        _refuse_conditions_without_webhook(
            filter=trigger.filter_json, filter_file=trigger.filter_file, event=trigger.event or None
        )
    payload_filter = trigger.read_filter()
    prompt_text = prompt.read()
    assert prompt_text is not None, "one of the two options has a value"
    fields = run_options.changes()
    with factory_session(factory) as session:
        if triggers is None:
            conditions = _conditions(session, trigger, payload_filter)
            triggers = [*([_webhook_trigger(conditions)] if trigger.webhook else []), *schedules]
        fields |= {
            "name": name,
            "prompt": prompt_text,
            "triggers": triggers,
            "runner": runner,
            "enabled": not disabled,
        }
        automation = session.management.automations.create(session.may, read(AutomationSpec, fields))
        view = _view(session, automation)
    if json:
        print_json(view)
        return
    state = "enabled" if automation.enabled else "disabled"
    print_line(f"Automation {shown(automation.name)} ({automation.id}) is ready and {state}.")
    _print_warnings(view.warnings)


@commands.command("list")
def list_automations(factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """List the automations, with what starts them."""
    with factory_session(factory) as session:
        automations = session.management.automations.all(session.may)
        next_times = session.management.automations.next_times(session.may)
        webhooks_by_uid = _webhooks_by_uid(session)
        if json:
            warnings_of = session.management.automations.warnings
            print_json(
                {
                    "items": [
                        AutomationInListView.of(
                            automation, warnings_of(session.may, automation), next_times.get(automation.id, {})
                        )
                        for automation in automations
                    ]
                }
            )
            return
    if not automations:
        create_command = command_line("automation create NAME --prompt TEXT --webhook WEBHOOK", factory)
        print_line(f"Factory {shown(factory)} has no automations yet. Create one: {create_command}")
        return
    print_table(
        [Column("NAME"), Column("STATE", no_wrap=True), Column("RUNNER"), Column("STARTED BY")],
        [
            (
                automation.name,
                state_text(automation),
                automation.runner
                + ("" if automation.runner in session.management.config.runner_names else " (missing)"),
                ", ".join(_starters(automation, webhooks_by_uid)),
            )
            for automation in automations
        ],
    )


@commands.command()
def show(
    name_or_id: AutomationArgument, factory: options.FactoryName = "default", json: options.AsJson = False
) -> None:
    """Show one automation. Warnings say what keeps it from starting runs."""
    with factory_session(factory) as session:
        automation = session.management.automations.get(session.may, name_or_id)
        warnings = session.management.automations.warnings(session.may, automation)
        next_times = session.management.automations.next_times_of(session.may, automation)
        webhooks_by_uid = _webhooks_by_uid(session)
    if json:
        print_json(AutomationView.of(automation, warnings, next_times))
        return
    pairs = [
        ("Automation", shown(automation.name)),
        ("ID", automation.id),
        ("State", state_text(automation)),
        *([("Reason", automation.pause_reason)] if automation.pause_reason is not None else []),
        ("Runner", automation.runner),
        *((label, shown(text)) for label, text in option_lines(automation)),
        ("Version", f"{automation.version} (since {utc_with_zone(automation.updated_at)})"),
    ]
    for each in automation.filters:
        pairs.append(("Trigger", ", ".join(shown(_webhook_label(uid, webhooks_by_uid)) for uid in each.webhook_ids)))
        if each.event:
            pairs.append(("  events", ", ".join(map(shown, each.event))))
        pairs.append(("  filter", json_line(each.payload.source) if each.payload else _no_filter_text(each)))
    pairs += [
        ("Schedule", f"{shown(schedule.name)}: {schedule_text(schedule, next_times.get(schedule.name))}")
        for schedule in automation.schedules
    ]
    print_fields(pairs)
    print_line()
    print_line(shown_lines(automation.prompt))
    _print_warnings(warnings)


@commands.command()
@with_option_groups
def change(
    name_or_id: AutomationArgument,
    prompt: PromptOptions,
    trigger: TriggerChanges,
    run_options: RunOptionChanges,
    new_name: Annotated[str | None, typer.Option("--name", metavar="NEW", help="The new name.")] = None,
    runner: Runner = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Change an automation. Omitted options keep their values; unfinished runs keep their version."""
    trigger.refuse_contradictions()
    schedules = trigger.schedule_triggers()
    prompt_text = prompt.read()
    payload_filter = trigger.read_filter()
    triggers = trigger.read_triggers()
    fields = {"name": new_name, "prompt": prompt_text, "triggers": triggers, "runner": runner}
    patch = without_none(fields) | run_options.changes()
    changes_schedules = bool(schedules) or trigger.no_schedule
    changes_trigger = (
        bool(trigger.webhook or trigger.event) or payload_filter is not None or trigger.no_filter or trigger.any_event
    )
    if not patch and not changes_trigger and not changes_schedules:
        raise typer.BadParameter(
            "give at least one change: --name, --prompt, --webhook, --filter, --event, --schedule, --runner or another "
            "option"
        )
    # One transaction: nobody may change the automation between reading it and changing a part of it.
    with factory_session(factory) as session, session.management.one_transaction(session.may):
        before = session.management.automations.get(session.may, name_or_id)
        if changes_trigger or changes_schedules:
            if TRIGGERS_PART in before.unreadable_parts:
                raise Conflict(f"The triggers of {before.name!r} can't be read. {_REPLACE_ALL_TRIGGERS}")
            removed = {"payload": trigger.no_filter, "event": trigger.any_event}
            changes = _conditions(session, trigger, payload_filter) | {
                name: None for name, is_removed in removed.items() if is_removed
            }
            present = before.spec.as_json()["triggers"]
            webhook_triggers = [each for each in present if each["provider"] == "webhook"]
            kept_schedules = [each for each in present if each["provider"] == "schedule" and not trigger.no_schedule]
            patch["triggers"] = [
                *([_changed_trigger(before, webhook_triggers, changes)] if changes_trigger else webhook_triggers),
                *(schedules or kept_schedules),
            ]
        if patch.get("fields"):
            patch["fields"] = dict.fromkeys(before.fields) | patch["fields"]
        automation = session.management.automations.change(session.may, before.id, patch)
        view = _view(session, automation)
    if json:
        print_json(view)
        return
    disabled_note = "" if automation.enabled else " It is disabled."
    print_line(
        f"Automation {shown(automation.name)} ({automation.id}) is now at version {automation.version}.{disabled_note}"
    )
    _print_warnings(view.warnings)


@commands.command()
def enable(
    name_or_id: AutomationArgument, factory: options.FactoryName = "default", json: options.AsJson = False
) -> None:
    """Enable an automation. Matching deliveries and its schedules start it again."""
    _set_enabled(name_or_id, factory, json, enabled=True)


@commands.command()
def disable(
    name_or_id: AutomationArgument, factory: options.FactoryName = "default", json: options.AsJson = False
) -> None:
    """Disable an automation. It starts no new runs; unfinished runs continue."""
    _set_enabled(name_or_id, factory, json, enabled=False)


@commands.command()
def delete(
    name_or_id: AutomationArgument,
    yes: options.Yes = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Delete an automation. Its runs stay, and unfinished runs continue."""
    with factory_session(factory) as session:
        automation = session.management.automations.get(session.may, name_or_id)
        # A deleted automation can be created again, a deleted webhook's URL can't. So scripts need no --yes here.
        if not (yes or json) and sys.stdin.isatty():
            confirm(f"Delete automation {automation.name}?")
        session.management.automations.delete(session.may, automation.id)
    if json:
        print_json(plain(AutomationView.of(automation, (), {})) | {"enabled": False, "deleted": True})
        return
    print_line(f"Automation {shown(automation.name)} ({automation.id}) is deleted. It no longer starts runs.")


@commands.command("run")
def run_automation(
    name_or_id: AutomationArgument,
    payload: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file with the run's payload, which is JSON; - for standard input."),
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Start a run now, without a delivery."""
    body = inputs.read_bytes(payload, "The payload", BODY_BYTES_MAX) if payload is not None else None
    with factory_session(factory) as session:
        run = session.management.automations.start_run(session.may, name_or_id, body)
    if json:
        print_json(RunView.of(run))
        return
    show_command = command_line(f"run show {run_id(run.id)}", factory)
    print_line(f"Run {run_id(run.id)} of {shown(run.automation_name)} is queued. To see its state: {show_command}")


def _set_enabled(name_or_id: str, factory: str, json: bool, *, enabled: bool) -> None:
    with factory_session(factory) as session:
        automation = session.management.automations.set_enabled(session.may, name_or_id, enabled)
        view = _view(session, automation)
    if json:
        print_json(view)
        return
    effect = "Its triggers start runs." if enabled else "It starts no new runs; unfinished runs continue."
    print_line(f"Automation {shown(automation.name)} ({automation.id}) is {state_text(automation)}. {effect}")
    if enabled:
        _print_warnings(view.warnings)


def _view(session: FactorySession, automation: Automation) -> AutomationView:
    return AutomationView.of(
        automation,
        session.management.automations.warnings(session.may, automation),
        session.management.automations.next_times_of(session.may, automation),
    )


def _conditions(session: FactorySession, trigger: TriggerOptions, payload_filter: Any) -> dict[str, Any]:
    """The filter of a trigger that the options set."""
    uids = [_uid(session, name_or_uid) for name_or_uid in trigger.webhook or ()]
    return without_none({"webhook_ids": uids or None, "event": trigger.event or None, "payload": payload_filter})


def _webhook_trigger(trigger_filter: dict[str, Any]) -> dict[str, Any]:
    return {"provider": "webhook", "event": "received", "filter": trigger_filter}


def _refuse_conditions_without_webhook(**conditions: object) -> None:
    for option, value in conditions.items():
        if value is not None:
            raise typer.BadParameter(f"--{option.replace('_', '-')} needs --webhook")


def _starters(automation: Automation, webhooks_by_uid: Mapping[WebhookUid, Webhook]) -> list[str]:
    """The webhooks and schedules that start the automation, for a list."""
    return [
        *(_webhook_label(uid, webhooks_by_uid) for uid in sorted(automation.selected_webhook_uids())),
        *(f"schedule {schedule.name}" for schedule in automation.schedules),
    ]


def _no_filter_text(conditions: DeliveryFilter) -> str:
    return "none: every delivery" if conditions.matches_every_delivery else "none: every payload of these events"


_REPLACE_ALL_TRIGGERS: Final = (
    "Replace all of them with --triggers-file FILE; `automation show --json` prints the present list."
)


def _changed_trigger(
    automation: Automation, present: Sequence[dict[str, Any]], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The only one of the present webhook triggers after the changes. A change to None removes that condition."""
    if not present and "webhook_ids" in changes:
        return _webhook_trigger(without_none(changes))
    if not present:
        raise Conflict(f"Automation {automation.name!r} has no webhook trigger. Add one with --webhook.")
    if len(present) > 1:
        raise Conflict(
            f"Automation {automation.name!r} has {len(present)} triggers, but these options change a "
            f"single trigger. {_REPLACE_ALL_TRIGGERS}"
        )
    return _webhook_trigger(without_none(present[0]["filter"] | changes))


def _uid(session: FactorySession, name_or_uid: str) -> str:
    """The uid of the webhook with this name or uid. An unknown uid is returned too: it causes only a warning."""
    try:
        return session.management.webhooks.get(session.may, name_or_uid).uid
    except NotFound:
        if name_or_uid.startswith("wh_"):
            return name_or_uid
        raise


def _webhooks_by_uid(session: FactorySession) -> dict[WebhookUid, Webhook]:
    return {webhook.uid: webhook for webhook in session.management.webhooks.all(session.may, with_deleted=True)}


def _webhook_label(uid: WebhookUid, webhooks_by_uid: Mapping[WebhookUid, Webhook]) -> str:
    webhook = webhooks_by_uid.get(uid)
    if webhook is None:
        return f"{uid} (unknown)"
    return webhook.name if webhook.state is WebhookState.ENABLED else f"{webhook.name} ({webhook.state.value})"


def _print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print_error(f"Warning: {warning}")
