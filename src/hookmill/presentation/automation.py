"""An automation as JSON, and its policy, options, schedules and state as texts for people."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Self

from msgspec import UNSET, Meta, UnsetType

from hookmill.domain.automation import Automation
from hookmill.domain.moment import iso, iso_or_none, utc
from hookmill.domain.results import DeclaredResult, ResultKind
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_policy import Priority, RunPolicy, WhenBusy
from hookmill.domain.schedule import CatchUp, Schedule
from hookmill.domain.workspace import FULL_DEPTH, Workspace
from hookmill.presentation.view import ExactNumbersView, Timestamp, View


class TriggerFilterView(View, frozen=True):
    webhook_ids: list[str]
    event: Annotated[
        list[str] | UnsetType, Meta(description="The event types that match. Omitted: every delivery matches.")
    ] = UNSET
    payload: Annotated[
        dict[str, Any] | UnsetType, Meta(description="The payload filter. Omitted: every payload matches.")
    ] = UNSET


class TriggerView(View, frozen=True):
    """Which deliveries start an automation: by webhook, event type and payload."""

    provider: Annotated[str, Meta(description="Always `webhook`.")]
    event: Annotated[str, Meta(description="Always `received`.")]
    filter: TriggerFilterView


class ScheduleFieldsView(View, frozen=True):
    name: str
    cron: Annotated[
        str,
        Meta(description="Five fields, a name such as @daily, or @every 1h.", examples=["0 3 * * *"]),
    ]
    timezone: Annotated[str | UnsetType, Meta(description="An IANA name. Omitted: UTC.")] = UNSET
    catch_up: Annotated[CatchUp | UnsetType, Meta(description="What happens to missed times. Omitted: once.")] = UNSET


class ScheduleTriggerView(View, frozen=True):
    """A schedule that starts an automation."""

    provider: Annotated[str, Meta(description="Always `schedule`.")]
    event: Annotated[str, Meta(description="Always `cron_fired`.")]
    schedule: ScheduleFieldsView


class NextTimeView(View, frozen=True):
    """When a schedule starts the automation next."""

    name: str
    next_at: Annotated[Timestamp | None, Meta(description="Null while the automation is disabled.")]


class ConcurrencyView(View, frozen=True):
    """How many runs with the same key may be active."""

    limit: int
    when_busy: Annotated[WhenBusy, Meta(description="What happens to a new run while that many are active.")]
    key: Annotated[
        list[str] | UnsetType,
        Meta(description="JSON pointers into the payload. Left out: all runs of the automation share one key."),
    ] = UNSET


class DebounceView(View, frozen=True):
    """How long the automation waits for newer deliveries before a run starts."""

    seconds: int
    max_seconds: int


class RetryView(View, frozen=True):
    """How failed attempts are retried."""

    attempts: int
    backoff_seconds: int
    max_backoff_seconds: int
    exit_codes: Annotated[list[int], Meta(description="The exit codes that are retried. Empty: every failure.")]


class FieldSourceView(View, frozen=True):
    """A value of the payload that programs find in `envelope.json`."""

    pointer: Annotated[str, Meta(description="The JSON pointer of the value.")]
    max_characters: Annotated[int, Meta(description="A longer string is cut after this many characters.")]


class WorkspaceView(View, frozen=True):
    """The checkout of a Git repository that each run gets."""

    repository: Annotated[str, Meta(description="The name of a repository in the operator's settings.")]
    ref: Annotated[str | None, Meta(description="A commit id, branch or tag. Null: see `ref_pointer`.")]
    ref_pointer: Annotated[
        str | None,
        Meta(description="The JSON pointer of the ref in the payload. If both are null: the default branch."),
    ]
    base: Annotated[
        str | None, Meta(description="A commit id, branch or tag to compare with. Null: see `base_pointer`.")
    ]
    base_pointer: Annotated[
        str | None, Meta(description="The JSON pointer of the base in the payload. If both are null: no base.")
    ]
    depth: Annotated[
        int, Meta(description="How many commits of the history it has, or more if there is a base. 0: all.")
    ]


class DeclaredResultView(View, frozen=True):
    """A result that a worker delivers about each run. A pointer is left out if the provider's usual one applies."""

    kind: ResultKind
    destination: Annotated[str, Meta(description="The name of a destination in the settings.")]
    context: Annotated[
        str | UnsetType,
        Meta(description="The name of a commit status or a check run. Left out: the automation's name."),
    ] = UNSET
    repository: Annotated[str | UnsetType, Meta(description="The JSON pointer of the repository's name.")] = UNSET
    number: Annotated[str | UnsetType, Meta(description="The JSON pointer of the number of the issue.")] = UNSET
    commit: Annotated[str | UnsetType, Meta(description="The JSON pointer of the commit's id.")] = UNSET


class AutomationInListView(ExactNumbersView, frozen=True):
    """An automation without its prompt, which may be long."""

    automation_id: str
    name: str
    enabled: bool
    version: int
    runner: str
    concurrency: ConcurrencyView | None
    debounce: DebounceView | None
    retry: Annotated[RetryView | None, Meta(description="Null: the runner's rule applies.")]
    priority: Annotated[Priority, Meta(description="The order in which the factory's runs start.")]
    max_running: Annotated[
        int | None, Meta(description="The most of its runs that workers perform at the same time. Null: no limit.")
    ]
    pause_after_failures: Annotated[
        int | None, Meta(description="It is disabled after this many failed runs in a row. Null: never.")
    ]
    fields: Annotated[
        dict[str, FieldSourceView], Meta(description="The fields of the payload in `envelope.json`, by name.")
    ]
    secrets: Annotated[
        list[str],
        Meta(description="The secrets that its runs get: `NAME`, or `VARIABLE=NAME` if the variable has another name."),
    ]
    workspace: Annotated[WorkspaceView | None, Meta(description="The checkout that each run gets. Null: none.")]
    results: Annotated[
        list[DeclaredResultView], Meta(description="What a worker delivers about each run, and to which destination.")
    ]
    pause_reason: Annotated[
        str | None, Meta(description="Why the service disabled it. Null: it is enabled, or a person disabled it.")
    ]
    triggers: list[Any]
    """Each trigger is like `TriggerView` or `ScheduleTriggerView`."""
    next_times: Annotated[list[NextTimeView], Meta(description="When each schedule starts it next.")]
    created_at: Timestamp
    updated_at: Timestamp
    warnings: Annotated[list[str], Meta(description="Why it might not start runs even while it is enabled.")]

    @classmethod
    def of(cls, automation: Automation, warnings: Sequence[str], next_times: Mapping[str, int | None]) -> Self:
        return cls(
            automation_id=automation.id,
            name=automation.name,
            enabled=automation.enabled,
            version=automation.version,
            runner=automation.runner,
            concurrency=_concurrency_view(automation),
            debounce=_debounce_view(automation),
            retry=_retry_view(automation),
            priority=automation.policy.priority,
            max_running=automation.policy.max_running,
            pause_after_failures=automation.policy.pause_after_failures,
            fields={
                field.name: FieldSourceView(pointer=field.pointer, max_characters=field.max_characters)
                for field in automation.options.fields
            },
            secrets=[secret.as_json() for secret in automation.options.secrets],
            workspace=_workspace_view(automation),
            results=[
                DeclaredResultView(
                    kind=result.kind,
                    destination=result.destination,
                    context=result.context if result.context is not None else UNSET,
                    repository=result.repository if result.repository is not None else UNSET,
                    number=result.number if result.number is not None else UNSET,
                    commit=result.commit if result.commit is not None else UNSET,
                )
                for result in automation.options.results
            ],
            pause_reason=automation.pause_reason,
            triggers=[trigger.as_json() for trigger in automation.all_triggers],
            next_times=[
                NextTimeView(name=schedule.name, next_at=iso_or_none(next_times.get(schedule.name)))
                for schedule in automation.schedules
            ],
            created_at=iso(automation.created_at),
            updated_at=iso(automation.updated_at),
            warnings=list(warnings),
        )


class AutomationView(AutomationInListView, frozen=True):
    prompt: str

    @classmethod
    def of(cls, automation: Automation, warnings: Sequence[str], next_times: Mapping[str, int | None]) -> Self:
        return AutomationInListView.of(automation, warnings, next_times).extended(cls, prompt=automation.prompt)


def schedule_text(schedule: Schedule, next_at: int | None) -> str:
    """A schedule for people, with its next time in µs since 1970 unless that is None."""
    catch_up_text = "" if schedule.catch_up is CatchUp.ONCE else ", skips missed times"
    next_text = f"; next {utc(next_at)} UTC" if next_at is not None else ""
    return f"{schedule.cron} ({schedule.timezone}{catch_up_text}){next_text}"


def policy_lines(policy: RunPolicy) -> list[tuple[str, str]]:
    """The parts of the run policy that differ from the default, for people, each with its label."""
    lines = []
    if (concurrency := policy.concurrency) is not None:
        limit_text = "1 active run" if concurrency.limit == 1 else f"{concurrency.limit} active runs"
        key_text = f" for each {' and '.join(concurrency.key_pointers)}" if concurrency.key_pointers else ""
        busy_text = _WHEN_BUSY_TEXTS[concurrency.when_busy]
        lines.append(("Concurrency", f"at most {limit_text}{key_text}; a new run {busy_text}"))
    if (debounce := policy.debounce) is not None:
        start_text = f"{debounce.seconds:,} s after the newest delivery"
        lines.append(("Debounce", f"starts {start_text}, at most {debounce.max_seconds:,} s after the first"))
    if (retry := policy.retry) is not None:
        retried_text = f"exit code {' or '.join(map(str, retry.exit_codes))}" if retry.exit_codes else "a failure"
        backoff_text = f"{retry.backoff_seconds:,} s, doubled each time up to {retry.max_backoff_seconds:,} s"
        lines.append(("Retry", f"at most {retry.attempts} attempts; {retried_text} is retried after {backoff_text}"))
    if policy.priority is not Priority.NORMAL:
        lines.append(("Priority", policy.priority.value))
    if policy.max_running is not None:
        lines.append(("Limit", f"at most {_run_count_text(policy.max_running)} at the same time"))
    if (failures := policy.pause_after_failures) is not None:
        failures_text = "a failed run" if failures == 1 else f"{failures:,} failed runs in a row"
        lines.append(("Pause", f"disabled after {failures_text}"))
    return lines


def option_lines(options: RunOptions) -> list[tuple[str, str]]:
    """The run options that differ from the default, for people, each with its label."""
    lines = [
        ("Field", f"{field.name}: {field.pointer}, strings up to {field.max_characters:,} characters")
        for field in options.fields
    ]
    if options.secrets:
        lines.append(("Secrets", ", ".join(secret.as_json() for secret in options.secrets)))
    if (workspace := options.workspace) is not None:
        lines.append(("Workspace", _workspace_text(workspace)))
    lines += [("Result", _result_text(result)) for result in options.results]
    return lines


def _workspace_text(workspace: Workspace) -> str:
    ref_text = workspace.ref or "the default branch"
    if workspace.ref_pointer is not None:
        ref_text = f"the ref at {workspace.ref_pointer} in the payload"
    base_text = f", compared with {workspace.base}" if workspace.base is not None else ""
    if workspace.base_pointer is not None:
        base_text = f", compared with the ref at {workspace.base_pointer} in the payload"
    depth_text = {FULL_DEPTH: "the whole history", 1: "1 commit"}.get(workspace.depth, f"{workspace.depth:,} commits")
    if workspace.has_base and workspace.depth != FULL_DEPTH:
        depth_text = f"at least {depth_text}"
    return f"{workspace.repository}: {ref_text}{base_text}, with {depth_text}"


def _result_text(result: DeclaredResult) -> str:
    details = {name: value for name, value in result.as_json().items() if name not in ("kind", "destination")}
    note = "".join(f", {name} {value}" for name, value in details.items())
    return f"{result.kind.value} to {result.destination}{note}"


def state_text(automation: Automation) -> str:
    """The state in one word: `enabled`, `disabled` (by a person) or `paused` (by the service)."""
    if automation.enabled:
        return "enabled"
    return "paused" if automation.pause_reason is not None else "disabled"


def _run_count_text(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


_WHEN_BUSY_TEXTS: Final = {
    WhenBusy.QUEUE: "waits",
    WhenBusy.SKIP: "is skipped",
    WhenBusy.REPLACE: "replaces the oldest",
}


def _concurrency_view(automation: Automation) -> ConcurrencyView | None:
    concurrency = automation.policy.concurrency
    if concurrency is None:
        return None
    key = list(concurrency.key_pointers) if concurrency.key_pointers else UNSET
    return ConcurrencyView(limit=concurrency.limit, when_busy=concurrency.when_busy, key=key)


def _debounce_view(automation: Automation) -> DebounceView | None:
    debounce = automation.policy.debounce
    return DebounceView(seconds=debounce.seconds, max_seconds=debounce.max_seconds) if debounce is not None else None


def _workspace_view(automation: Automation) -> WorkspaceView | None:
    workspace = automation.options.workspace
    if workspace is None:
        return None
    return WorkspaceView(
        repository=workspace.repository,
        ref=workspace.ref,
        ref_pointer=workspace.ref_pointer,
        base=workspace.base,
        base_pointer=workspace.base_pointer,
        depth=workspace.depth,
    )


def _retry_view(automation: Automation) -> RetryView | None:
    retry = automation.policy.retry
    if retry is None:
        return None
    return RetryView(
        attempts=retry.attempts,
        backoff_seconds=retry.backoff_seconds,
        max_backoff_seconds=retry.max_backoff_seconds,
        exit_codes=list(retry.exit_codes),
    )
