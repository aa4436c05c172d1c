"""The tables of the migrated database. A test compares the migrations with this module.

Times are integers: microseconds since 1970, UTC. Keys of deliveries and runs are 16 time-ordered bytes, so new rows are
appended at the end of the table. The log's tables have no foreign keys: webhooks are never removed, and each check
would slow down admission. What a constraint can say is one; `verification` checks the rest.
"""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


_TIME: Final = BigInteger


def _required(name: str, kind: Any, *arguments: Any, **more: Any) -> Column[Any]:
    """A column that can't be NULL."""
    return Column(name, kind, *arguments, nullable=False, **more)


def _partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


installation_metadata: Final = Table(
    "metadata",
    metadata,
    Column("name", Text, primary_key=True),
    _required("value", LargeBinary),
    comment="Metadata of the database itself, such as the fingerprint of its master key.",
)

teams: Final = Table(
    "teams",
    metadata,
    Column("id", Text, primary_key=True),
    _required("name", Text),
    _required("created_at", _TIME),
)

factories: Final = Table(
    "factories",
    metadata,
    Column("id", Text, primary_key=True),
    _required("team_id", Text, ForeignKey("teams.id")),
    _required("name", Text, unique=True),
    _required("created_at", _TIME),
    _required("defined_by_files", Boolean),
    Column("max_running", Integer),
)

secrets: Final = Table(
    "secrets",
    metadata,
    Column("id", Text, primary_key=True),
    _required("team_id", Text, ForeignKey("teams.id")),
    _required("name", Text),
    _required("created_at", _TIME),
    Column("deleted_at", _TIME),
    _required("factory_id", Text),
    _required("for_runs", Boolean),
    UniqueConstraint("team_id", "name"),
    comment="Team secrets. A value never changes in place: each change is a new version.",
)

secret_versions: Final = Table(
    "secret_versions",
    metadata,
    Column("id", Text, primary_key=True),
    _required("secret_id", Text, ForeignKey("secrets.id"), index=True),
    _required("version", Integer),
    _required("key_id", Text),
    _required("sealed", LargeBinary),
    _required("created_at", _TIME),
    UniqueConstraint("secret_id", "version"),
    # For the foreign key of webhooks.
    UniqueConstraint("id", "secret_id"),
)

webhooks: Final = Table(
    "webhooks",
    metadata,
    Column("no", Integer, primary_key=True),
    _required("uid", Text, unique=True),
    _required("factory_id", Text, ForeignKey("factories.id")),
    _required("name", Text),
    _required("auth_mode", Text),
    _required("state", Text),
    _required("secret_id", Text, ForeignKey("secrets.id")),
    Column("secret_version_id", Text),
    Column("signature_scheme", Text),
    Column("signature_options", Text),
    _required("answers_handshakes", Boolean),
    Column("delivery_id_header", Text),
    Column("event_header", Text),
    Column("allowed_networks", Text),
    # In seconds, counted from `expected_from`. NULL: no deliveries are expected.
    Column("expect_every", Integer),
    Column("expected_from", _TIME),
    _required("revision", BigInteger),
    _required("created_at", _TIME),
    Column("deleted_at", _TIME),
    # The version is one of this secret.
    ForeignKeyConstraint(["secret_version_id", "secret_id"], ["secret_versions.id", "secret_versions.secret_id"]),
    CheckConstraint("auth_mode IN ('token', 'url_token', 'signature')", name="auth_mode"),
    CheckConstraint("state IN ('enabled', 'disabled', 'deleted')", name="state"),
    CheckConstraint("(state = 'deleted') = (deleted_at IS NOT NULL)", name="deleted_at"),
    CheckConstraint("state <> 'enabled' OR secret_version_id IS NOT NULL", name="enabled"),
    CheckConstraint("revision >= 1", name="revision"),
    # A deleted webhook's name can be used again, its uid can't.
    _partial_index("uq_webhooks_live_name", "factory_id", "name", unique=True, where="state <> 'deleted'"),
    sqlite_autoincrement=True,
)

automations: Final = Table(
    "automations",
    metadata,
    Column("id", Text, primary_key=True),
    _required("factory_id", Text, ForeignKey("factories.id")),
    _required("name", Text),
    _required("enabled", Boolean),
    _required("version", Integer),
    _required("created_at", _TIME),
    _required("updated_at", _TIME),
    Column("deleted_at", _TIME),
    # The values of the latest version's policy, for SQL conditions.
    Column("max_running", Integer),
    Column("pause_after_failures", Integer),
    _required("failures_in_row", Integer, server_default="0"),
    Column("pause_reason", Text),
    # Workers search both of these columns every few seconds or more often, and few automations have a value in them.
    _partial_index("ix_automations_max_running", "max_running", where="max_running IS NOT NULL"),
    _partial_index(
        "ix_automations_pause_after_failures", "pause_after_failures", where="pause_after_failures IS NOT NULL"
    ),
    _partial_index("uq_automations_live_name", "factory_id", "name", unique=True, where="deleted_at IS NULL"),
)

automation_versions: Final = Table(
    "automation_versions",
    metadata,
    Column("automation_id", Text, ForeignKey("automations.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    _required("name", Text),
    _required("prompt", Text),
    _required("runner", Text),
    _required("triggers", Text),
    _required("created_at", _TIME),
    _required("policy", Text),
    _required("options", Text),
    comment="What an automation said when a run was started by it. `triggers` is JSON text.",
)

automation_webhooks: Final = Table(
    "automation_webhooks",
    metadata,
    Column("webhook_uid", Text, primary_key=True),
    Column("automation_id", Text, ForeignKey("automations.id"), primary_key=True),
    Index("ix_automation_webhooks_automation_id", "automation_id"),
    comment="Which automations select a webhook now. A uid may be unknown or deleted: that is shown, not refused.",
    sqlite_with_rowid=False,
)

schedules: Final = Table(
    "schedules",
    metadata,
    Column("automation_id", Text, ForeignKey("automations.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    _required("cron", Text),
    _required("timezone", Text),
    _required("catch_up", Text),
    # When the schedule was stored. Its intervals count from here.
    _required("anchor", _TIME),
    # The latest scheduled time that a worker has considered: it has started a run, or needs none.
    _required("last_at", _TIME),
    # NULL while the automation is disabled.
    Column("next_at", _TIME),
    Index("ix_schedules_next_at", "next_at"),
    # For the search for schedules whose `last_at` is in the future, because the clock was wrong.
    _partial_index("ix_schedules_last_at", "last_at", where="next_at IS NOT NULL"),
    comment="The schedules of automations that are not deleted, and when each is due.",
    sqlite_with_rowid=False,
)

deliveries: Final = Table(
    "deliveries",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    _required("webhook_no", Integer),
    _required("received_at", _TIME),
    _required("label", SmallInteger),
    _required("rate_limit", SmallInteger),
    _required("size", Integer),
    Column("identity_kind", SmallInteger),
    Column("identity", Text),
    Column("identity_digest", LargeBinary(16)),
    Column("duplicate_of", LargeBinary(16)),
    Column("reason", Text),
    Column("client", Text),
    Column("event", Text),
    Column("event_signed", Boolean),
    Column("traceparent", Text),
    CheckConstraint("label BETWEEN 1 AND 5", name="label"),
    CheckConstraint("rate_limit BETWEEN 1 AND 2", name="rate_limit"),
    CheckConstraint("identity_kind BETWEEN 1 AND 5", name="identity_kind"),
    CheckConstraint("(label = 2) = (duplicate_of IS NOT NULL)", name="duplicate_of"),
    # For the log's order and the rate limits' sliding windows. Counting rows needs only the index.
    Index("ix_deliveries_log", "webhook_no", "received_at", "rate_limit"),
    # For rare labels in a long log. Accepted deliveries don't have entries in these indexes.
    _partial_index("ix_deliveries_not_accepted", "webhook_no", "label", "received_at", where="label <> 1"),
    _partial_index("ix_deliveries_duplicates", "webhook_no", "identity_digest", "id", where="label = 2"),
    # For the log by event type. Deliveries without event types don't have entries in this index.
    _partial_index("ix_deliveries_event", "webhook_no", "event", "label", "received_at", where="event IS NOT NULL"),
    sqlite_with_rowid=False,
)

payloads: Final = Table(
    "payloads",
    metadata,
    Column("delivery_id", LargeBinary(16), primary_key=True),
    _required("body", LargeBinary),
    comment="Bodies of Accepted deliveries, byte for byte. Apart from the log, so that its pages stay small.",
)

identities: Final = Table(
    "identities",
    metadata,
    Column("segment", Integer, primary_key=True, autoincrement=False),
    Column("webhook_no", Integer, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary(16), primary_key=True),
    _required("delivery_id", LargeBinary(16)),
    _required("kind", SmallInteger),
    _required("claimed_at", _TIME),
    comment="Which events were accepted. A webhook has each digest in one segment only.",
    sqlite_with_rowid=False,
)

identity_segments: Final = Table(
    "identity_segments",
    metadata,
    Column("no", Integer, primary_key=True, autoincrement=False),
    _required("opened_at", _TIME),
    # NULL: the open segment, to which new identities go.
    Column("closed_at", _TIME),
    # Transactions with a lower number may still add identities after `closed_at`. PostgreSQL only.
    Column("writable_before", BigInteger),
    # The Bloom filter that describes the segment. NULL: there is none yet.
    Column("filter_no", Integer),
    _partial_index("ix_identity_segments_without_filter", "no", where="filter_no IS NULL"),
    comment="The segments of the identities, which divide them by time.",
    sqlite_with_rowid=False,
)

identity_filters: Final = Table(
    "identity_filters",
    metadata,
    Column("no", Integer, primary_key=True, autoincrement=False),
    _required("capacity", Integer),
    _required("identity_count", Integer),
    _required("bits", LargeBinary),
    comment="Bloom filters, each of the digests of several closed segments.",
)

window_counts: Final = Table(
    "window_counts",
    metadata,
    Column("webhook_no", Integer, primary_key=True, autoincrement=False),
    Column("rate_limit", SmallInteger, primary_key=True, autoincrement=False),
    Column("slot", SmallInteger, primary_key=True, autoincrement=False),
    _required("period", BigInteger),
    _required("count", Integer),
    comment="Rows of the log by rate limit and period of time. Only for webhooks with high rate limits.",
    sqlite_with_rowid=False,
)

dropped_attempts: Final = Table(
    "dropped_attempts",
    metadata,
    Column("webhook_no", Integer, primary_key=True, autoincrement=False),
    Column("minute", _TIME, primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    _required("count", Integer),
    comment="Attempts that get no row in the log, counted by webhook and minute.",
    sqlite_with_rowid=False,
)

runs: Final = Table(
    "runs",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    _required("delivery_id", LargeBinary(16)),
    _required("webhook_no", Integer),
    _required("factory_id", Text),
    _required("automation_id", Text),
    _required("automation_version", Integer),
    _required("state", Text),
    _required("attempt", Integer),
    _required("created_at", _TIME),
    Column("claimed_at", _TIME),
    Column("started_at", _TIME),
    Column("finished_at", _TIME),
    Column("cancel_requested_at", _TIME),
    Column("executor", Text),
    Column("exit_status", Integer),
    Column("output_tail", Text),
    Column("reason", Text),
    _required("replay", Integer, server_default="0"),
    _required("priority", SmallInteger, server_default="1"),
    Column("policy_key", LargeBinary(16)),
    Column("hold", SmallInteger),
    Column("due_at", _TIME),
    Column("due_at_most", _TIME),
    Column("replaced_by", LargeBinary(16)),
    _required("failures", SmallInteger, server_default="0"),
    # Attempts that ended because their worker was stopped in an orderly way, or had claimed the run and no thread
    # performed it. They don't count towards `run_attempts_max`.
    _required("stopped_attempts", Integer, server_default="0"),
    # A run without a delivery has the webhook number 0, and its own id as the delivery id. Its payload, if any, is
    # stored under that id. A schedule started it, or else the person in `started_by`.
    Column("schedule", Text),
    Column("schedule_timezone", Text),
    Column("scheduled_at", _TIME),
    Column("started_by", Text),
    # About the package of the latest attempt that has ended, if `run_files` has its files: the webhook's name at that
    # time, and whether the package has more files than the table. NULL means that the name is unknown, or no.
    Column("package_webhook_name", Text),
    Column("has_more_files", Boolean),
    CheckConstraint(
        "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'interrupted', 'skipped', 'replaced', "
        "'superseded')",
        name="state",
    ),
    CheckConstraint("(state IN ('queued', 'running')) = (finished_at IS NULL)", name="finished_at"),
    CheckConstraint("state <> 'running' OR (executor IS NOT NULL AND claimed_at IS NOT NULL)", name="running"),
    CheckConstraint("state <> 'queued' OR executor IS NULL OR claimed_at IS NULL", name="queued"),
    CheckConstraint("hold IS NULL OR (hold BETWEEN 1 AND 4 AND state = 'queued')", name="hold"),
    CheckConstraint("length(policy_key) = 16", name="policy_key"),
    CheckConstraint(
        "failures >= 0 AND stopped_attempts >= 0 AND attempt >= failures + stopped_attempts", name="attempts"
    ),
    CheckConstraint("webhook_no <> 0 OR delivery_id = id", name="without_delivery"),
    # A delivery starts an automation only once. Replays have the numbers 1, 2, …
    UniqueConstraint("delivery_id", "automation_id", "replay"),
    # The backlog by factory. With 100,000 waiting runs, a claim takes 2 ms instead of 300 ms.
    _partial_index(
        "ix_runs_backlog",
        "factory_id",
        "priority",
        "id",
        where="finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL",
    ),
    # Three indexes for runs that a policy holds: by factory for the pages, by time for decisions, and by policy key.
    _partial_index("ix_runs_held", "factory_id", "id", where="finished_at IS NULL AND hold IS NOT NULL"),
    _partial_index("ix_runs_due", "hold", "due_at", "id", where="finished_at IS NULL AND hold IS NOT NULL"),
    _partial_index("ix_runs_key", "policy_key", "hold", "id", where="finished_at IS NULL AND policy_key IS NOT NULL"),
    _partial_index("ix_runs_claimed", "executor", where="finished_at IS NULL AND executor IS NOT NULL"),
    Index("ix_runs_webhook_no", "webhook_no", "id"),
    _partial_index(
        "ix_runs_not_succeeded", "webhook_no", "state", "id", where="state NOT IN ('queued', 'running', 'succeeded')"
    ),
    # The same two indexes for runs without a delivery. They all have the webhook number 0, so the factory replaces it.
    _partial_index("ix_runs_without_delivery", "factory_id", "id", where="webhook_no = 0"),
    _partial_index(
        "ix_runs_without_delivery_not_succeeded",
        "factory_id",
        "state",
        "id",
        where="webhook_no = 0 AND state NOT IN ('queued', 'running', 'succeeded')",
    ),
    # The same two indexes for the runs of one automation, which are read one webhook at a time.
    Index("ix_runs_automation_id", "automation_id", "webhook_no", "id"),
    _partial_index(
        "ix_runs_automation_not_succeeded",
        "automation_id",
        "webhook_no",
        "state",
        "id",
        where="state NOT IN ('queued', 'running', 'succeeded')",
    ),
    sqlite_with_rowid=False,
)

failed_attempts: Final = Table(
    "failed_attempts",
    metadata,
    Column("run_id", LargeBinary(16), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    _required("started_at", _TIME),
    _required("finished_at", _TIME),
    Column("exit_status", Integer),
    Column("output_tail", Text),
    Column("reason", Text),
    comment="Attempts that failed and were followed by another one.",
    sqlite_with_rowid=False,
)

attempt_reports: Final = Table(
    "attempt_reports",
    metadata,
    Column("run_id", LargeBinary(16), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("result", Text),
    _required("is_result_cut", Boolean),
    # In millionths of a US dollar.
    Column("cost_microusd", BigInteger),
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("model", Text),
    comment="What agents have reported about attempts that have ended. Attempts without a report have no row.",
    sqlite_with_rowid=False,
)

run_outputs: Final = Table(
    "run_outputs",
    metadata,
    Column("run_id", LargeBinary(16), primary_key=True),
    # The name of the file.
    Column("name", Text, primary_key=True),
    _required("content", Text),
    _required("is_cut", Boolean),
    comment="The texts that runs which have ended wrote to their directories of outputs.",
    sqlite_with_rowid=False,
)

run_results: Final = Table(
    "run_results",
    metadata,
    Column("run_id", LargeBinary(16), primary_key=True),
    # The position of the result in the automation's list.
    Column("number", Integer, primary_key=True, autoincrement=False),
    # 1: about the start of the run. 2: about its end.
    Column("phase", Integer, primary_key=True, autoincrement=False),
    _required("kind", Text),
    _required("destination", Text),
    _required("target", Text),
    # Messages with the same lane are sent in their order.
    _required("lane", Text),
    _required("state", Text),
    _required("attempts", Integer),
    _required("log", Text),
    _required("is_uncertain", Boolean),
    _required("queued_at", _TIME),
    Column("due_at", _TIME),
    Column("claimed_until", _TIME),
    # The executor that has claimed the message.
    Column("claimed_by", Text),
    Column("finished_at", _TIME),
    Column("failure", Text),
    Column("url", Text),
    # The number of the check run, comment or review at GitHub or Gitea that the message has created or changed.
    Column("remote_id", BigInteger),
    _partial_index("ix_run_results_waiting", "lane", "queued_at", where="state = 'waiting'"),
    _partial_index("ix_run_results_open", "run_id", where="state = 'open'"),
    # For the comment of earlier runs, which a newer run updates.
    _partial_index("ix_run_results_remote_id", "lane", "queued_at", where="remote_id IS NOT NULL"),
    comment="An outbox: one row for each message about a run. `target` and `log` are JSON texts.",
    sqlite_with_rowid=False,
)

platform_attempts: Final = Table(
    "platform_attempts",
    metadata,
    Column("run_id", LargeBinary(16), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    # The SHA-256 of the token that the platform needs to report about the attempt.
    _required("token_digest", LargeBinary(32)),
    _required("created_at", _TIME),
    # The accepted report as JSON. NULL: none has arrived.
    Column("report", Text),
    comment="Attempts that a runner has handed to an agent platform.",
    sqlite_with_rowid=False,
)

run_files: Final = Table(
    "run_files",
    metadata,
    Column("run_id", LargeBinary(16), primary_key=True),
    Column("name", LargeBinary, primary_key=True),
    _required("attempt", Integer),
    # In bytes. NULL: the command has removed this file of the prepared package.
    Column("size", BigInteger),
    # The name of the host that has the package.
    _required("host", Text),
    # NULL: only that host or the object has the content. For the output, it can be the end of the file.
    Column("content", LargeBinary),
    # The key of the object that has the content, or will have it. The row exists before the object.
    Column("object_key", Text),
    # Whether that host has yet to upload the object. NULL: no.
    Column("is_upload_pending", Boolean),
    # For each worker's search for files that it has yet to upload.
    _partial_index("ix_run_files_is_upload_pending", "host", "run_id", where="is_upload_pending"),
    comment="Files of runs for all hosts. Prepared files that the command left unchanged have no row.",
)

removed_objects: Final = Table(
    "removed_objects",
    metadata,
    Column("object_key", Text, primary_key=True),
    comment="Objects that have no row in run_files any more, and that the object store may still have.",
    sqlite_with_rowid=False,
)

removed_runs: Final = Table(
    "removed_runs",
    metadata,
    Column("run_id", LargeBinary(16), primary_key=True),
    comment="Runs that retention has removed, and whose files it has not removed yet.",
    sqlite_with_rowid=False,
)

executors: Final = Table(
    "executors",
    metadata,
    Column("id", Text, primary_key=True),
    _required("started_at", _TIME),
    _required("last_seen_at", _TIME),
    comment="Processes that perform runs, and when each last said that it lives.",
)

audit_log: Final = Table(
    "audit_log",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    _required("team_id", Text, ForeignKey("teams.id")),
    Column("factory_id", Text),
    _required("at", _TIME),
    _required("actor_kind", Text),
    _required("actor_id", Text),
    _required("actor_name", Text),
    _required("channel", Text),
    Column("client", Text),
    _required("action", Text),
    _required("subject_kind", Text),
    _required("subject_id", Text),
    _required("subject_name", Text),
    _required("details", Text),
    CheckConstraint("actor_kind IN ('operator', 'key', 'member', 'service')", name="actor_kind"),
    CheckConstraint("channel IN ('cli', 'api', 'mcp', 'files', 'dashboard', 'service')", name="channel"),
    Index("ix_audit_log_factory_id", "factory_id", "id"),
    Index("ix_audit_log_team_id", "team_id", "id"),
    comment="Every act of management, written with it. Nothing changes or removes a row. `details` is JSON text.",
    sqlite_with_rowid=False,
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    _required("team_id", Text, ForeignKey("teams.id")),
    Column("factory_id", Text, ForeignKey("factories.id")),
    _required("role", Text),
    _required("name", Text),
    _required("digest", LargeBinary(32), unique=True),
    _required("created_at", _TIME),
    Column("expires_at", _TIME),
    Column("revoked_at", _TIME),
    Column("last_used_at", _TIME),
    comment="API keys by the SHA-256 of their token, which is 256 random bits and kept nowhere.",
)

members: Final = Table(
    "members",
    metadata,
    Column("id", Text, primary_key=True),
    _required("team_id", Text, ForeignKey("teams.id")),
    _required("email", Text),
    _required("name", Text),
    _required("is_admin", Boolean),
    _required("created_at", _TIME),
    Column("removed_at", _TIME),
    Column("password_hash", Text),
    Column("oidc_issuer", Text),
    Column("oidc_subject", Text),
    # A removed member can be added again, as a new row with the same address or the same identity.
    _partial_index("uq_members_email", "team_id", "email", unique=True, where="removed_at IS NULL"),
    _partial_index("uq_members_oidc_subject", "oidc_issuer", "oidc_subject", unique=True, where="removed_at IS NULL"),
)

member_roles: Final = Table(
    "member_roles",
    metadata,
    Column("member_id", Text, ForeignKey("members.id"), primary_key=True),
    Column("factory_id", Text, ForeignKey("factories.id"), primary_key=True),
    _required("role", Text),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    Column("id", Text, primary_key=True),
    _required("request_digest", LargeBinary(32)),
    _required("key_id", Text),
    _required("sealed", LargeBinary),
    _required("created_at", _TIME, index=True),
    comment="Answers that are given again when a request is repeated. They may hold a secret that is shown once.",
)

sessions: Final = Table(
    "sessions",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    _required("member_id", Text, ForeignKey("members.id"), index=True),
    _required("created_at", _TIME),
    _required("last_seen_at", _TIME),
    Column("client", Text),
    _required("method", Text),
    Column("rules_tag", LargeBinary(32)),
    comment="Who is signed in, by the SHA-256 of what their browser holds: a copy of this table opens nothing.",
    sqlite_with_rowid=False,
)

sign_in_links: Final = Table(
    "sign_in_links",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    _required("team_id", Text, ForeignKey("teams.id")),
    Column("member_id", Text, ForeignKey("members.id")),
    _required("expires_at", _TIME),
    comment="Links that let somebody choose a password, once. One without a member makes the first admin.",
    sqlite_with_rowid=False,
)

alarm_destinations: Final = Table(
    "alarm_destinations",
    metadata,
    Column("id", Text, primary_key=True),
    _required("team_id", Text, ForeignKey("teams.id")),
    # NULL: the destination is for the installation.
    Column("factory_id", Text, ForeignKey("factories.id")),
    _required("kind", Text),
    _required("shown_target", Text),
    # A JSON list. Empty: all kinds.
    _required("alarm_kinds", Text),
    _required("includes_factories", Boolean),
    _required("key_id", Text),
    _required("sealed", LargeBinary),
    _required("created_at", _TIME),
    Column("last_sent_at", _TIME),
    comment="Where alarms are sent. The e-mail address, the URL and the signing secret are sealed.",
)

alarm_notices: Final = Table(
    "alarm_notices",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    _required("destination_id", Text, ForeignKey("alarm_destinations.id")),
    _required("notice", Text),
    # How many further notices the message stands for.
    _required("more", Integer),
    _required("state", Text),
    _required("attempts", Integer),
    _required("due_at", _TIME),
    # Until then, a process sends the message. Afterwards it has died, and another one sends it again.
    Column("claimed_until", _TIME),
    Column("attempted_at", _TIME),
    Column("finished_at", _TIME),
    # Why the latest attempt failed.
    Column("failure", Text),
    # For the limit of messages in a minute.
    Index("ix_alarm_notices_attempted_at", "destination_id", "attempted_at"),
    # For the first message that waits, and for the counts on pages.
    Index("ix_alarm_notices_state", "destination_id", "state", "id"),
    comment="An outbox: one row for each message to a destination. `notice` is JSON text.",
)

definition_runs: Final = Table(
    "definition_runs",
    metadata,
    Column("factory_id", Text, ForeignKey("factories.id"), primary_key=True),
    Column("act", Text, primary_key=True),
    Column("outcome", Text, primary_key=True),
    _required("at", _TIME),
    _required("actor_name", Text),
    _required("summary", Text),
    _required("lines", Text),
    comment="The last plan and the last apply of definition files, for each outcome.",
    sqlite_with_rowid=False,
)

alarms: Final = Table(
    "alarms",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    # NULL: the alarm is about the installation.
    Column("factory_id", Text),
    _required("kind", Text),
    _required("subject_id", Text),
    _required("subject_name", Text),
    _required("summary", Text),
    _required("raised_at", _TIME),
    # When the condition of an alarm about one host was last evaluated there.
    _required("checked_at", _TIME),
    Column("clear_since", _TIME),
    Column("resolved_at", _TIME),
    Column("snoozed_until", _TIME),
    Column("announced_at", _TIME),
    Column("last_announced_at", _TIME),
    _partial_index("uq_alarms_open", "kind", "subject_id", unique=True, where="resolved_at IS NULL"),
    # For every page of the dashboard, which marks open alarms.
    _partial_index("ix_alarms_open_factory_id", "factory_id", "id", where="resolved_at IS NULL"),
    Index("ix_alarms_factory_id", "factory_id", "id"),
    # For the latest alarm of a subject.
    Index("ix_alarms_subject_id", "subject_id", "kind", "id"),
    comment="Alarms, open and resolved. The open ones have no `resolved_at`.",
    sqlite_with_rowid=False,
)
