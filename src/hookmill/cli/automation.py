"""`hookmill automation`: prompts, and the deliveries and schedules that start their runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hookmill.cli import inputs, options
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
    utc,
)
from hookmill.cli.session import factory_session
from hookmill.domain.automation import TRIGGER_EVENT, TRIGGER_PROVIDER, Automation, Trigger, schedule_trigger
from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.ids import WebhookUid, run_id
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.domain.results import json_of_text
from hookmill.domain.run_policy import NO_POLICY, Priority, RunPolicy, WhenBusy
from hookmill.domain.schedule import CatchUp
from hookmill.domain.text import shown, shown_lines
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.presentation.automation import (
    AutomationInListView,
    AutomationView,
    option_lines,
    policy_lines,
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
PromptText = Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="What a run should do.")]
PromptFile = Annotated[
    str | None, typer.Option("--prompt-file", metavar="FILE", help="A file with the prompt; - for standard input.")
]
FilterJson = Annotated[
    str | None, typer.Option("--filter", metavar="JSON", help="Only deliveries whose payload matches this filter.")
]
Runner = Annotated[
    str | None, typer.Option("--runner", metavar="RUNNER", help="The configured runner that performs its runs.")
]
TriggersFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A file with all triggers: the list that `automation show --json` prints."),
]


Schedules = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        metavar="NAME=CRON",
        help="A schedule that starts it, such as 'nightly=0 3 * * *', 'nightly=@daily' or 'poll=@every 30m'. May be "
        "repeated.",
    ),
]
NewSchedules = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        metavar="NAME=CRON",
        help="A schedule that starts it, such as 'nightly=0 3 * * *', replacing the previous ones and their time zone. "
        "May be repeated.",
    ),
]
Timezone = Annotated[
    str | None,
    typer.Option(
        "--timezone", metavar="ZONE", help="The time zone of the schedules, such as Europe/Berlin. Default: UTC."
    ),
]
CatchUpOption = Annotated[
    CatchUp | None,
    typer.Option("--catch-up", help="What happens to times that were missed: one run, or none. Default: once."),
]
ConcurrencyKey = Annotated[
    list[str] | None,
    typer.Option(
        metavar="POINTER",
        help="A JSON pointer such as /pull_request/number: the limit applies to runs with equal values. May be "
        "repeated.",
    ),
]
ConcurrencyLimit = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        help="At most N active runs, performed or ready to be; for each key if there is one.",
    ),
]
WhenBusyOption = Annotated[
    WhenBusy | None, typer.Option("--when-busy", help="What happens to a new run while N are active.")
]
DebounceSeconds = Annotated[
    int | None,
    typer.Option("--debounce", metavar="SECONDS", help="Start the run of the newest delivery after this quiet time."),
]
DebounceMaxSeconds = Annotated[
    int | None,
    typer.Option(metavar="SECONDS", help="The longest time after the first delivery. Default: ten times --debounce."),
]
RetryAttempts = Annotated[
    int | None, typer.Option("--retry", metavar="N", help="Try a run again until N attempts have failed.")
]
RetryBackoff = Annotated[
    int | None,
    typer.Option(metavar="SECONDS", help="The time before the second attempt. It doubles each time. Default: 30."),
]
RetryMaxBackoff = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="The longest time between two attempts. Default: 3600.")
]
RetryExitCodes = Annotated[
    list[int] | None,
    typer.Option("--retry-exit-code", metavar="CODE", help="Only retry this exit code. May be repeated."),
]
PriorityOption = Annotated[
    Priority | None, typer.Option("--priority", help="The order in which the factory's runs start.")
]
MaxRunning = Annotated[
    int | None, typer.Option(metavar="N", help="Workers perform at most N of its runs at the same time.")
]
FieldPointers = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="NAME=POINTER",
        help="A value of the payload for envelope.json, such as pr=/pull_request/number. May be repeated.",
    ),
]
NewFieldPointers = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="NAME=POINTER",
        help="A value of the payload for envelope.json, such as pr=/pull_request/number, replacing the previous "
        "fields. May be repeated.",
    ),
]
FieldMaxCharacters = Annotated[
    list[str] | None,
    typer.Option(
        "--field-max",
        metavar="NAME=N",
        help="Cut the strings of this field after N characters instead of 200. May be repeated.",
    ),
]
RunSecrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="[VARIABLE=]NAME",
        help="A secret that its runs get as an environment variable, such as GH_TOKEN. May be repeated.",
    ),
]
NewRunSecrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="[VARIABLE=]NAME",
        help="A secret that its runs get as an environment variable, replacing the previous ones. May be repeated.",
    ),
]
WorkspaceRepository = Annotated[
    str | None,
    typer.Option(
        "--workspace", metavar="REPOSITORY", help="Each run gets a checkout of this repository of the settings."
    ),
]
WorkspaceRef = Annotated[
    str | None,
    typer.Option(metavar="REF", help="The commit id, branch or tag of the checkout. Default: the default branch."),
]
WorkspaceRefFrom = Annotated[
    str | None,
    typer.Option(metavar="POINTER", help="The JSON pointer of the ref in the payload, such as /pull_request/head/sha."),
]
WorkspaceBase = Annotated[
    str | None,
    typer.Option(metavar="REF", help="A commit id, branch or tag with which commands can compare the checkout."),
]
WorkspaceBaseFrom = Annotated[
    str | None,
    typer.Option(
        metavar="POINTER", help="The JSON pointer of the base in the payload, such as /pull_request/base/ref."
    ),
]
WorkspaceDepth = Annotated[
    str | None, typer.Option(metavar="N", help="How many commits of the history it has, or full. Default: 1.")
]
DeclaredResults = Annotated[
    list[str] | None,
    typer.Option(
        "--result",
        metavar="KIND=DESTINATION",
        help="What a worker delivers about each run, such as github_comment=github, or github_status=github=CONTEXT. "
        "May be repeated.",
    ),
]
PauseAfterFailures = Annotated[int | None, typer.Option(metavar="N", help="Disable it after N failed runs in a row.")]


@commands.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, unique in the factory.", show_default=False)],
    webhook: Annotated[
        list[str] | None,
        typer.Option(metavar="WEBHOOK", help="A webhook that starts it (name or uid). May be repeated."),
    ] = None,
    prompt: PromptText = None,
    prompt_file: PromptFile = None,
    filter_json: FilterJson = None,
    filter_file: options.FilterFile = None,
    event: options.EventTypes = None,
    schedule: Schedules = None,
    timezone: Timezone = None,
    catch_up: CatchUpOption = None,
    triggers_file: TriggersFile = None,
    runner: Runner = None,
    concurrency_key: ConcurrencyKey = None,
    concurrency: ConcurrencyLimit = None,
    when_busy: WhenBusyOption = None,
    debounce: DebounceSeconds = None,
    debounce_max: DebounceMaxSeconds = None,
    retry: RetryAttempts = None,
    retry_backoff: RetryBackoff = None,
    retry_max_backoff: RetryMaxBackoff = None,
    retry_exit_code: RetryExitCodes = None,
    priority: PriorityOption = None,
    max_running: MaxRunning = None,
    pause_after_failures: PauseAfterFailures = None,
    field: FieldPointers = None,
    field_max: FieldMaxCharacters = None,
    secret: RunSecrets = None,
    workspace: WorkspaceRepository = None,
    workspace_ref: WorkspaceRef = None,
    workspace_ref_from: WorkspaceRefFrom = None,
    workspace_base: WorkspaceBase = None,
    workspace_base_from: WorkspaceBaseFrom = None,
    workspace_depth: WorkspaceDepth = None,
    result: DeclaredResults = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Create it disabled.")] = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Create an automation. Matching deliveries and its schedules start runs."""
    inputs.require_exactly_one(prompt=prompt, prompt_file=prompt_file)
    if not schedule:
        inputs.require_exactly_one(webhook=webhook or None, triggers_file=triggers_file)
    inputs.require_at_most_one(webhook=webhook or None, triggers_file=triggers_file)
    inputs.require_at_most_one(schedule=schedule or None, triggers_file=triggers_file)
    schedules = _schedule_triggers(schedule, timezone, catch_up)
    if not webhook and triggers_file is None:
        _refuse_conditions_without_webhook(filter=filter_json, filter_file=filter_file, event=event or None)
    inputs.require_at_most_one(filter=filter_json, filter_file=filter_file, triggers_file=triggers_file)
    inputs.require_at_most_one(event=event or None, triggers_file=triggers_file)
    prompt_text = _read_prompt(prompt, prompt_file)
    assert prompt_text is not None, "one of the two options has a value"
    payload_filter = inputs.read_filter(filter_json, filter_file)
    triggers = _read_triggers(triggers_file)
    options_changes = (
        _option_changes(field, field_max)
        | ({"secrets": secret} if secret else {})
        | _workspace_changes(
            workspace, workspace_ref, workspace_ref_from, workspace_base, workspace_base_from, workspace_depth
        )
        | _result_changes(result)
    )
    policy_options = _PolicyOptions(
        concurrency_key=concurrency_key,
        concurrency=concurrency,
        when_busy=when_busy,
        debounce=debounce,
        debounce_max=debounce_max,
        retry=retry,
        retry_backoff=retry_backoff,
        retry_max_backoff=retry_max_backoff,
        retry_exit_code=retry_exit_code,
        priority=priority,
        max_running=max_running,
        pause_after_failures=pause_after_failures,
    )
    with factory_session(factory) as session:
        if triggers is None:
            trigger_filter: dict[str, Any] = {
                "webhook_ids": [_uid(session, name_or_uid) for name_or_uid in webhook or ()]
            }
            if event:
                trigger_filter["event"] = event
            if payload_filter is not None:
                trigger_filter["payload"] = payload_filter
            triggers = [*([_webhook_trigger(trigger_filter)] if webhook else []), *schedules]
        automation = session.management.automations.create(
            session.may,
            name,
            prompt=prompt_text,
            triggers=triggers,
            runner=runner,
            enabled=not disabled,
            policy=policy_options.changes(NO_POLICY),
            options=options_changes,
        )
        warnings = session.management.automations.warnings(session.may, automation)
        next_times = session.management.automations.next_times_of(session.may, automation)
    if json:
        print_json(AutomationView.of(automation, warnings, next_times))
        return
    state = "enabled" if automation.enabled else "disabled"
    print_line(f"Automation {shown(automation.name)} ({automation.id}) is ready and {state}.")
    _print_warnings(warnings)


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
                    "automations": [
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
                automation.runner,
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
        *((label, shown(text)) for label, text in policy_lines(automation.policy)),
        *((label, shown(text)) for label, text in option_lines(automation.options)),
        ("Version", f"{automation.version} (since {utc(automation.updated_at)})"),
    ]
    for trigger in automation.triggers:
        pairs.append(("Trigger", ", ".join(shown(_webhook_label(uid, webhooks_by_uid)) for uid in trigger.webhook_ids)))
        if trigger.event_types:
            pairs.append(("  events", ", ".join(map(shown, trigger.event_types))))
        pairs.append(("  filter", json_line(trigger.payload.source) if trigger.payload else _no_filter_text(trigger)))
    pairs += [
        ("Schedule", f"{shown(schedule.name)}: {schedule_text(schedule, next_times.get(schedule.name))}")
        for schedule in automation.schedules
    ]
    pairs += [
        ("Trigger", f"can't be read: {json_line(trigger.as_json())}") for trigger in automation.unreadable_triggers
    ]
    print_fields(pairs)
    print_line()
    print_line(shown_lines(automation.prompt))
    _print_warnings(warnings)


@commands.command()
def change(
    name_or_id: AutomationArgument,
    new_name: Annotated[str | None, typer.Option("--name", metavar="NEW", help="The new name.")] = None,
    prompt: PromptText = None,
    prompt_file: PromptFile = None,
    webhook: Annotated[
        list[str] | None,
        typer.Option(metavar="WEBHOOK", help="A webhook that starts it, replacing the previous ones. May be repeated."),
    ] = None,
    filter_json: FilterJson = None,
    filter_file: options.FilterFile = None,
    no_filter: Annotated[bool, typer.Option("--no-filter", help="Remove the payload filter.")] = False,
    event: options.EventTypes = None,
    any_event: Annotated[bool, typer.Option("--any-event", help="Remove the list of event types.")] = False,
    schedule: NewSchedules = None,
    timezone: Timezone = None,
    catch_up: CatchUpOption = None,
    no_schedule: Annotated[bool, typer.Option("--no-schedule", help="Remove all schedules.")] = False,
    triggers_file: TriggersFile = None,
    runner: Runner = None,
    concurrency_key: ConcurrencyKey = None,
    concurrency: ConcurrencyLimit = None,
    when_busy: WhenBusyOption = None,
    no_concurrency: Annotated[bool, typer.Option("--no-concurrency", help="Remove the limit of active runs.")] = False,
    debounce: DebounceSeconds = None,
    debounce_max: DebounceMaxSeconds = None,
    no_debounce: Annotated[bool, typer.Option("--no-debounce", help="Start runs immediately.")] = False,
    no_retry: Annotated[
        bool, typer.Option("--no-retry", help="Remove the retry rule. If the runner has one, it applies.")
    ] = False,
    retry: RetryAttempts = None,
    retry_backoff: RetryBackoff = None,
    retry_max_backoff: RetryMaxBackoff = None,
    retry_exit_code: RetryExitCodes = None,
    priority: PriorityOption = None,
    max_running: MaxRunning = None,
    no_max_running: Annotated[
        bool, typer.Option("--no-max-running", help="Remove the limit of --max-running.")
    ] = False,
    pause_after_failures: PauseAfterFailures = None,
    no_pause_after_failures: Annotated[
        bool, typer.Option("--no-pause-after-failures", help="Never disable it because of failures.")
    ] = False,
    field: NewFieldPointers = None,
    field_max: FieldMaxCharacters = None,
    no_fields: Annotated[bool, typer.Option("--no-fields", help="Remove all fields.")] = False,
    secret: NewRunSecrets = None,
    no_secrets: Annotated[bool, typer.Option("--no-secrets", help="Remove all secrets.")] = False,
    workspace: WorkspaceRepository = None,
    workspace_ref: WorkspaceRef = None,
    workspace_ref_from: WorkspaceRefFrom = None,
    workspace_base: WorkspaceBase = None,
    workspace_base_from: WorkspaceBaseFrom = None,
    workspace_depth: WorkspaceDepth = None,
    no_workspace: Annotated[bool, typer.Option("--no-workspace", help="Runs get no checkout.")] = False,
    result: DeclaredResults = None,
    no_results: Annotated[bool, typer.Option("--no-results", help="Deliver no results.")] = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Change an automation. Omitted options keep their values; unfinished runs keep their version."""
    inputs.require_at_most_one(prompt=prompt, prompt_file=prompt_file)
    inputs.require_at_most_one(
        filter=filter_json, filter_file=filter_file, no_filter=no_filter or None, triggers_file=triggers_file
    )
    inputs.require_at_most_one(webhook=webhook or None, triggers_file=triggers_file)
    inputs.require_at_most_one(event=event or None, any_event=any_event or None, triggers_file=triggers_file)
    inputs.require_at_most_one(schedule=schedule or None, no_schedule=no_schedule or None, triggers_file=triggers_file)
    inputs.require_at_most_one(field=field or None, no_fields=no_fields or None)
    inputs.require_at_most_one(secret=secret or None, no_secrets=no_secrets or None)
    inputs.require_at_most_one(workspace=workspace, no_workspace=no_workspace or None)
    inputs.require_at_most_one(result=result or None, no_results=no_results or None)
    schedules = _schedule_triggers(schedule, timezone, catch_up)
    prompt_text = _read_prompt(prompt, prompt_file)
    payload_filter = inputs.read_filter(filter_json, filter_file)
    triggers = _read_triggers(triggers_file)
    changes_trigger = bool(webhook or event) or payload_filter is not None or no_filter or any_event
    policy_options = _PolicyOptions(
        concurrency_key=concurrency_key,
        concurrency=concurrency,
        when_busy=when_busy,
        debounce=debounce,
        debounce_max=debounce_max,
        retry=retry,
        retry_backoff=retry_backoff,
        retry_max_backoff=retry_max_backoff,
        retry_exit_code=retry_exit_code,
        priority=priority,
        max_running=max_running,
        pause_after_failures=pause_after_failures,
    )
    # Only the names of the fields that have options. Their changes are computed below, from the current policy.
    changed_policy_fields = policy_options.changes(NO_POLICY).keys()
    resets = {
        "concurrency": no_concurrency,
        "debounce": no_debounce,
        "retry": no_retry,
        "max_running": no_max_running,
        "pause_after_failures": no_pause_after_failures,
    }
    for name, is_reset in resets.items():
        inputs.require_at_most_one(**{name: name in changed_policy_fields or None, f"no_{name}": is_reset or None})
    options_changes: dict[str, Any] = {"fields": None} if no_fields else _option_changes(field, field_max)
    if secret or no_secrets:
        options_changes["secrets"] = secret or None
    options_changes |= _workspace_changes(
        workspace, workspace_ref, workspace_ref_from, workspace_base, workspace_base_from, workspace_depth
    )
    if no_workspace:
        options_changes["workspace"] = None
    options_changes |= {"results": None} if no_results else _result_changes(result)
    changes_policy = bool(changed_policy_fields) or any(resets.values())
    if (
        new_name is None
        and prompt_text is None
        and triggers is None
        and runner is None
        and not changes_trigger
        and not schedules
        and not no_schedule
        and not changes_policy
        and not options_changes
    ):
        raise typer.BadParameter(
            "give at least one change: --name, --prompt, --webhook, --filter, --event, --schedule, --runner or another "
            "option"
        )
    # One transaction: nobody may change the trigger between reading it and changing a part of it.
    with factory_session(factory) as session, session.management.one_transaction(session.may):
        if changes_trigger or schedules or no_schedule:
            before = session.management.automations.get(session.may, name_or_id)
            changes: dict[str, Any] = {}
            if webhook:
                changes["webhook_ids"] = [_uid(session, name_or_uid) for name_or_uid in webhook]
            if payload_filter is not None or no_filter:
                changes["payload"] = payload_filter
            if event or any_event:
                changes["event"] = event
            present_triggers = [trigger.as_json() for trigger in before.triggers]
            kept_schedules = [] if no_schedule else [each.as_json() for each in before.schedules]
            _refuse_unreadable_triggers(before)
            triggers = [
                *([_changed_trigger(before, changes)] if changes_trigger else present_triggers),
                *(schedules or kept_schedules),
            ]
        policy: dict[str, Any] | None = None
        if changes_policy:
            current_policy = session.management.automations.get(session.may, name_or_id).policy
            policy = policy_options.changes(current_policy) | {
                name: None for name, is_reset in resets.items() if is_reset
            }
        automation = session.management.automations.change(
            session.may,
            name_or_id,
            prompt=prompt_text,
            triggers=triggers,
            runner=runner,
            new_name=new_name,
            policy=policy,
            options=options_changes,
        )
        warnings = session.management.automations.warnings(session.may, automation)
        next_times = session.management.automations.next_times_of(session.may, automation)
    if json:
        print_json(AutomationView.of(automation, warnings, next_times))
        return
    disabled_note = "" if automation.enabled else " It is disabled."
    print_line(
        f"Automation {shown(automation.name)} ({automation.id}) is now at version {automation.version}.{disabled_note}"
    )
    _print_warnings(warnings)


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
        warnings = session.management.automations.warnings(session.may, automation)
        next_times = session.management.automations.next_times_of(session.may, automation)
    if json:
        print_json(AutomationView.of(automation, warnings, next_times))
        return
    effect = "Its triggers start runs." if enabled else "It starts no new runs; unfinished runs continue."
    print_line(f"Automation {shown(automation.name)} ({automation.id}) is {state_text(automation)}. {effect}")
    if enabled:
        _print_warnings(warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PolicyOptions:
    """The options that set fields of a run policy."""

    concurrency_key: Sequence[str] | None
    concurrency: int | None
    when_busy: WhenBusy | None
    debounce: int | None
    debounce_max: int | None
    retry: int | None
    retry_backoff: int | None
    retry_max_backoff: int | None
    retry_exit_code: Sequence[int] | None
    priority: Priority | None
    max_running: int | None
    pause_after_failures: int | None

    def changes(self, current: RunPolicy) -> dict[str, Any]:
        """The changed JSON fields. Omitted options keep the current values."""
        fields = current.as_json()
        changes: dict[str, Any] = {}
        key = list(self.concurrency_key) if self.concurrency_key else None
        if concurrency := _without_none({"key": key, "limit": self.concurrency, "when_busy": self.when_busy}):
            changes["concurrency"] = fields.get("concurrency", {}) | concurrency
        if debounce := _without_none({"seconds": self.debounce, "max_seconds": self.debounce_max}):
            # A new time without its maximum gets the default maximum.
            unchanged_fields = fields.get("debounce", {}) if self.debounce is None else {}
            changes["debounce"] = unchanged_fields | debounce
        retry = _without_none(
            {
                "attempts": self.retry,
                "backoff_seconds": self.retry_backoff,
                "max_backoff_seconds": self.retry_max_backoff,
                "exit_codes": list(self.retry_exit_code) if self.retry_exit_code else None,
            }
        )
        if retry:
            changes["retry"] = fields.get("retry", {}) | retry
        if self.priority is not None:
            changes["priority"] = self.priority.value
        return changes | _without_none(
            {"max_running": self.max_running, "pause_after_failures": self.pause_after_failures}
        )


def _option_changes(fields: Sequence[str] | None, max_characters: Sequence[str] | None) -> dict[str, Any]:
    """The run options that the command's options change, as JSON fields."""
    sources: dict[str, dict[str, Any]] = {}
    for field in fields or ():
        name, separator, pointer = field.partition("=")
        if not separator or name in sources:
            raise typer.BadParameter(
                f"{shown(field[:100])!r} is not a field, or its name is a duplicate. Write NAME=POINTER, such as "
                "pr=/pull_request/number",
                param_hint="--field",
            )
        sources[name] = {"pointer": pointer}
    for maximum in max_characters or ():
        name, _, number = maximum.partition("=")
        if name not in sources or not (number.isascii() and number.isdigit() and len(number) < 10):
            raise typer.BadParameter(
                f"{shown(maximum[:100])!r} is not NAME=N with the name of a --field and a number, such as title=500",
                param_hint="--field-max",
            )
        sources[name]["max_characters"] = int(number)
    return {"fields": sources} if sources else {}


def _workspace_changes(
    repository: str | None,
    ref: str | None,
    ref_pointer: str | None,
    base: str | None,
    base_pointer: str | None,
    depth: str | None,
) -> dict[str, Any]:
    """The run option `workspace`, if the command's options change it."""
    inputs.require_at_most_one(workspace_ref=ref, workspace_ref_from=ref_pointer)
    inputs.require_at_most_one(workspace_base=base, workspace_base_from=base_pointer)
    if repository is None:
        if any(option is not None for option in (ref, ref_pointer, base, base_pointer, depth)):
            raise typer.BadParameter("The other options that begin with --workspace- need --workspace")
        return {}
    is_number = depth is not None and depth.isascii() and depth.isdigit() and len(depth) < 10
    workspace = {
        "repository": repository,
        "ref": {"pointer": ref_pointer} if ref_pointer is not None else ref,
        "base": {"pointer": base_pointer} if base_pointer is not None else base,
        "depth": int(depth) if depth is not None and is_number else depth,
    }
    return {"workspace": _without_none(workspace)}


def _result_changes(results: Sequence[str] | None) -> dict[str, Any]:
    """The results that the command's options declare, as a JSON field."""
    declared = []
    for result in results or ():
        source = json_of_text(result)
        if source is None:
            raise typer.BadParameter(
                f"{shown(result[:100])!r} is not a result. Write KIND=DESTINATION, such as github_comment=github",
                param_hint="--result",
            )
        declared.append(source)
    return {"results": declared} if declared else {}


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _read_prompt(text: str | None, path: str | None) -> str | None:
    return inputs.read_text(path, "The prompt file") if path is not None else text


def _read_triggers(path: str | None) -> Any:
    """The content of `--triggers-file`; None without that option."""
    if path is None:
        return None
    label = "The triggers file"
    return inputs.parse_json(inputs.read_text(path, label), label)


def _webhook_trigger(trigger_filter: dict[str, Any]) -> dict[str, Any]:
    return {"provider": TRIGGER_PROVIDER, "event": TRIGGER_EVENT, "filter": trigger_filter}


def _schedule_triggers(
    schedules: Sequence[str] | None, timezone: str | None, catch_up: CatchUp | None
) -> list[dict[str, Any]]:
    """The triggers of the `--schedule` options."""
    if not schedules and (timezone is not None or catch_up is not None):
        raise typer.BadParameter("--timezone and --catch-up need --schedule")
    triggers = []
    for schedule in schedules or ():
        name, separator, cron = schedule.partition("=")
        if not separator:
            raise typer.BadParameter(
                f"{shown(schedule[:100])!r} is not a schedule. Write NAME=CRON, such as 'nightly=0 3 * * *'",
                param_hint="--schedule",
            )
        fields = {"name": name, "cron": cron, "timezone": timezone, "catch_up": catch_up}
        triggers.append(schedule_trigger(_without_none(fields)).as_json())
    return triggers


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


def _no_filter_text(trigger: Trigger) -> str:
    return "none: every delivery" if trigger.matches_every_delivery else "none: every payload of these events"


def _refuse_unreadable_triggers(automation: Automation) -> None:
    if automation.unreadable_triggers:
        raise Conflict(
            f"Automation {automation.name!r} has triggers that can't be read, but these options change a single "
            f"trigger. {_REPLACE_ALL_TRIGGERS}"
        )


_REPLACE_ALL_TRIGGERS: Final = (
    "Replace all of them with --triggers-file FILE; `automation show --json` prints the present list."
)


def _changed_trigger(automation: Automation, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The automation's only webhook trigger after the changes. A change to None removes that condition."""
    if not automation.triggers and "webhook_ids" in changes:
        return _webhook_trigger(_without_none(changes))
    if not automation.triggers:
        raise Conflict(f"Automation {automation.name!r} has no webhook trigger. Add one with --webhook.")
    if len(automation.triggers) > 1:
        raise Conflict(
            f"Automation {automation.name!r} has {len(automation.triggers)} triggers, but these options change a "
            f"single trigger. {_REPLACE_ALL_TRIGGERS}"
        )
    trigger_filter = automation.triggers[0].as_json()["filter"] | changes
    return _webhook_trigger({name: condition for name, condition in trigger_filter.items() if condition is not None})


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
