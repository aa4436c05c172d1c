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


def _time(name: str, **more: Any) -> Column[int]:
    return Column(name, BigInteger, **more)


installation_metadata: Final = Table(
    "metadata",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
    comment="Metadata of the database itself, such as the fingerprint of its master key.",
)

teams: Final = Table(
    "teams",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    _time("created_at", nullable=False),
)

factories: Final = Table(
    "factories",
    metadata,
    Column("id", Text, primary_key=True),
    Column("team_id", Text, ForeignKey("teams.id"), nullable=False),
    Column("name", Text, nullable=False, unique=True),
    _time("created_at", nullable=False),
    Column("defined_by_files", Boolean, nullable=False),
    Column("max_running", Integer),
)

secrets: Final = Table(
    "secrets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("team_id", Text, ForeignKey("teams.id"), nullable=False),
    Column("name", Text, nullable=False),
    _time("created_at", nullable=False),
    _time("deleted_at"),
    Column("factory_id", Text, nullable=False),
    Column("for_runs", Boolean, nullable=False),
    UniqueConstraint("team_id", "name"),
    comment="Team secrets. A value never changes in place: each change is a new version.",
)

secret_versions: Final = Table(
    "secret_versions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("secret_id", Text, ForeignKey("secrets.id"), nullable=False, index=True),
    Column("version", Integer, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    _time("created_at", nullable=False),
    UniqueConstraint("secret_id", "version"),
    # For the foreign key of webhooks.
    UniqueConstraint("id", "secret_id"),
)

webhooks: Final = Table(
    "webhooks",
    metadata,
    Column("no", Integer, primary_key=True),
    Column("uid", Text, nullable=False, unique=True),
    Column("factory_id", Text, ForeignKey("factories.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("auth_mode", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("secret_id", Text, ForeignKey("secrets.id"), nullable=False),
    Column("secret_version_id", Text),
    Column("signature_scheme", Text),
    Column("signature_options", Text),
    Column("answers_handshakes", Boolean, nullable=False),
    Column("delivery_id_header", Text),
    Column("event_header", Text),
    Column("allowed_networks", Text),
    # In seconds, counted from `expected_from`. NULL: no deliveries are expected.
    Column("expect_every", Integer),
    _time("expected_from"),
    Column("revision", BigInteger, nullable=False),
    _time("created_at", nullable=False),
    _time("deleted_at"),
    # The version is one of this secret.
    ForeignKeyConstraint(["secret_version_id", "secret_id"], ["secret_versions.id", "secret_versions.secret_id"]),
    CheckConstraint("auth_mode IN ('token', 'url_token', 'signature')", name="auth_mode"),
    CheckConstraint("state IN ('enabled', 'disabled', 'deleted')", name="state"),
    CheckConstraint("(state = 'deleted') = (deleted_at IS NOT NULL)", name="deleted_at"),
    CheckConstraint("state <> 'enabled' OR secret_version_id IS NOT NULL", name="enabled"),
    CheckConstraint("revision >= 1", name="revision"),
    # A deleted webhook's name can be used again, its uid can't.
    Index(
        "uq_webhooks_live_name",
        "factory_id",
        "name",
        unique=True,
        sqlite_where=text("state <> 'deleted'"),
        postgresql_where=text("state <> 'deleted'"),
    ),
    sqlite_autoincrement=True,
)

automations: Final = Table(
    "automations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("factory_id", Text, ForeignKey("factories.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("version", Integer, nullable=False),
    _time("created_at", nullable=False),
    _time("updated_at", nullable=False),
    _time("deleted_at"),
    # The values of the latest version's policy, for SQL conditions.
    Column("max_running", Integer),
    Column("pause_after_failures", Integer),
    Column("failures_in_row", Integer, nullable=False, server_default="0"),
    Column("pause_reason", Text),
    # Workers search both of these columns every few seconds or more often, and few automations have a value in them.
    Index(
        "ix_automations_max_running",
        "max_running",
        sqlite_where=text("max_running IS NOT NULL"),
        postgresql_where=text("max_running IS NOT NULL"),
    ),
    Index(
        "ix_automations_pause_after_failures",
        "pause_after_failures",
        sqlite_where=text("pause_after_failures IS NOT NULL"),
        postgresql_where=text("pause_after_failures IS NOT NULL"),
    ),
    Index(
        "uq_automations_live_name",
        "factory_id",
        "name",
        unique=True,
        sqlite_where=text("deleted_at IS NULL"),
        postgresql_where=text("deleted_at IS NULL"),
    ),
)

automation_versions: Final = Table(
    "automation_versions",
    metadata,
    Column("automation_id", Text, ForeignKey("automations.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("runner", Text, nullable=False),
    Column("triggers", Text, nullable=False),
    _time("created_at", nullable=False),
    Column("policy", Text, nullable=False),
    Column("options", Text, nullable=False),
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
    Column("cron", Text, nullable=False),
    Column("timezone", Text, nullable=False),
    Column("catch_up", Text, nullable=False),
    # When the schedule was stored. Its intervals count from here.
    _time("anchor", nullable=False),
    # The latest scheduled time that a worker has considered: it has started a run, or needs none.
    _time("last_at", nullable=False),
    # NULL while the automation is disabled.
    _time("next_at"),
    Index("ix_schedules_next_at", "next_at"),
    # For the search for schedules whose `last_at` is in the future, because the clock was wrong.
    Index(
        "ix_schedules_last_at",
        "last_at",
        sqlite_where=text("next_at IS NOT NULL"),
        postgresql_where=text("next_at IS NOT NULL"),
    ),
    comment="The schedules of automations that are not deleted, and when each is due.",
    sqlite_with_rowid=False,
)

deliveries: Final = Table(
    "deliveries",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("webhook_no", Integer, nullable=False),
    _time("received_at", nullable=False),
    Column("label", SmallInteger, nullable=False),
    Column("rate_limit", SmallInteger, nullable=False),
    Column("size", Integer, nullable=False),
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
    Index(
        "ix_deliveries_not_accepted",
        "webhook_no",
        "label",
        "received_at",
        sqlite_where=text("label <> 1"),
        postgresql_where=text("label <> 1"),
    ),
    Index(
        "ix_deliveries_duplicates",
        "webhook_no",
        "identity_digest",
        "id",
        sqlite_where=text("label = 2"),
        postgresql_where=text("label = 2"),
    ),
    # For the log by event type. Deliveries without event types don't have entries in this index.
    Index(
        "ix_deliveries_event",
        "webhook_no",
        "event",
        "label",
        "received_at",
        sqlite_where=text("event IS NOT NULL"),
        postgresql_where=text("event IS NOT NULL"),
    ),
    sqlite_with_rowid=False,
)

payloads: Final = Table(
    "payloads",
    metadata,
    Column("delivery_id", LargeBinary(16), primary_key=True),
    Column("body", LargeBinary, nullable=False),
    comment="Bodies of Accepted deliveries, byte for byte. Apart from the log, so that its pages stay small.",
)

identities: Final = Table(
    "identities",
    metadata,
    Column("segment", Integer, primary_key=True, autoincrement=False),
    Column("webhook_no", Integer, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary(16), primary_key=True),
    Column("delivery_id", LargeBinary(16), nullable=False),
    Column("kind", SmallInteger, nullable=False),
    _time("claimed_at", nullable=False),
    comment="Which events were accepted. A webhook has each digest in one segment only.",
    sqlite_with_rowid=False,
)

identity_segments: Final = Table(
    "identity_segments",
    metadata,
    Column("no", Integer, primary_key=True, autoincrement=False),
    _time("opened_at", nullable=False),
    # NULL: the open segment, to which new identities go.
    _time("closed_at"),
    # Transactions with a lower number may still add identities after `closed_at`. PostgreSQL only.
    Column("writable_before", BigInteger),
    # The Bloom filter that describes the segment. NULL: there is none yet.
    Column("filter_no", Integer),
    Index(
        "ix_identity_segments_without_filter",
        "no",
        sqlite_where=text("filter_no IS NULL"),
        postgresql_where=text("filter_no IS NULL"),
    ),
    comment="The segments of the identities, which divide them by time.",
    sqlite_with_rowid=False,
)

identity_filters: Final = Table(
    "identity_filters",
    metadata,
    Column("no", Integer, primary_key=True, autoincrement=False),
    Column("capacity", Integer, nullable=False),
    Column("identity_count", Integer, nullable=False),
    Column("bits", LargeBinary, nullable=False),
    comment="Bloom filters, each of the digests of several closed segments.",
)

window_counts: Final = Table(
    "window_counts",
    metadata,
    Column("webhook_no", Integer, primary_key=True, autoincrement=False),
    Column("rate_limit", SmallInteger, primary_key=True, autoincrement=False),
    Column("slot", SmallInteger, primary_key=True, autoincrement=False),
    Column("period", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    comment="Rows of the log by rate limit and period of time. Only for webhooks with high rate limits.",
    sqlite_with_rowid=False,
)

dropped_attempts: Final = Table(
    "dropped_attempts",
    metadata,
    Column("webhook_no", Integer, primary_key=True, autoincrement=False),
    _time("minute", primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    Column("count", Integer, nullable=False),
    comment="Attempts that get no row in the log, counted by webhook and minute.",
    sqlite_with_rowid=False,
)

runs: Final = Table(
    "runs",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("delivery_id", LargeBinary(16), nullable=False),
    Column("webhook_no", Integer, nullable=False),
    Column("factory_id", Text, nullable=False),
    Column("automation_id", Text, nullable=False),
    Column("automation_version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    _time("created_at", nullable=False),
    _time("claimed_at"),
    _time("started_at"),
    _time("finished_at"),
    _time("cancel_requested_at"),
    Column("executor", Text),
    Column("exit_status", Integer),
    Column("output_tail", Text),
    Column("reason", Text),
    Column("replay", Integer, nullable=False, server_default="0"),
    Column("priority", SmallInteger, nullable=False, server_default="1"),
    Column("policy_key", LargeBinary(16)),
    Column("hold", SmallInteger),
    _time("due_at"),
    _time("due_at_most"),
    Column("replaced_by", LargeBinary(16)),
    Column("failures", SmallInteger, nullable=False, server_default="0"),
    # Attempts that ended because their worker was stopped in an orderly way, or had claimed the run and no thread
    # performed it. They don't count towards `run_attempts_max`.
    Column("stopped_attempts", Integer, nullable=False, server_default="0"),
    # A run without a delivery has the webhook number 0, and its own id as the delivery id. Its payload, if any, is
    # stored under that id. A schedule started it, or else the person in `started_by`.
    Column("schedule", Text),
    Column("schedule_timezone", Text),
    _time("scheduled_at"),
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
    Index(
        "ix_runs_backlog",
        "factory_id",
        "priority",
        "id",
        sqlite_where=text("finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"),
        postgresql_where=text("finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"),
    ),
    # Three indexes for runs that a policy holds: by factory for the pages, by time for decisions, and by policy key.
    Index(
        "ix_runs_held",
        "factory_id",
        "id",
        sqlite_where=text("finished_at IS NULL AND hold IS NOT NULL"),
        postgresql_where=text("finished_at IS NULL AND hold IS NOT NULL"),
    ),
    Index(
        "ix_runs_due",
        "hold",
        "due_at",
        "id",
        sqlite_where=text("finished_at IS NULL AND hold IS NOT NULL"),
        postgresql_where=text("finished_at IS NULL AND hold IS NOT NULL"),
    ),
    Index(
        "ix_runs_key",
        "policy_key",
        "hold",
        "id",
        sqlite_where=text("finished_at IS NULL AND policy_key IS NOT NULL"),
        postgresql_where=text("finished_at IS NULL AND policy_key IS NOT NULL"),
    ),
    Index(
        "ix_runs_claimed",
        "executor",
        sqlite_where=text("finished_at IS NULL AND executor IS NOT NULL"),
        postgresql_where=text("finished_at IS NULL AND executor IS NOT NULL"),
    ),
    Index("ix_runs_webhook_no", "webhook_no", "id"),
    Index(
        "ix_runs_not_succeeded",
        "webhook_no",
        "state",
        "id",
        sqlite_where=text("state NOT IN ('queued', 'running', 'succeeded')"),
        postgresql_where=text("state NOT IN ('queued', 'running', 'succeeded')"),
    ),
    # The same two indexes for runs without a delivery. They all have the webhook number 0, so the factory replaces it.
    Index(
        "ix_runs_without_delivery",
        "factory_id",
        "id",
        sqlite_where=text("webhook_no = 0"),
        postgresql_where=text("webhook_no = 0"),
    ),
    Index(
        "ix_runs_without_delivery_not_succeeded",
        "factory_id",
        "state",
        "id",
        sqlite_where=text("webhook_no = 0 AND state NOT IN ('queued', 'running', 'succeeded')"),
        postgresql_where=text("webhook_no = 0 AND state NOT IN ('queued', 'running', 'succeeded')"),
    ),
    # The same two indexes for the runs of one automation, which are read one webhook at a time.
    Index("ix_runs_automation_id", "automation_id", "webhook_no", "id"),
    Index(
        "ix_runs_automation_not_succeeded",
        "automation_id",
        "webhook_no",
        "state",
        "id",
        sqlite_where=text("state NOT IN ('queued', 'running', 'succeeded')"),
        postgresql_where=text("state NOT IN ('queued', 'running', 'succeeded')"),
    ),
    sqlite_with_rowid=False,
)

failed_attempts: Final = Table(
    "failed_attempts",
    metadata,
    Column("run_id", LargeBinary(16), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    _time("started_at", nullable=False),
    _time("finished_at", nullable=False),
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
    Column("is_result_cut", Boolean, nullable=False),
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
    Column("content", Text, nullable=False),
    Column("is_cut", Boolean, nullable=False),
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
    Column("kind", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("target", Text, nullable=False),
    # Messages with the same lane are sent in their order.
    Column("lane", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("log", Text, nullable=False),
    Column("is_uncertain", Boolean, nullable=False),
    _time("queued_at", nullable=False),
    _time("due_at"),
    _time("claimed_until"),
    # The executor that has claimed the message.
    Column("claimed_by", Text),
    _time("finished_at"),
    Column("failure", Text),
    Column("url", Text),
    # The number of the check run, comment or review at GitHub or Gitea that the message has created or changed.
    Column("remote_id", BigInteger),
    Index(
        "ix_run_results_waiting",
        "lane",
        "queued_at",
        sqlite_where=text("state = 'waiting'"),
        postgresql_where=text("state = 'waiting'"),
    ),
    Index(
        "ix_run_results_open",
        "run_id",
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    ),
    # For the comment of earlier runs, which a newer run updates.
    Index(
        "ix_run_results_remote_id",
        "lane",
        "queued_at",
        sqlite_where=text("remote_id IS NOT NULL"),
        postgresql_where=text("remote_id IS NOT NULL"),
    ),
    comment="An outbox: one row for each message about a run. `target` and `log` are JSON texts.",
    sqlite_with_rowid=False,
)

platform_attempts: Final = Table(
    "platform_attempts",
    metadata,
    Column("run_id", LargeBinary(16), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    # The SHA-256 of the token that the platform needs to report about the attempt.
    Column("token_digest", LargeBinary(32), nullable=False),
    _time("created_at", nullable=False),
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
    Column("attempt", Integer, nullable=False),
    # In bytes. NULL: the command has removed this file of the prepared package.
    Column("size", BigInteger),
    # The name of the host that has the package.
    Column("host", Text, nullable=False),
    # NULL: only that host or the object has the content. For the output, it can be the end of the file.
    Column("content", LargeBinary),
    # The key of the object that has the content, or will have it. The row exists before the object.
    Column("object_key", Text),
    # Whether that host has yet to upload the object. NULL: no.
    Column("is_upload_pending", Boolean),
    # For each worker's search for files that it has yet to upload.
    Index(
        "ix_run_files_is_upload_pending",
        "host",
        "run_id",
        sqlite_where=text("is_upload_pending"),
        postgresql_where=text("is_upload_pending"),
    ),
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
    _time("started_at", nullable=False),
    _time("last_seen_at", nullable=False),
    comment="Processes that perform runs, and when each last said that it lives.",
)

audit_log: Final = Table(
    "audit_log",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("team_id", Text, ForeignKey("teams.id"), nullable=False),
    Column("factory_id", Text),
    _time("at", nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor_id", Text, nullable=False),
    Column("actor_name", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("client", Text),
    Column("action", Text, nullable=False),
    Column("subject_kind", Text, nullable=False),
    Column("subject_id", Text, nullable=False),
    Column("subject_name", Text, nullable=False),
    Column("details", Text, nullable=False),
    CheckConstraint("actor_kind IN ('operator', 'key', 'member', 'service')", name="actor_kind"),
    CheckConstraint("channel IN ('cli', 'api', 'files', 'dashboard', 'service')", name="channel"),
    Index("ix_audit_log_factory_id", "factory_id", "id"),
    Index("ix_audit_log_team_id", "team_id", "id"),
    comment="Every act of management, written with it. Nothing changes or removes a row. `details` is JSON text.",
    sqlite_with_rowid=False,
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("team_id", Text, ForeignKey("teams.id"), nullable=False),
    Column("factory_id", Text, ForeignKey("factories.id")),
    Column("role", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    _time("created_at", nullable=False),
    _time("expires_at"),
    _time("revoked_at"),
    _time("last_used_at"),
    comment="API keys by the SHA-256 of their token, which is 256 random bits and kept nowhere.",
)

members: Final = Table(
    "members",
    metadata,
    Column("id", Text, primary_key=True),
    Column("team_id", Text, ForeignKey("teams.id"), nullable=False),
    Column("email", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("is_admin", Boolean, nullable=False),
    _time("created_at", nullable=False),
    _time("removed_at"),
    Column("password_hash", Text),
    Column("oidc_issuer", Text),
    Column("oidc_subject", Text),
    # A removed member can be added again, as a new row with the same address or the same identity.
    Index(
        "uq_members_email",
        "team_id",
        "email",
        unique=True,
        sqlite_where=text("removed_at IS NULL"),
        postgresql_where=text("removed_at IS NULL"),
    ),
    Index(
        "uq_members_oidc_subject",
        "oidc_issuer",
        "oidc_subject",
        unique=True,
        sqlite_where=text("removed_at IS NULL"),
        postgresql_where=text("removed_at IS NULL"),
    ),
)

member_roles: Final = Table(
    "member_roles",
    metadata,
    Column("member_id", Text, ForeignKey("members.id"), primary_key=True),
    Column("factory_id", Text, ForeignKey("factories.id"), primary_key=True),
    Column("role", Text, nullable=False),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("request_digest", LargeBinary(32), nullable=False),
    Column("key_id", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    _time("created_at", nullable=False, index=True),
    comment="Answers that are given again when a request is repeated. They may hold a secret that is shown once.",
)

sessions: Final = Table(
    "sessions",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("member_id", Text, ForeignKey("members.id"), nullable=False, index=True),
    _time("created_at", nullable=False),
    _time("last_seen_at", nullable=False),
    Column("client", Text),
    Column("method", Text, nullable=False),
    Column("rules_tag", LargeBinary(32)),
    comment="Who is signed in, by the SHA-256 of what their browser holds: a copy of this table opens nothing.",
    sqlite_with_rowid=False,
)

sign_in_links: Final = Table(
    "sign_in_links",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("team_id", Text, ForeignKey("teams.id"), nullable=False),
    Column("member_id", Text, ForeignKey("members.id")),
    _time("expires_at", nullable=False),
    comment="Links that let somebody choose a password, once. One without a member makes the first admin.",
    sqlite_with_rowid=False,
)

alarm_destinations: Final = Table(
    "alarm_destinations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("team_id", Text, ForeignKey("teams.id"), nullable=False),
    # NULL: the destination is for the installation.
    Column("factory_id", Text, ForeignKey("factories.id")),
    Column("kind", Text, nullable=False),
    Column("shown_target", Text, nullable=False),
    # A JSON list. Empty: all kinds.
    Column("alarm_kinds", Text, nullable=False),
    Column("includes_factories", Boolean, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    _time("created_at", nullable=False),
    _time("last_sent_at"),
    comment="Where alarms are sent. The e-mail address, the URL and the signing secret are sealed.",
)

alarm_notices: Final = Table(
    "alarm_notices",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("destination_id", Text, ForeignKey("alarm_destinations.id"), nullable=False),
    Column("notice", Text, nullable=False),
    # How many further notices the message stands for.
    Column("more", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    _time("due_at", nullable=False),
    # Until then, a process sends the message. Afterwards it has died, and another one sends it again.
    _time("claimed_until"),
    _time("attempted_at"),
    _time("finished_at"),
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
    _time("at", nullable=False),
    Column("actor_name", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("lines", Text, nullable=False),
    comment="The last plan and the last apply of definition files, for each outcome.",
    sqlite_with_rowid=False,
)

alarms: Final = Table(
    "alarms",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    # NULL: the alarm is about the installation.
    Column("factory_id", Text),
    Column("kind", Text, nullable=False),
    Column("subject_id", Text, nullable=False),
    Column("subject_name", Text, nullable=False),
    Column("summary", Text, nullable=False),
    _time("raised_at", nullable=False),
    # When the condition of an alarm about one host was last evaluated there.
    _time("checked_at", nullable=False),
    _time("clear_since"),
    _time("resolved_at"),
    _time("snoozed_until"),
    _time("announced_at"),
    _time("last_announced_at"),
    Index(
        "uq_alarms_open",
        "kind",
        "subject_id",
        unique=True,
        sqlite_where=text("resolved_at IS NULL"),
        postgresql_where=text("resolved_at IS NULL"),
    ),
    # For every page of the dashboard, which marks open alarms.
    Index(
        "ix_alarms_open_factory_id",
        "factory_id",
        "id",
        sqlite_where=text("resolved_at IS NULL"),
        postgresql_where=text("resolved_at IS NULL"),
    ),
    Index("ix_alarms_factory_id", "factory_id", "id"),
    # For the latest alarm of a subject.
    Index("ix_alarms_subject_id", "subject_id", "kind", "id"),
    comment="Alarms, open and resolved. The open ones have no `resolved_at`.",
    sqlite_with_rowid=False,
)
