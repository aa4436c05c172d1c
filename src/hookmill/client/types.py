"""The JSON of the API. `python -m scripts.client` writes this file from the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Required, TypedDict

ActorKindJson = Literal["key", "member", "operator", "service"]
AlarmKindJson = Literal[
    "webhook_quiet",
    "authentication_failing",
    "rate_limited",
    "runs_failing",
    "runs_waiting",
    "disk_low",
    "clock_wrong",
    "certificate_expiring",
    "worker_stopped",
]
AlarmScopeJson = Literal["automation", "installation", "webhook"]
AlarmStateJson = Literal["open", "resolved", "snoozed"]
AuthModeJson = Literal["signature", "token", "url_token"]
CatchUpJson = Literal["none", "once"]
ChannelJson = Literal["api", "cli", "dashboard", "files", "mcp", "service"]
DestinationKindJson = Literal["email", "slack", "webhook"]
LimitedByJson = Literal["automation", "factory"]
PriorityJson = Literal["high", "low", "normal"]
ResultKindJson = Literal["github_check", "github_comment", "github_review", "github_status", "slack", "webhook"]
RoleJson = Literal["viewer", "manager", "admin"]
RunStateJson = Literal[
    "queued", "running", "succeeded", "failed", "cancelled", "interrupted", "skipped", "replaced", "superseded"
]
SignInMethodJson = Literal["link", "oidc", "password"]
SummarySourceJson = Literal["file", "last_message"]
WebhookStateJson = Literal["deleted", "disabled", "enabled"]
WhenBusyJson = Literal["queue", "replace", "skip"]


class ActorJson(TypedDict):
    kind: ActorKindJson
    id: str
    name: str


class AgentReportJson(TypedDict):
    result: str | None
    result_is_cut: bool
    cost_usd: Any
    input_tokens: int | None
    output_tokens: int | None


class AlarmDestinationCreationJson(TypedDict, total=False):
    kind: Required[DestinationKindJson]
    to: str | None
    url: str | None
    alarm_kinds: list[AlarmKindJson]
    includes_factories: bool


class AlarmDestinationJson(TypedDict):
    destination_id: str
    kind: DestinationKindJson
    target: str
    factory: str | None
    alarm_kinds: list[AlarmKindJson]
    includes_factories: bool
    created_at: str
    last_sent_at: str | None
    waiting: int
    failed: int
    last_problem: str | None


class AlarmSnoozeJson(TypedDict, total=False):
    hours: int | None
    until: str | None


class AlarmJson(TypedDict):
    id: str
    kind: AlarmKindJson
    state: AlarmStateJson
    scope: AlarmScopeJson
    subject: str
    subject_id: str
    title: str
    summary: str
    action: str
    raised_at: str
    resolved_at: str | None
    snoozed_until: str | None


class AuditEntryJson(TypedDict):
    entry_id: str
    at: str
    action: str
    actor: ActorJson
    channel: ChannelJson
    client: str | None
    factory: str | None
    subject: SubjectJson
    details: dict[str, Any]


class AutomationChangesJson(TypedDict, total=False):
    concurrency: ConcurrencyJson | None
    debounce: DebounceJson | None
    retry: RetryJson | None
    priority: PriorityJson | None
    max_running: int | None
    pause_after_failures: int | None
    fields: dict[str, str | RunFieldJson] | None
    secrets: list[str] | None
    workspace: WorkspaceJson | None
    results: list[DeclaredResultJson] | None
    name: str | None
    enabled: bool | None
    runner: str | None
    triggers: list[WebhookTriggerJson | ScheduleTriggerJson] | None
    prompt: str | None


class AutomationCreationJson(TypedDict, total=False):
    concurrency: ConcurrencyJson | None
    debounce: DebounceJson | None
    retry: RetryJson | None
    priority: PriorityJson
    max_running: int | None
    pause_after_failures: int | None
    fields: dict[str, str | RunFieldJson]
    secrets: list[str]
    workspace: WorkspaceJson | None
    results: list[DeclaredResultJson]
    name: Required[str]
    enabled: bool
    runner: str
    triggers: Required[list[WebhookTriggerJson | ScheduleTriggerJson]]
    prompt: Required[str]


class AutomationInListJson(TypedDict, total=False):
    concurrency: ConcurrencyJson | None
    debounce: DebounceJson | None
    retry: RetryJson | None
    priority: PriorityJson
    max_running: int | None
    pause_after_failures: int | None
    fields: dict[str, str | RunFieldJson]
    secrets: list[str]
    workspace: WorkspaceJson | None
    results: list[DeclaredResultJson]
    name: Required[str]
    enabled: bool
    runner: str
    triggers: Required[list[WebhookTriggerJson | ScheduleTriggerJson]]
    automation_id: Required[str]
    version: Required[int]
    pause_reason: Required[str | None]
    next_times: Required[list[NextTimeJson]]
    created_at: Required[str]
    updated_at: Required[str]
    warnings: Required[list[str]]


class BacktestRequestJson(TypedDict, total=False):
    filter: dict[str, Any] | None
    event: list[str] | None
    webhook_ids: list[str] | None
    last: int
    concurrency: ConcurrencyJson | None
    debounce: DebounceJson | None


class BacktestJson(TypedDict):
    matching: list[DeliveryJson]
    others: list[DeliveryJson]
    keys: int | None
    superseded: list[str]


class CallerJson(TypedDict):
    kind: ActorKindJson
    id: str
    name: str
    is_admin: bool
    factories: list[FactoryRoleViewJson]


class CancelledRunsJson(TypedDict):
    cancelled: int
    stopping: int


class ConcurrencyJson(TypedDict, total=False):
    key: str | list[str]
    limit: int
    when_busy: WhenBusyJson


class ConditionJson(TypedDict):
    pointer: str
    operator: str
    expected: str
    found: str
    held: bool
    no_object_at: str | None
    alternative: int | None
    within: list[ConditionJson]


class DebounceJson(TypedDict):
    seconds: int
    max_seconds: NotRequired[int]


class DeclaredResultJson(TypedDict, total=False):
    kind: Required[ResultKindJson]
    destination: Required[str]
    context: str | None
    update: bool | None
    repository: str | None
    number: str | None
    commit: str | None


class DefinitionApplyJson(TypedDict, total=False):
    files: Required[dict[str, str]]
    allow_deletions: bool
    expected_digest: str | None


class DefinitionChangeJson(TypedDict):
    key: str
    before: Any
    after: Any
    concerns_senders: bool


class DefinitionExportJson(TypedDict):
    files: dict[str, str]
    defined_by_files: bool


class DefinitionFilesJson(TypedDict):
    files: dict[str, str]


class DefinitionPlanJson(TypedDict):
    factory: str
    applied: bool
    changes: bool
    takes_over: bool
    needs_consent: str | None
    unchanged: int
    steps: list[DefinitionStepJson]
    warnings: list[DefinitionWarningJson]
    webhooks: list[WebhookUrlJson]
    summary: str
    lines: list[str]
    digest: str


class DefinitionStepJson(TypedDict):
    act: str
    kind: str
    name: str
    id: str | None
    file: str | None
    changes: list[DefinitionChangeJson]


class DefinitionWarningJson(TypedDict):
    file: str
    line: int | None
    column: int | None
    message: str


class DeliveryFilterJson(TypedDict, total=False):
    webhook_ids: Required[list[str]]
    event: list[str]
    payload: dict[str, Any] | None


class DeliveryJson(TypedDict):
    delivery_id: str
    webhook_uid: str
    label: Literal["Accepted", "Duplicate", "Rejected (auth)", "Rejected (invalid JSON)", "Rejected (too large)"]
    size: int
    received_at: str
    identity_kind: str | None
    identity: str | None
    duplicate_of: str | None
    event: str | None
    event_signed: bool | None
    reason: str | None
    client: str | None
    traceparent: str | None


class DestinationTestJson(TypedDict):
    destination_id: str
    sent: bool
    problem: str | None


class DroppedAttemptsJson(TypedDict):
    webhook_uid: str
    kind: str
    since: str
    until: str
    count: int


class EvaluationJson(TypedDict):
    automation_id: str
    automation: str
    enabled: bool
    would_trigger: bool
    triggers: list[FilterTestJson]
    runs: list[RunJson]


class ExplanationJson(TypedDict):
    automations: list[EvaluationJson]


class FactoryChangesJson(TypedDict, total=False):
    max_running: int | None


class FactoryCreationJson(TypedDict):
    name: str


class FactoryRoleJson(TypedDict):
    role: RoleJson


class FactoryRoleViewJson(TypedDict):
    name: str
    role: RoleJson


class FactoryJson(TypedDict):
    name: str
    defined_by_files: bool
    max_running: int | None


class FailedAttemptJson(TypedDict):
    attempt: int
    started_at: str
    finished_at: str
    exit_status: int | None
    reason: str | None
    output_tail: str | None
    agent_report: AgentReportJson | None


class FieldValueJson(TypedDict):
    type: str
    value: Any
    cut: bool


class FilterTestRequestJson(TypedDict, total=False):
    filter: dict[str, Any] | None
    event: list[str] | None
    webhook_ids: list[str] | None
    delivery_id: Required[str]


class FilterTestJson(TypedDict):
    would_trigger: bool
    webhook_check: bool
    event_check: bool
    event_types: list[str]
    event: str | None
    payload_check: bool
    conditions: list[ConditionJson]


class KeyCreationJson(TypedDict):
    name: str
    role: RoleJson
    factory: NotRequired[str | None]
    expires_at: NotRequired[str | None]


class KeyJson(TypedDict):
    key_id: str
    name: str
    role: RoleJson
    factory: str | None
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class MemberChangesJson(TypedDict, total=False):
    is_admin: bool


class MemberCreationJson(TypedDict):
    email: str
    name: str
    is_admin: NotRequired[bool]


class MemberJson(TypedDict):
    member_id: str
    email: str
    name: str
    is_admin: bool
    roles: dict[str, RoleJson]
    created_at: str
    sign_in_method: SignInMethodJson | None
    oidc_issuer: str | None
    oidc_subject: str | None


class NextTimeJson(TypedDict):
    name: str
    next_at: str | None


class RefFromPayloadJson(TypedDict):
    pointer: str


class ReplayRequestJson(TypedDict, total=False):
    automation: str | None


class ReplayJson(TypedDict):
    runs: list[RunJson]


class ResultJson(TypedDict):
    kind: ResultKindJson
    destination: str
    target: str | None
    phase: Literal["end", "start"]
    state: str
    finished_at: str | None
    problem: str | None
    url: str | None
    may_have_been_sent_twice: bool
    attempts: list[SendAttemptJson]


class RetryJson(TypedDict, total=False):
    attempts: Required[int]
    backoff_seconds: int
    max_backoff_seconds: int
    exit_codes: list[int]


class RotationRequestJson(TypedDict, total=False):
    secret: str | None


class RunCancellationJson(TypedDict, total=False):
    automation: str | None
    webhook: str | None
    state: Literal["queued", "running"] | None
    all: bool


class RunFieldJson(TypedDict):
    pointer: str
    max_characters: NotRequired[int]


class RunFileJson(TypedDict):
    name: str
    size: int
    only_on_host: str | None


class RunFilesJson(TypedDict):
    files: list[RunFileJson]
    more_files: bool


class RunOutputJson(TypedDict):
    run_id: str
    output: str | None
    size: int | None
    is_cut: bool | None


class RunRequestJson(TypedDict, total=False):
    payload: Any


class RunJson(TypedDict):
    run_id: str
    started_by: Literal["delivery", "person", "schedule"]
    delivery_id: str | None
    webhook_uid: str | None
    schedule: str | None
    scheduled_at: str | None
    person: str | None
    automation: str
    automation_version: int
    replay: int
    runner: str
    state: RunStateJson
    attempt: int
    created_at: str
    claimed_at: str | None
    started_at: str | None
    finished_at: str | None
    cancel_requested_at: str | None
    exit_status: int | None
    reason: str | None
    hold: Literal["busy", "debounce", "new", "retry"] | None
    due_at: str | None
    replaced_by: str | None
    executor: str | None
    host: str | None


class ScheduleJson(TypedDict):
    name: str
    cron: str
    timezone: NotRequired[str]
    catch_up: NotRequired[CatchUpJson]


class ScheduleTriggerJson(TypedDict):
    provider: Literal["schedule"]
    event: Literal["cron_fired"]
    schedule: ScheduleJson


class SecretCreationJson(TypedDict, total=False):
    name: Required[str]
    value: str | None
    for_runs: bool


class SecretReplacementJson(TypedDict, total=False):
    value: str | None


class SecretJson(TypedDict):
    name: str
    created_at: str
    changed_at: str | None
    has_value: bool
    used_by: list[str]
    used_elsewhere: bool
    for_runs: bool
    created_here: bool
    used_by_automations: list[str]


class SendAttemptJson(TypedDict):
    at: str
    status: int | None
    problem: str | None


class SignInLinkJson(TypedDict):
    member_id: str
    url: str


class SubjectJson(TypedDict):
    kind: str
    id: str
    name: str


class WebhookChangesJson(TypedDict, total=False):
    name: str
    auth_mode: AuthModeJson | None
    signature_scheme: str | None
    signature_options: dict[str, Any] | None
    answers_handshakes: bool | None
    secret_name: str | None
    delivery_id_header: str | None
    event_header: str | None
    allowed_networks: list[str] | None
    expect_every: str | None
    enabled: bool | None


class WebhookCreationJson(TypedDict, total=False):
    name: Required[str]
    auth_mode: AuthModeJson
    signature_scheme: str | None
    signature_options: dict[str, Any] | None
    answers_handshakes: bool
    secret_name: str | None
    delivery_id_header: str | None
    event_header: str | None
    allowed_networks: list[str]
    expect_every: str | None
    enabled: bool
    secret: str | None


class WebhookTriggerJson(TypedDict):
    provider: Literal["webhook"]
    event: Literal["received"]
    filter: DeliveryFilterJson


class WebhookUrlJson(TypedDict):
    name: str
    uid: str
    url: str


class WebhookJson(TypedDict):
    name: str
    auth_mode: AuthModeJson
    signature_scheme: str | None
    signature_options: dict[str, Any] | None
    answers_handshakes: bool
    secret_name: str
    delivery_id_header: str | None
    event_header: str | None
    allowed_networks: list[str]
    expect_every: str | None
    enabled: bool
    uid: str
    state: WebhookStateJson
    url: str
    has_secret: bool
    secret_is_current: bool
    warnings: list[str]
    created_at: str


class WorkspaceJson(TypedDict, total=False):
    repository: Required[str]
    ref: str | RefFromPayloadJson | None
    base: str | RefFromPayloadJson | None
    depth: int | Literal["full"]


class AlarmDestinationWithSecretJson(AlarmDestinationJson):
    signing_secret: str | None


class AutomationJson(AutomationInListJson):
    prompt: str


class DeliveryWithRunsJson(DeliveryJson):
    runs: list[RunJson]


class KeyWithTokenJson(KeyJson):
    token: str
    api_url: str


class RunWithOutputJson(RunJson):
    output_tail: str | None
    agent_report: AgentReportJson | None
    summary: str | None
    summary_is_cut: bool
    summary_source: SummarySourceJson | None
    results: list[ResultJson]
    failed_attempts: list[FailedAttemptJson]
    fields: dict[str, FieldValueJson]


class SecretWithValueJson(SecretJson):
    value: str | None


class WaitingRunJson(RunJson):
    priority: PriorityJson
    waiting_reason: str
    waits_behind: str | None
    limited_by: LimitedByJson | None


class WebhookWithSecretJson(WebhookJson):
    secret: str | None
