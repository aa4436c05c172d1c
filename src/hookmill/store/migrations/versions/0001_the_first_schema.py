"""The first schema."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    UniqueConstraint,
    text,
)

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "alarms",
        Column("id", LargeBinary(length=16), nullable=False),
        Column("factory_id", Text),
        Column("kind", Text, nullable=False),
        Column("subject_id", Text, nullable=False),
        Column("subject_name", Text, nullable=False),
        Column("summary", Text, nullable=False),
        Column("raised_at", BigInteger, nullable=False),
        Column("checked_at", BigInteger, nullable=False),
        Column("clear_since", BigInteger),
        Column("resolved_at", BigInteger),
        Column("snoozed_until", BigInteger),
        Column("announced_at", BigInteger),
        Column("last_announced_at", BigInteger),
        PrimaryKeyConstraint("id", name=op.f("pk_alarms")),
        comment="Alarms, open and resolved. The open ones have no `resolved_at`.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_alarms_factory_id", "alarms", ["factory_id", "id"])
    op.create_index(
        "ix_alarms_open_factory_id",
        "alarms",
        ["factory_id", "id"],
        sqlite_where=text("resolved_at IS NULL"),
        postgresql_where=text("resolved_at IS NULL"),
    )
    op.create_index("ix_alarms_subject_id", "alarms", ["subject_id", "kind", "id"])
    op.create_index(
        "uq_alarms_open",
        "alarms",
        ["kind", "subject_id"],
        unique=True,
        sqlite_where=text("resolved_at IS NULL"),
        postgresql_where=text("resolved_at IS NULL"),
    )
    op.create_table(
        "attempt_reports",
        Column("run_id", LargeBinary(length=16), nullable=False),
        Column("attempt", Integer, autoincrement=False, nullable=False),
        Column("result", Text),
        Column("is_result_cut", Boolean, nullable=False),
        Column("cost_microusd", BigInteger),
        Column("input_tokens", BigInteger),
        Column("output_tokens", BigInteger),
        Column("model", Text),
        PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_attempt_reports")),
        comment="What agents have reported about attempts that have ended. Attempts without a report have no row.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deliveries",
        Column("id", LargeBinary(length=16), nullable=False),
        Column("webhook_no", Integer, nullable=False),
        Column("received_at", BigInteger, nullable=False),
        Column("label", SmallInteger, nullable=False),
        Column("rate_limit", SmallInteger, nullable=False),
        Column("size", Integer, nullable=False),
        Column("identity_kind", SmallInteger),
        Column("identity", Text),
        Column("identity_digest", LargeBinary(length=16)),
        Column("duplicate_of", LargeBinary(length=16)),
        Column("reason", Text),
        Column("client", Text),
        Column("event", Text),
        Column("event_signed", Boolean),
        Column("traceparent", Text),
        CheckConstraint("(label = 2) = (duplicate_of IS NOT NULL)", name=op.f("ck_deliveries_duplicate_of")),
        CheckConstraint("identity_kind BETWEEN 1 AND 5", name=op.f("ck_deliveries_identity_kind")),
        CheckConstraint("label BETWEEN 1 AND 5", name=op.f("ck_deliveries_label")),
        CheckConstraint("rate_limit BETWEEN 1 AND 2", name=op.f("ck_deliveries_rate_limit")),
        PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_deliveries_duplicates",
        "deliveries",
        ["webhook_no", "identity_digest", "id"],
        sqlite_where=text("label = 2"),
        postgresql_where=text("label = 2"),
    )
    op.create_index(
        "ix_deliveries_event",
        "deliveries",
        ["webhook_no", "event", "label", "received_at"],
        sqlite_where=text("event IS NOT NULL"),
        postgresql_where=text("event IS NOT NULL"),
    )
    op.create_index("ix_deliveries_log", "deliveries", ["webhook_no", "received_at", "rate_limit"])
    op.create_index(
        "ix_deliveries_not_accepted",
        "deliveries",
        ["webhook_no", "label", "received_at"],
        sqlite_where=text("label <> 1"),
        postgresql_where=text("label <> 1"),
    )
    op.create_table(
        "dropped_attempts",
        Column("webhook_no", Integer, autoincrement=False, nullable=False),
        Column("minute", BigInteger, autoincrement=False, nullable=False),
        Column("kind", Text, nullable=False),
        Column("count", Integer, nullable=False),
        PrimaryKeyConstraint("webhook_no", "minute", "kind", name=op.f("pk_dropped_attempts")),
        comment="Attempts that get no row in the log, counted by webhook and minute.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "executors",
        Column("id", Text, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("last_seen_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("id", name=op.f("pk_executors")),
        comment="Processes that perform runs, and when each last said that it lives.",
    )
    op.create_table(
        "failed_attempts",
        Column("run_id", LargeBinary(length=16), nullable=False),
        Column("attempt", Integer, autoincrement=False, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("finished_at", BigInteger, nullable=False),
        Column("exit_status", Integer),
        Column("output_tail", Text),
        Column("reason", Text),
        PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_failed_attempts")),
        comment="Attempts that failed and were followed by another one.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "idempotency_keys",
        Column("id", Text, nullable=False),
        Column("request_digest", LargeBinary(length=32), nullable=False),
        Column("key_id", Text, nullable=False),
        Column("sealed", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
        comment="Answers that are given again when a request is repeated. They may hold a secret that is shown once.",
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"])
    op.create_table(
        "identities",
        Column("segment", Integer, autoincrement=False, nullable=False),
        Column("webhook_no", Integer, autoincrement=False, nullable=False),
        Column("digest", LargeBinary(length=16), nullable=False),
        Column("delivery_id", LargeBinary(length=16), nullable=False),
        Column("kind", SmallInteger, nullable=False),
        Column("claimed_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("segment", "webhook_no", "digest", name=op.f("pk_identities")),
        comment="Which events were accepted. A webhook has each digest in one segment only.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "identity_filters",
        Column("no", Integer, autoincrement=False, nullable=False),
        Column("capacity", Integer, nullable=False),
        Column("identity_count", Integer, nullable=False),
        Column("bits", LargeBinary, nullable=False),
        PrimaryKeyConstraint("no", name=op.f("pk_identity_filters")),
        comment="Bloom filters, each of the digests of several closed segments.",
    )
    op.create_table(
        "identity_segments",
        Column("no", Integer, autoincrement=False, nullable=False),
        Column("opened_at", BigInteger, nullable=False),
        Column("closed_at", BigInteger),
        Column("writable_before", BigInteger),
        Column("filter_no", Integer),
        PrimaryKeyConstraint("no", name=op.f("pk_identity_segments")),
        comment="The segments of the identities, which divide them by time.",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_identity_segments_without_filter",
        "identity_segments",
        ["no"],
        sqlite_where=text("filter_no IS NULL"),
        postgresql_where=text("filter_no IS NULL"),
    )
    op.create_table(
        "metadata",
        Column("name", Text, nullable=False),
        Column("value", LargeBinary, nullable=False),
        PrimaryKeyConstraint("name", name=op.f("pk_metadata")),
        comment="Metadata of the database itself, such as the fingerprint of its master key.",
    )
    op.create_table(
        "payloads",
        Column("delivery_id", LargeBinary(length=16), nullable=False),
        Column("body", LargeBinary, nullable=False),
        PrimaryKeyConstraint("delivery_id", name=op.f("pk_payloads")),
        comment="Bodies of Accepted deliveries, byte for byte. Apart from the log, so that its pages stay small.",
    )
    op.create_table(
        "platform_attempts",
        Column("run_id", LargeBinary(length=16), nullable=False),
        Column("attempt", Integer, autoincrement=False, nullable=False),
        Column("token_digest", LargeBinary(length=32), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("report", Text),
        PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_platform_attempts")),
        comment="Attempts that a runner has handed to an agent platform.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "removed_objects",
        Column("object_key", Text, nullable=False),
        PrimaryKeyConstraint("object_key", name=op.f("pk_removed_objects")),
        comment="Objects that have no row in run_files any more, and that the object store may still have.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "removed_runs",
        Column("run_id", LargeBinary(length=16), nullable=False),
        PrimaryKeyConstraint("run_id", name=op.f("pk_removed_runs")),
        comment="Runs that retention has removed, and whose files it has not removed yet.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run_files",
        Column("run_id", LargeBinary(length=16), nullable=False),
        Column("name", LargeBinary, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("size", BigInteger),
        Column("host", Text, nullable=False),
        Column("content", LargeBinary),
        Column("object_key", Text),
        Column("is_upload_pending", Boolean),
        PrimaryKeyConstraint("run_id", "name", name=op.f("pk_run_files")),
        comment="Files of runs for all hosts. Prepared files that the command left unchanged have no row.",
    )
    op.create_index(
        "ix_run_files_is_upload_pending",
        "run_files",
        ["host", "run_id"],
        sqlite_where=text("is_upload_pending"),
        postgresql_where=text("is_upload_pending"),
    )
    op.create_table(
        "run_outputs",
        Column("run_id", LargeBinary(length=16), nullable=False),
        Column("name", Text, nullable=False),
        Column("content", Text, nullable=False),
        Column("is_cut", Boolean, nullable=False),
        PrimaryKeyConstraint("run_id", "name", name=op.f("pk_run_outputs")),
        comment="The texts that runs which have ended wrote to their directories of outputs.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run_results",
        Column("run_id", LargeBinary(length=16), nullable=False),
        Column("number", Integer, autoincrement=False, nullable=False),
        Column("phase", Integer, autoincrement=False, nullable=False),
        Column("kind", Text, nullable=False),
        Column("destination", Text, nullable=False),
        Column("target", Text, nullable=False),
        Column("lane", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("log", Text, nullable=False),
        Column("is_uncertain", Boolean, nullable=False),
        Column("queued_at", BigInteger, nullable=False),
        Column("due_at", BigInteger),
        Column("claimed_until", BigInteger),
        Column("claimed_by", Text),
        Column("finished_at", BigInteger),
        Column("failure", Text),
        Column("url", Text),
        Column("remote_id", BigInteger),
        PrimaryKeyConstraint("run_id", "number", "phase", name=op.f("pk_run_results")),
        comment="An outbox: one row for each message about a run. `target` and `log` are JSON texts.",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_run_results_open",
        "run_results",
        ["run_id"],
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    )
    op.create_index(
        "ix_run_results_remote_id",
        "run_results",
        ["lane", "queued_at"],
        sqlite_where=text("remote_id IS NOT NULL"),
        postgresql_where=text("remote_id IS NOT NULL"),
    )
    op.create_index(
        "ix_run_results_waiting",
        "run_results",
        ["lane", "queued_at"],
        sqlite_where=text("state = 'waiting'"),
        postgresql_where=text("state = 'waiting'"),
    )
    op.create_table(
        "runs",
        Column("id", LargeBinary(length=16), nullable=False),
        Column("delivery_id", LargeBinary(length=16), nullable=False),
        Column("webhook_no", Integer, nullable=False),
        Column("factory_id", Text, nullable=False),
        Column("automation_id", Text, nullable=False),
        Column("automation_version", Integer, nullable=False),
        Column("state", Text, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("claimed_at", BigInteger),
        Column("started_at", BigInteger),
        Column("finished_at", BigInteger),
        Column("cancel_requested_at", BigInteger),
        Column("executor", Text),
        Column("exit_status", Integer),
        Column("output_tail", Text),
        Column("reason", Text),
        Column("replay", Integer, server_default="0", nullable=False),
        Column("priority", SmallInteger, server_default="1", nullable=False),
        Column("policy_key", LargeBinary(length=16)),
        Column("hold", SmallInteger),
        Column("due_at", BigInteger),
        Column("due_at_most", BigInteger),
        Column("replaced_by", LargeBinary(length=16)),
        Column("failures", SmallInteger, server_default="0", nullable=False),
        Column("stopped_attempts", Integer, server_default="0", nullable=False),
        Column("schedule", Text),
        Column("schedule_timezone", Text),
        Column("scheduled_at", BigInteger),
        Column("started_by", Text),
        Column("package_webhook_name", Text),
        Column("has_more_files", Boolean),
        CheckConstraint("(state IN ('queued', 'running')) = (finished_at IS NULL)", name=op.f("ck_runs_finished_at")),
        CheckConstraint("hold IS NULL OR (hold BETWEEN 1 AND 4 AND state = 'queued')", name=op.f("ck_runs_hold")),
        CheckConstraint("state <> 'queued' OR executor IS NULL OR claimed_at IS NULL", name=op.f("ck_runs_queued")),
        CheckConstraint(
            "state <> 'running' OR (executor IS NOT NULL AND claimed_at IS NOT NULL)", name=op.f("ck_runs_running")
        ),
        CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'interrupted', 'skipped', 'replaced', 'superseded')",
            name=op.f("ck_runs_state"),
        ),
        CheckConstraint(
            "failures >= 0 AND stopped_attempts >= 0 AND attempt >= failures + stopped_attempts",
            name=op.f("ck_runs_attempts"),
        ),
        CheckConstraint("length(policy_key) = 16", name=op.f("ck_runs_policy_key")),
        CheckConstraint("webhook_no <> 0 OR delivery_id = id", name=op.f("ck_runs_without_delivery")),
        PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        UniqueConstraint(
            "delivery_id", "automation_id", "replay", name=op.f("uq_runs_delivery_id_automation_id_replay")
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_runs_automation_id", "runs", ["automation_id", "webhook_no", "id"])
    op.create_index(
        "ix_runs_automation_not_succeeded",
        "runs",
        ["automation_id", "webhook_no", "state", "id"],
        sqlite_where=text("state NOT IN ('queued', 'running', 'succeeded')"),
        postgresql_where=text("state NOT IN ('queued', 'running', 'succeeded')"),
    )
    op.create_index(
        "ix_runs_backlog",
        "runs",
        ["factory_id", "priority", "id"],
        sqlite_where=text("finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"),
        postgresql_where=text("finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"),
    )
    op.create_index(
        "ix_runs_claimed",
        "runs",
        ["executor"],
        sqlite_where=text("finished_at IS NULL AND executor IS NOT NULL"),
        postgresql_where=text("finished_at IS NULL AND executor IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_due",
        "runs",
        ["hold", "due_at", "id"],
        sqlite_where=text("finished_at IS NULL AND hold IS NOT NULL"),
        postgresql_where=text("finished_at IS NULL AND hold IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_held",
        "runs",
        ["factory_id", "id"],
        sqlite_where=text("finished_at IS NULL AND hold IS NOT NULL"),
        postgresql_where=text("finished_at IS NULL AND hold IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_key",
        "runs",
        ["policy_key", "hold", "id"],
        sqlite_where=text("finished_at IS NULL AND policy_key IS NOT NULL"),
        postgresql_where=text("finished_at IS NULL AND policy_key IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_not_succeeded",
        "runs",
        ["webhook_no", "state", "id"],
        sqlite_where=text("state NOT IN ('queued', 'running', 'succeeded')"),
        postgresql_where=text("state NOT IN ('queued', 'running', 'succeeded')"),
    )
    op.create_index("ix_runs_webhook_no", "runs", ["webhook_no", "id"])
    op.create_index(
        "ix_runs_without_delivery",
        "runs",
        ["factory_id", "id"],
        sqlite_where=text("webhook_no = 0"),
        postgresql_where=text("webhook_no = 0"),
    )
    op.create_index(
        "ix_runs_without_delivery_not_succeeded",
        "runs",
        ["factory_id", "state", "id"],
        sqlite_where=text("webhook_no = 0 AND state NOT IN ('queued', 'running', 'succeeded')"),
        postgresql_where=text("webhook_no = 0 AND state NOT IN ('queued', 'running', 'succeeded')"),
    )
    op.create_table(
        "teams",
        Column("id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("id", name=op.f("pk_teams")),
    )
    op.create_table(
        "window_counts",
        Column("webhook_no", Integer, autoincrement=False, nullable=False),
        Column("rate_limit", SmallInteger, autoincrement=False, nullable=False),
        Column("slot", SmallInteger, autoincrement=False, nullable=False),
        Column("period", BigInteger, nullable=False),
        Column("count", Integer, nullable=False),
        PrimaryKeyConstraint("webhook_no", "rate_limit", "slot", name=op.f("pk_window_counts")),
        comment="Rows of the log by rate limit and period of time. Only for webhooks with high rate limits.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "audit_log",
        Column("id", LargeBinary(length=16), nullable=False),
        Column("team_id", Text, nullable=False),
        Column("factory_id", Text),
        Column("at", BigInteger, nullable=False),
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
        CheckConstraint("actor_kind IN ('operator', 'key', 'member', 'service')", name=op.f("ck_audit_log_actor_kind")),
        CheckConstraint(
            "channel IN ('cli', 'api', 'files', 'dashboard', 'service')", name=op.f("ck_audit_log_channel")
        ),
        ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_audit_log_team_id")),
        PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
        comment="Every act of management, written with it. Nothing changes or removes a row. `details` is JSON text.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_audit_log_factory_id", "audit_log", ["factory_id", "id"])
    op.create_index("ix_audit_log_team_id", "audit_log", ["team_id", "id"])
    op.create_table(
        "factories",
        Column("id", Text, nullable=False),
        Column("team_id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("defined_by_files", Boolean, nullable=False),
        Column("max_running", Integer),
        ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_factories_team_id")),
        PrimaryKeyConstraint("id", name=op.f("pk_factories")),
        UniqueConstraint("name", name=op.f("uq_factories_name")),
    )
    op.create_table(
        "members",
        Column("id", Text, nullable=False),
        Column("team_id", Text, nullable=False),
        Column("email", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("is_admin", Boolean, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("removed_at", BigInteger),
        Column("password_hash", Text),
        Column("oidc_issuer", Text),
        Column("oidc_subject", Text),
        ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_members_team_id")),
        PrimaryKeyConstraint("id", name=op.f("pk_members")),
    )
    op.create_index(
        "uq_members_email",
        "members",
        ["team_id", "email"],
        unique=True,
        sqlite_where=text("removed_at IS NULL"),
        postgresql_where=text("removed_at IS NULL"),
    )
    op.create_index(
        "uq_members_oidc_subject",
        "members",
        ["oidc_issuer", "oidc_subject"],
        unique=True,
        sqlite_where=text("removed_at IS NULL"),
        postgresql_where=text("removed_at IS NULL"),
    )
    op.create_table(
        "secrets",
        Column("id", Text, nullable=False),
        Column("team_id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("deleted_at", BigInteger),
        Column("factory_id", Text, nullable=False),
        Column("for_runs", Boolean, nullable=False),
        ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_secrets_team_id")),
        PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
        UniqueConstraint("team_id", "name", name=op.f("uq_secrets_team_id_name")),
        comment="Team secrets. A value never changes in place: each change is a new version.",
    )
    op.create_table(
        "alarm_destinations",
        Column("id", Text, nullable=False),
        Column("team_id", Text, nullable=False),
        Column("factory_id", Text),
        Column("kind", Text, nullable=False),
        Column("shown_target", Text, nullable=False),
        Column("alarm_kinds", Text, nullable=False),
        Column("includes_factories", Boolean, nullable=False),
        Column("key_id", Text, nullable=False),
        Column("sealed", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("last_sent_at", BigInteger),
        ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_alarm_destinations_factory_id")),
        ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_alarm_destinations_team_id")),
        PrimaryKeyConstraint("id", name=op.f("pk_alarm_destinations")),
        comment="Where alarms are sent. The e-mail address, the URL and the signing secret are sealed.",
    )
    op.create_table(
        "api_keys",
        Column("id", Text, nullable=False),
        Column("team_id", Text, nullable=False),
        Column("factory_id", Text),
        Column("role", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("digest", LargeBinary(length=32), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger),
        Column("revoked_at", BigInteger),
        Column("last_used_at", BigInteger),
        ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_api_keys_factory_id")),
        ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_api_keys_team_id")),
        PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
        comment="API keys by the SHA-256 of their token, which is 256 random bits and kept nowhere.",
    )
    op.create_table(
        "automations",
        Column("id", Text, nullable=False),
        Column("factory_id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("enabled", Boolean, nullable=False),
        Column("version", Integer, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Column("deleted_at", BigInteger),
        Column("max_running", Integer),
        Column("pause_after_failures", Integer),
        Column("failures_in_row", Integer, server_default="0", nullable=False),
        Column("pause_reason", Text),
        ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_automations_factory_id")),
        PrimaryKeyConstraint("id", name=op.f("pk_automations")),
    )
    op.create_index(
        "ix_automations_max_running",
        "automations",
        ["max_running"],
        sqlite_where=text("max_running IS NOT NULL"),
        postgresql_where=text("max_running IS NOT NULL"),
    )
    op.create_index(
        "ix_automations_pause_after_failures",
        "automations",
        ["pause_after_failures"],
        sqlite_where=text("pause_after_failures IS NOT NULL"),
        postgresql_where=text("pause_after_failures IS NOT NULL"),
    )
    op.create_index(
        "uq_automations_live_name",
        "automations",
        ["factory_id", "name"],
        unique=True,
        sqlite_where=text("deleted_at IS NULL"),
        postgresql_where=text("deleted_at IS NULL"),
    )
    op.create_table(
        "definition_runs",
        Column("factory_id", Text, nullable=False),
        Column("act", Text, nullable=False),
        Column("outcome", Text, nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("actor_name", Text, nullable=False),
        Column("summary", Text, nullable=False),
        Column("lines", Text, nullable=False),
        ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_definition_runs_factory_id")),
        PrimaryKeyConstraint("factory_id", "act", "outcome", name=op.f("pk_definition_runs")),
        comment="The last plan and the last apply of definition files, for each outcome.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "member_roles",
        Column("member_id", Text, nullable=False),
        Column("factory_id", Text, nullable=False),
        Column("role", Text, nullable=False),
        ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_member_roles_factory_id")),
        ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_member_roles_member_id")),
        PrimaryKeyConstraint("member_id", "factory_id", name=op.f("pk_member_roles")),
    )
    op.create_table(
        "secret_versions",
        Column("id", Text, nullable=False),
        Column("secret_id", Text, nullable=False),
        Column("version", Integer, nullable=False),
        Column("key_id", Text, nullable=False),
        Column("sealed", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        ForeignKeyConstraint(["secret_id"], ["secrets.id"], name=op.f("fk_secret_versions_secret_id")),
        PrimaryKeyConstraint("id", name=op.f("pk_secret_versions")),
        UniqueConstraint("id", "secret_id", name=op.f("uq_secret_versions_id_secret_id")),
        UniqueConstraint("secret_id", "version", name=op.f("uq_secret_versions_secret_id_version")),
    )
    op.create_index(op.f("ix_secret_versions_secret_id"), "secret_versions", ["secret_id"])
    op.create_table(
        "sessions",
        Column("digest", LargeBinary(length=32), nullable=False),
        Column("member_id", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("last_seen_at", BigInteger, nullable=False),
        Column("client", Text),
        Column("method", Text, nullable=False),
        Column("rules_tag", LargeBinary(length=32)),
        ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_sessions_member_id")),
        PrimaryKeyConstraint("digest", name=op.f("pk_sessions")),
        comment="Who is signed in, by the SHA-256 of what their browser holds: a copy of this table opens nothing.",
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_sessions_member_id"), "sessions", ["member_id"])
    op.create_table(
        "sign_in_links",
        Column("digest", LargeBinary(length=32), nullable=False),
        Column("team_id", Text, nullable=False),
        Column("member_id", Text),
        Column("expires_at", BigInteger, nullable=False),
        ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_sign_in_links_member_id")),
        ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_sign_in_links_team_id")),
        PrimaryKeyConstraint("digest", name=op.f("pk_sign_in_links")),
        comment="Links that let somebody choose a password, once. One without a member makes the first admin.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "alarm_notices",
        Column("id", LargeBinary(length=16), nullable=False),
        Column("destination_id", Text, nullable=False),
        Column("notice", Text, nullable=False),
        Column("more", Integer, nullable=False),
        Column("state", Text, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("claimed_until", BigInteger),
        Column("attempted_at", BigInteger),
        Column("finished_at", BigInteger),
        Column("failure", Text),
        ForeignKeyConstraint(
            ["destination_id"], ["alarm_destinations.id"], name=op.f("fk_alarm_notices_destination_id")
        ),
        PrimaryKeyConstraint("id", name=op.f("pk_alarm_notices")),
        comment="An outbox: one row for each message to a destination. `notice` is JSON text.",
    )
    op.create_index("ix_alarm_notices_attempted_at", "alarm_notices", ["destination_id", "attempted_at"])
    op.create_index("ix_alarm_notices_state", "alarm_notices", ["destination_id", "state", "id"])
    op.create_table(
        "automation_versions",
        Column("automation_id", Text, nullable=False),
        Column("version", Integer, nullable=False),
        Column("name", Text, nullable=False),
        Column("prompt", Text, nullable=False),
        Column("runner", Text, nullable=False),
        Column("triggers", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("policy", Text, nullable=False),
        Column("options", Text, nullable=False),
        ForeignKeyConstraint(["automation_id"], ["automations.id"], name=op.f("fk_automation_versions_automation_id")),
        PrimaryKeyConstraint("automation_id", "version", name=op.f("pk_automation_versions")),
        comment="What an automation said when a run was started by it. `triggers` is JSON text.",
    )
    op.create_table(
        "automation_webhooks",
        Column("webhook_uid", Text, nullable=False),
        Column("automation_id", Text, nullable=False),
        ForeignKeyConstraint(["automation_id"], ["automations.id"], name=op.f("fk_automation_webhooks_automation_id")),
        PrimaryKeyConstraint("webhook_uid", "automation_id", name=op.f("pk_automation_webhooks")),
        comment="Which automations select a webhook now. A uid may be unknown or deleted: that is shown, not refused.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_automation_webhooks_automation_id", "automation_webhooks", ["automation_id"])
    op.create_table(
        "schedules",
        Column("automation_id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("cron", Text, nullable=False),
        Column("timezone", Text, nullable=False),
        Column("catch_up", Text, nullable=False),
        Column("anchor", BigInteger, nullable=False),
        Column("last_at", BigInteger, nullable=False),
        Column("next_at", BigInteger),
        ForeignKeyConstraint(["automation_id"], ["automations.id"], name=op.f("fk_schedules_automation_id")),
        PrimaryKeyConstraint("automation_id", "name", name=op.f("pk_schedules")),
        comment="The schedules of automations that are not deleted, and when each is due.",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_schedules_last_at",
        "schedules",
        ["last_at"],
        sqlite_where=text("next_at IS NOT NULL"),
        postgresql_where=text("next_at IS NOT NULL"),
    )
    op.create_index("ix_schedules_next_at", "schedules", ["next_at"])
    op.create_table(
        "webhooks",
        Column("no", Integer, nullable=False),
        Column("uid", Text, nullable=False),
        Column("factory_id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("auth_mode", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("secret_id", Text, nullable=False),
        Column("secret_version_id", Text),
        Column("signature_scheme", Text),
        Column("signature_options", Text),
        Column("answers_handshakes", Boolean, nullable=False),
        Column("delivery_id_header", Text),
        Column("event_header", Text),
        Column("allowed_networks", Text),
        Column("expect_every", Integer),
        Column("expected_from", BigInteger),
        Column("revision", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("deleted_at", BigInteger),
        CheckConstraint("(state = 'deleted') = (deleted_at IS NOT NULL)", name=op.f("ck_webhooks_deleted_at")),
        CheckConstraint("auth_mode IN ('token', 'url_token', 'signature')", name=op.f("ck_webhooks_auth_mode")),
        CheckConstraint("state <> 'enabled' OR secret_version_id IS NOT NULL", name=op.f("ck_webhooks_enabled")),
        CheckConstraint("state IN ('enabled', 'disabled', 'deleted')", name=op.f("ck_webhooks_state")),
        CheckConstraint("revision >= 1", name=op.f("ck_webhooks_revision")),
        ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_webhooks_factory_id")),
        ForeignKeyConstraint(["secret_id"], ["secrets.id"], name=op.f("fk_webhooks_secret_id")),
        ForeignKeyConstraint(
            ["secret_version_id", "secret_id"],
            ["secret_versions.id", "secret_versions.secret_id"],
            name=op.f("fk_webhooks_secret_version_id"),
        ),
        PrimaryKeyConstraint("no", name=op.f("pk_webhooks")),
        UniqueConstraint("uid", name=op.f("uq_webhooks_uid")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_webhooks_live_name",
        "webhooks",
        ["factory_id", "name"],
        unique=True,
        sqlite_where=text("state <> 'deleted'"),
        postgresql_where=text("state <> 'deleted'"),
    )
