"""A run as JSON, and its state as text for people."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self

from msgspec import Meta

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.filters import exact_json
from hookmill.domain.ids import delivery_id, run_id
from hookmill.domain.moment import iso, iso_or_none, utc
from hookmill.domain.queue import host_and_pid
from hookmill.domain.result_message import ResultMessage
from hookmill.domain.results import ResultKind
from hookmill.domain.run import ByDelivery, ByPerson, BySchedule, FailedAttempt, Hold, Run, RunState
from hookmill.domain.run_options import NO_FIELD_VALUES, FieldValue
from hookmill.domain.run_outputs import NO_OUTPUTS, RunOutputs, SummarySource, summary_of
from hookmill.presentation.view import ExactNumbersView, Timestamp, View

_HOLD_NAMES: Final[dict[Hold, Literal["new", "busy", "debounce", "retry"]]] = {
    Hold.NEW: "new",
    Hold.BUSY: "busy",
    Hold.DEBOUNCE: "debounce",
    Hold.RETRY: "retry",
}


def run_state_text(run: Run) -> str:
    """The state for people. If the run can't start yet, it contains the reason in one word: `queued (busy)`."""
    if run.hold is None or run.state.is_final:
        return run.state.value
    return f"{run.state.value} ({_HOLD_NAMES[run.hold]})"


def hold_text(run: Run) -> str | None:
    """Why a queued run does not start yet, for people. None if no policy holds it."""
    # With the hold DEBOUNCE or RETRY, `due_at` is always set: `or 0` only satisfies the type checker.
    match run.hold:
        case Hold.NEW:
            return "It waits until a worker applies its automation's policy."
        case Hold.BUSY:
            return f"It waits until {active_run_text(run)} ends."
        case Hold.DEBOUNCE:
            with_key = " with the same key" if run.options.has_key else ""
            return f"It starts at {utc(run.due_at or 0)} UTC, unless a newer run{with_key} arrives."
        case Hold.RETRY:
            return f"Its next attempt starts at {utc(run.due_at or 0)} UTC."
        case _:
            return None


def active_run_text(run: Run) -> str:
    """For which run a queued run waits because of its automation's concurrency limit, for people."""
    return "a run with the same key" if run.options.has_key else "another run of its automation"


def field_value_text(value: FieldValue) -> str:
    """The value of a field, for people. It may contain any characters."""
    match value.type:
        case "missing":
            return "missing"
        case "object" | "array":
            return f"left out: the payload has an {value.type} there"
        case "number" if value.is_cut:
            return "left out: the number is too long"
        case "string":
            cut_note = " (cut)" if value.is_cut else ""
            return f"{json.dumps(value.value, ensure_ascii=False)}{cut_note}"
        case _:
            return exact_json(value.value)


def usage_text(report: AgentReport) -> str | None:
    """The cost and the tokens of an attempt, for people. None if the agent has reported neither."""
    parts = []
    if report.cost_microusd is not None:
        parts.append(f"${_cost_usd(report.cost_microusd):,f}")
    if report.input_tokens is not None:
        parts.append(f"{report.input_tokens:,} input tokens")
    if report.output_tokens is not None:
        parts.append(f"{report.output_tokens:,} output tokens")
    return ", ".join(parts) or None


def _cost_usd(microusd: int) -> Decimal:
    return Decimal(microusd) / 1_000_000


class RunView(View, frozen=True):
    run_id: str
    started_by: Literal["delivery", "schedule", "person"]
    delivery_id: Annotated[str | None, Meta(description="Null if no delivery started the run.")]
    webhook_uid: Annotated[str | None, Meta(description="Null if no delivery started the run.")]
    schedule: Annotated[str | None, Meta(description="The name of the schedule that started the run, if one did.")]
    scheduled_at: Annotated[
        Timestamp | None, Meta(description="The time for which the schedule started the run. It may start later.")
    ]
    person: Annotated[
        str | None, Meta(description="The name of the member, operator or API key that started the run by hand.")
    ]
    automation: str
    automation_version: int
    replay: Annotated[int, Meta(description="0 for the run that the delivery started; 1, 2 and so on for its replays.")]
    runner: str
    state: RunState
    attempt: Annotated[int, Meta(description="The number of the latest attempt. 0 before the first one.")]
    created_at: Timestamp
    claimed_at: Timestamp | None
    started_at: Annotated[Timestamp | None, Meta(description="When the latest attempt began.")]
    finished_at: Timestamp | None
    cancel_requested_at: Timestamp | None
    exit_status: Annotated[
        int | None, Meta(description="The command's exit code; if a signal ended the command, minus its number.")
    ]
    reason: Annotated[str | None, Meta(description="Why the run ended in this state.")]
    hold: Annotated[
        Literal["new", "busy", "debounce", "retry"] | None,
        Meta(description="Why a queued run can't start yet. Null if it can."),
    ]
    due_at: Annotated[Timestamp | None, Meta(description="When a debounced run or the next attempt starts.")]
    replaced_by: Annotated[
        str | None, Meta(description="The run because of which this one was skipped, replaced or superseded.")
    ]
    executor: Annotated[
        str | None,
        Meta(
            description="The id of the worker that performs the run, or performed its latest attempt. Null without one."
        ),
    ]
    host: Annotated[str | None, Meta(description="The host of this worker.")]

    @classmethod
    def of(cls, run: Run) -> Self:
        schedule = run.schedule
        return cls(
            run_id=run_id(run.id),
            started_by=_STARTER_NAMES[type(run.started_by)],
            delivery_id=delivery_id(run.delivery_key) if run.delivery_key is not None else None,
            webhook_uid=run.webhook_uid,
            schedule=schedule.name if schedule is not None else None,
            scheduled_at=iso(schedule.scheduled_at) if schedule is not None else None,
            person=run.person_name,
            automation=run.automation_name,
            automation_version=run.automation_version,
            replay=run.replay_number,
            runner=run.runner,
            state=run.state,
            attempt=run.attempt,
            created_at=iso(run.created_at),
            claimed_at=iso_or_none(run.claimed_at),
            started_at=iso_or_none(run.started_at),
            finished_at=iso_or_none(run.finished_at),
            cancel_requested_at=iso_or_none(run.cancel_requested_at),
            exit_status=run.exit_status,
            reason=run.reason,
            hold=_HOLD_NAMES[run.hold] if run.hold is not None else None,
            due_at=iso_or_none(run.due_at),
            replaced_by=run_id(run.replaced_by) if run.replaced_by is not None else None,
            executor=run.executor,
            host=host_and_pid(run.executor)[0] if run.executor is not None else None,
        )


_STARTER_NAMES: Final[dict[type, Literal["delivery", "schedule", "person"]]] = {
    ByDelivery: "delivery",
    BySchedule: "schedule",
    ByPerson: "person",
}


class AgentReportView(View, frozen=True):
    """What an agent reported about an attempt. A value is null if the agent did not report it."""

    result: Annotated[str | None, Meta(description="The agent's last message. Treat it as untrusted.")]
    result_is_cut: Annotated[bool, Meta(description="Whether the message was longer than `result`.")]
    cost_usd: Annotated[
        Any,
        Meta(description="The cost in US dollars.", extra_json_schema={"type": ["number", "null"], "examples": [0.25]}),
    ]
    input_tokens: Annotated[int | None, Meta(description="The tokens that the model read, with those of caches.")]
    output_tokens: Annotated[int | None, Meta(description="The tokens that the model wrote.")]

    @classmethod
    def of(cls, report: AgentReport | None) -> Self | None:
        if report is None:
            return None
        return cls(
            result=report.result,
            result_is_cut=report.is_result_cut,
            cost_usd=_cost_usd(report.cost_microusd) if report.cost_microusd is not None else None,
            input_tokens=report.input_tokens,
            output_tokens=report.output_tokens,
        )


NO_REPORTS: Final[Mapping[int, AgentReport]] = {}


class FailedAttemptView(View, frozen=True):
    """An attempt that failed and was followed by another one."""

    attempt: int
    started_at: Timestamp
    finished_at: Timestamp
    exit_status: Annotated[
        int | None, Meta(description="The command's exit code; if a signal ended the command, minus its number.")
    ]
    reason: str | None
    output_tail: str | None
    agent_report: AgentReportView | None


class FieldValueView(View, frozen=True):
    """A value of the payload that the automation names. It is untrusted: the sender wrote it."""

    type: Annotated[str, Meta(description="The JSON type, or `missing`.")]
    value: Annotated[
        Any, Meta(description="A scalar. Null for a missing value, an object, an array and a number that is too long.")
    ]
    cut: Annotated[bool, Meta(description="Whether the payload's value is longer than `value`.")]


class SendAttemptView(View, frozen=True):
    """One attempt to deliver a result."""

    at: Timestamp
    status: Annotated[int | None, Meta(description="The status of the HTTP response. Null: there was none.")]
    problem: str | None


class ResultView(View, frozen=True):
    """A result that is delivered to a destination."""

    kind: ResultKind
    destination: str
    target: Annotated[str | None, Meta(description="The issue or the commit in the destination.")]
    phase: Annotated[Literal["start", "end"], Meta(description="Whether it is about the start or the end of the run.")]
    state: Annotated[
        str,
        Meta(description="`open`, `waiting`, `sent`, `failed`, `refused`, `omitted` or `superseded`."),
    ]
    finished_at: Timestamp | None
    problem: str | None
    url: Annotated[str | None, Meta(description="The page of what was delivered.")]
    may_have_been_sent_twice: bool
    attempts: list[SendAttemptView]

    @classmethod
    def of(cls, result: ResultMessage) -> Self:
        return cls(
            kind=result.kind,
            destination=result.destination,
            target=result.target.text() or None,
            phase="end" if result.is_about_end else "start",
            state=result.state,
            finished_at=iso_or_none(result.finished_at),
            problem=result.problem,
            url=result.url,
            may_have_been_sent_twice=result.is_uncertain and result.state == "sent",
            attempts=[
                SendAttemptView(at=iso(attempt.at), status=attempt.status, problem=attempt.problem)
                for attempt in result.attempts
            ],
        )


_RESULT_TEXTS: Final = {
    "open": "when the run has ended",
    "waiting": "waits",
    "sent": "sent",
    "failed": "given up",
    "refused": "refused",
    "omitted": "nothing to send",
    "superseded": "replaced by a newer status",
}


def result_text(result: ResultMessage) -> str:
    """What became of a result, for people: its state, and what happened."""
    details = result_details(result)
    return f"{result_state_text(result)}, {details}" if details else result_state_text(result)


def result_state_text(result: ResultMessage) -> str:
    return _RESULT_TEXTS[result.state]


def result_details(result: ResultMessage) -> str:
    """When a result was sent, or why not. Empty if nothing has happened."""
    parts = []
    if result.attempts and result.state != "sent":
        parts.append(f"{len(result.attempts)} attempts" if len(result.attempts) > 1 else "1 attempt")
    if result.attempts and result.state == "waiting" and result.due_at is not None:
        parts.append(f"next attempt at {utc(result.due_at)} UTC")
    if result.finished_at is not None:
        parts.append(f"{utc(result.finished_at)} UTC")
    if result.is_uncertain and result.state == "sent":
        parts.append("may have been sent twice")
    text = ", ".join(parts)
    return ". ".join(part for part in (text, result.problem) if part)


class RunWithOutputView(RunView, ExactNumbersView, frozen=True):
    output_tail: Annotated[str | None, Meta(description="The end of its command's output.")]
    agent_report: Annotated[
        AgentReportView | None,
        Meta(description="What an agent reported about the latest attempt. Null without an agent, and until it ends."),
    ]
    summary: Annotated[
        str | None,
        Meta(
            description="The Markdown that the run wrote to `outputs/summary.md`, or the last message of its agent. "
            "Untrusted. Null until the run ends."
        ),
    ]
    summary_is_cut: Annotated[bool, Meta(description="Whether the whole text was longer than `summary`.")]
    summary_source: Annotated[
        SummarySource | None,
        Meta(description="`file`, or `last_message` if an agent wrote no file. Null without a summary."),
    ]
    results: Annotated[list[ResultView], Meta(description="What is delivered to the automation's destinations.")]
    failed_attempts: Annotated[
        list[FailedAttemptView], Meta(description="Attempts that failed and were followed by another one.")
    ]
    fields: Annotated[
        dict[str, FieldValueView], Meta(description="The values of the automation's fields in the payload, by name.")
    ]

    @classmethod
    def of(
        cls,
        run: Run,
        failed_attempts: Sequence[FailedAttempt] = (),
        fields: Mapping[str, FieldValue] = NO_FIELD_VALUES,
        agent_reports: Mapping[int, AgentReport] = NO_REPORTS,
        outputs: RunOutputs = NO_OUTPUTS,
        results: Sequence[ResultMessage] = (),
    ) -> Self:
        """`agent_reports`: by the attempt's number."""
        summary = summary_of(outputs)
        return RunView.of(run).extended(
            cls,
            output_tail=run.output_tail,
            agent_report=AgentReportView.of(agent_reports.get(run.attempt)),
            summary=summary.text if summary is not None else None,
            summary_is_cut=summary is not None and summary.is_cut,
            summary_source=summary.source if summary is not None else None,
            results=[ResultView.of(result) for result in results],
            failed_attempts=[
                FailedAttemptView(
                    attempt=attempt.attempt,
                    started_at=iso(attempt.started_at),
                    finished_at=iso(attempt.finished_at),
                    exit_status=attempt.exit_status,
                    reason=attempt.reason,
                    output_tail=attempt.output_tail,
                    agent_report=AgentReportView.of(agent_reports.get(attempt.attempt)),
                )
                for attempt in failed_attempts
            ],
            fields={
                name: FieldValueView(type=value.type, value=value.value, cut=value.is_cut)
                for name, value in fields.items()
            },
        )


class ReplayView(View, frozen=True):
    runs: Annotated[list[RunView], Meta(description="The new runs, one for each automation.")]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Self:
        return cls(runs=[RunView.of(run) for run in runs])
