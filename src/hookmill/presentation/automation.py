"""An automation as JSON, and its policy, options, schedules and state as texts for people."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Self

from msgspec import Meta

from hookmill.domain.automation import Automation, AutomationWithoutPrompt, Prompt
from hookmill.domain.moment import iso, iso_or_none, utc
from hookmill.domain.results import DeclaredResult
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_policy import Priority, RunPolicy, WhenBusy
from hookmill.domain.schedule import CatchUp, Schedule
from hookmill.domain.workspace import FULL_DEPTH, Ref, Workspace
from hookmill.presentation.view import ExactNumbersView, Timestamp, View


class NextTimeView(View, frozen=True):
    """When a schedule starts the automation next."""

    name: str
    next_at: Annotated[Timestamp | None, Meta(description="Null while the automation is disabled.")]


class AutomationInListView(AutomationWithoutPrompt, ExactNumbersView, frozen=True, kw_only=True):
    """An automation without its prompt, which may be long."""

    automation_id: str
    version: int
    pause_reason: Annotated[
        str | None, Meta(description="Why the service disabled it. Null: it is enabled, or a person disabled it.")
    ]
    next_times: Annotated[list[NextTimeView], Meta(description="When each schedule starts it next.")]
    created_at: Timestamp
    updated_at: Timestamp
    warnings: Annotated[list[str], Meta(description="Why it might not start runs even while it is enabled.")]

    @classmethod
    def of(cls, automation: Automation, warnings: Sequence[str], next_times: Mapping[str, int | None]) -> Self:
        return cls(
            **{
                name: getattr(automation, name)
                for name in (*AutomationWithoutPrompt.__struct_fields__, "version", "pause_reason")
            },
            automation_id=automation.id,
            next_times=[
                NextTimeView(name=schedule.name, next_at=iso_or_none(next_times.get(schedule.name)))
                for schedule in automation.schedules
            ],
            created_at=iso(automation.created_at),
            updated_at=iso(automation.updated_at),
            warnings=list(warnings),
        )


class AutomationView(AutomationInListView, frozen=True, kw_only=True):
    prompt: Prompt

    @classmethod
    def of(cls, automation: Automation, warnings: Sequence[str], next_times: Mapping[str, int | None]) -> Self:
        return AutomationInListView.of(automation, warnings, next_times).extended(cls, prompt=automation.prompt)


def schedule_text(schedule: Schedule, next_at: int | None) -> str:
    """A schedule for people, with its next time in µs since 1970 unless that is None."""
    catch_up_text = "" if schedule.catch_up is CatchUp.ONCE else ", skips missed times"
    next_text = f"; next {utc(next_at)} UTC" if next_at is not None else ""
    return f"{schedule.cron} ({schedule.timezone}{catch_up_text}){next_text}"


def option_lines(options: RunOptions) -> list[tuple[str, str]]:
    """The run options that differ from the default, for people, each with its label."""
    lines = _policy_lines(options)
    lines += [
        ("Field", f"{name}: {field.pointer}, strings up to {field.max_characters:,} characters")
        for name, field in options.run_fields.items()
    ]
    if options.secrets:
        lines.append(("Secrets", ", ".join(options.secrets)))
    if (workspace := options.workspace) is not None:
        lines.append(("Workspace", _workspace_text(workspace)))
    lines += [("Result", _result_text(result)) for result in options.results]
    return lines


def _policy_lines(policy: RunPolicy) -> list[tuple[str, str]]:
    lines = []
    if (concurrency := policy.concurrency) is not None:
        limit_text = "1 active run" if concurrency.limit == 1 else f"{concurrency.limit} active runs"
        key_text = f" for each {' and '.join(concurrency.key)}" if concurrency.key else ""
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


def _workspace_text(workspace: Workspace) -> str:
    ref_text = _ref_text(workspace.ref) if workspace.ref is not None else "the default branch"
    base_text = f", compared with {_ref_text(workspace.base)}" if workspace.base is not None else ""
    depth_text = {FULL_DEPTH: "the whole history", 1: "1 commit"}.get(
        workspace.commits, f"{workspace.commits:,} commits"
    )
    if workspace.base is not None and workspace.commits != FULL_DEPTH:
        depth_text = f"at least {depth_text}"
    return f"{workspace.repository}: {ref_text}{base_text}, with {depth_text}"


def _ref_text(ref: Ref) -> str:
    return ref if isinstance(ref, str) else f"the ref at {ref.pointer} in the payload"


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
