"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "alarms",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("subject_name", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("raised_at", sa.BigInteger(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.Column("clear_since", sa.BigInteger(), nullable=True),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.Column("snoozed_until", sa.BigInteger(), nullable=True),
        sa.Column("announced_at", sa.BigInteger(), nullable=True),
        sa.Column("last_announced_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alarms")),
        comment="Alarms, open and resolved. The open ones have no `resolved_at`.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_alarms_factory_id", "alarms", ["factory_id", "id"], unique=False)
    op.create_index(
        "ix_alarms_open_factory_id",
        "alarms",
        ["factory_id", "id"],
        unique=False,
        sqlite_where=sa.text("resolved_at IS NULL"),
        postgresql_where=sa.text("resolved_at IS NULL"),
    )
    op.create_index("ix_alarms_subject_id", "alarms", ["subject_id", "kind", "id"], unique=False)
    op.create_index(
        "uq_alarms_open",
        "alarms",
        ["kind", "subject_id"],
        unique=True,
        sqlite_where=sa.text("resolved_at IS NULL"),
        postgresql_where=sa.text("resolved_at IS NULL"),
    )
    op.create_table(
        "attempt_reports",
        sa.Column("run_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("is_result_cut", sa.Boolean(), nullable=False),
        sa.Column("cost_microusd", sa.BigInteger(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_attempt_reports")),
        comment="What agents have reported about attempts that have ended. Attempts without a report have no row.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("webhook_no", sa.Integer(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("label", sa.SmallInteger(), nullable=False),
        sa.Column("rate_limit", sa.SmallInteger(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("identity_kind", sa.SmallInteger(), nullable=True),
        sa.Column("identity", sa.Text(), nullable=True),
        sa.Column("identity_digest", sa.LargeBinary(length=16), nullable=True),
        sa.Column("duplicate_of", sa.LargeBinary(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("client", sa.Text(), nullable=True),
        sa.Column("event", sa.Text(), nullable=True),
        sa.Column("event_signed", sa.Boolean(), nullable=True),
        sa.Column("traceparent", sa.Text(), nullable=True),
        sa.CheckConstraint("(label = 2) = (duplicate_of IS NOT NULL)", name=op.f("ck_deliveries_duplicate_of")),
        sa.CheckConstraint("identity_kind BETWEEN 1 AND 5", name=op.f("ck_deliveries_identity_kind")),
        sa.CheckConstraint("label BETWEEN 1 AND 5", name=op.f("ck_deliveries_label")),
        sa.CheckConstraint("rate_limit BETWEEN 1 AND 2", name=op.f("ck_deliveries_rate_limit")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_deliveries_duplicates",
        "deliveries",
        ["webhook_no", "identity_digest", "id"],
        unique=False,
        sqlite_where=sa.text("label = 2"),
        postgresql_where=sa.text("label = 2"),
    )
    op.create_index(
        "ix_deliveries_event",
        "deliveries",
        ["webhook_no", "event", "label", "received_at"],
        unique=False,
        sqlite_where=sa.text("event IS NOT NULL"),
        postgresql_where=sa.text("event IS NOT NULL"),
    )
    op.create_index("ix_deliveries_log", "deliveries", ["webhook_no", "received_at", "rate_limit"], unique=False)
    op.create_index(
        "ix_deliveries_not_accepted",
        "deliveries",
        ["webhook_no", "label", "received_at"],
        unique=False,
        sqlite_where=sa.text("label <> 1"),
        postgresql_where=sa.text("label <> 1"),
    )
    op.create_table(
        "dropped_attempts",
        sa.Column("webhook_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("minute", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("webhook_no", "minute", "kind", name=op.f("pk_dropped_attempts")),
        comment="Attempts that get no row in the log, counted by webhook and minute.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "executors",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_executors")),
        comment="Processes that perform runs, and when each last said that it lives.",
    )
    op.create_table(
        "failed_attempts",
        sa.Column("run_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=False),
        sa.Column("exit_status", sa.Integer(), nullable=True),
        sa.Column("output_tail", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_failed_attempts")),
        comment="Attempts that failed and were followed by another one.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
        comment="Answers that are given again when a request is repeated. They may hold a secret that is shown once.",
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "identities",
        sa.Column("segment", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("webhook_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("delivery_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("segment", "webhook_no", "digest", name=op.f("pk_identities")),
        comment="Which events were accepted. A webhook has each digest in one segment only.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "identity_filters",
        sa.Column("no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("identity_count", sa.Integer(), nullable=False),
        sa.Column("bits", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("no", name=op.f("pk_identity_filters")),
        comment="Bloom filters, each of the digests of several closed segments.",
    )
    op.create_table(
        "identity_segments",
        sa.Column("no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("writable_before", sa.BigInteger(), nullable=True),
        sa.Column("filter_no", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("no", name=op.f("pk_identity_segments")),
        comment="The segments of the identities, which divide them by time.",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_identity_segments_without_filter",
        "identity_segments",
        ["no"],
        unique=False,
        sqlite_where=sa.text("filter_no IS NULL"),
        postgresql_where=sa.text("filter_no IS NULL"),
    )
    op.create_table(
        "metadata",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_metadata")),
        comment="Metadata of the database itself, such as the fingerprint of its master key.",
    )
    op.create_table(
        "payloads",
        sa.Column("delivery_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("delivery_id", name=op.f("pk_payloads")),
        comment="Bodies of Accepted deliveries, byte for byte. Apart from the log, so that its pages stay small.",
    )
    op.create_table(
        "platform_attempts",
        sa.Column("run_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("token_digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("report", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_platform_attempts")),
        comment="Attempts that a runner has handed to an agent platform.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "removed_objects",
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("object_key", name=op.f("pk_removed_objects")),
        comment="Objects that have no row in run_files any more, and that the object store may still have.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "removed_runs",
        sa.Column("run_id", sa.LargeBinary(length=16), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_removed_runs")),
        comment="Runs that retention has removed, and whose files it has not removed yet.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run_files",
        sa.Column("run_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.Column("object_key", sa.Text(), nullable=True),
        sa.Column("is_upload_pending", sa.Boolean(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_run_files")),
        comment="Files of runs for all hosts. Prepared files that the command left unchanged have no row.",
    )
    op.create_index(
        "ix_run_files_is_upload_pending",
        "run_files",
        ["host", "run_id"],
        unique=False,
        sqlite_where=sa.text("is_upload_pending"),
        postgresql_where=sa.text("is_upload_pending"),
    )
    op.create_table(
        "run_outputs",
        sa.Column("run_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("is_cut", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_run_outputs")),
        comment="The texts that runs which have ended wrote to their directories of outputs.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run_results",
        sa.Column("run_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("phase", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("is_uncertain", sa.Boolean(), nullable=False),
        sa.Column("queued_at", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("claimed_until", sa.BigInteger(), nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("remote_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "number", "phase", name=op.f("pk_run_results")),
        comment="An outbox: one row for each message about a run. `target` and `log` are JSON texts.",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_run_results_open",
        "run_results",
        ["run_id"],
        unique=False,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_index(
        "ix_run_results_remote_id",
        "run_results",
        ["lane", "queued_at"],
        unique=False,
        sqlite_where=sa.text("remote_id IS NOT NULL"),
        postgresql_where=sa.text("remote_id IS NOT NULL"),
    )
    op.create_index(
        "ix_run_results_waiting",
        "run_results",
        ["lane", "queued_at"],
        unique=False,
        sqlite_where=sa.text("state = 'waiting'"),
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("delivery_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("webhook_no", sa.Integer(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=False),
        sa.Column("automation_id", sa.Text(), nullable=False),
        sa.Column("automation_version", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("cancel_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("executor", sa.Text(), nullable=True),
        sa.Column("exit_status", sa.Integer(), nullable=True),
        sa.Column("output_tail", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("replay", sa.Integer(), server_default="0", nullable=False),
        sa.Column("priority", sa.SmallInteger(), server_default="1", nullable=False),
        sa.Column("policy_key", sa.LargeBinary(length=16), nullable=True),
        sa.Column("hold", sa.SmallInteger(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("due_at_most", sa.BigInteger(), nullable=True),
        sa.Column("replaced_by", sa.LargeBinary(length=16), nullable=True),
        sa.Column("failures", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("stopped_attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("schedule", sa.Text(), nullable=True),
        sa.Column("schedule_timezone", sa.Text(), nullable=True),
        sa.Column("scheduled_at", sa.BigInteger(), nullable=True),
        sa.Column("started_by", sa.Text(), nullable=True),
        sa.Column("package_webhook_name", sa.Text(), nullable=True),
        sa.Column("has_more_files", sa.Boolean(), nullable=True),
        sa.CheckConstraint(
            "(state IN ('queued', 'running')) = (finished_at IS NULL)", name=op.f("ck_runs_finished_at")
        ),
        sa.CheckConstraint("hold IS NULL OR (hold BETWEEN 1 AND 4 AND state = 'queued')", name=op.f("ck_runs_hold")),
        sa.CheckConstraint("state <> 'queued' OR executor IS NULL OR claimed_at IS NULL", name=op.f("ck_runs_queued")),
        sa.CheckConstraint(
            "state <> 'running' OR (executor IS NOT NULL AND claimed_at IS NOT NULL)", name=op.f("ck_runs_running")
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'interrupted', 'skipped', 'replaced', 'superseded')",
            name=op.f("ck_runs_state"),
        ),
        sa.CheckConstraint(
            "failures >= 0 AND stopped_attempts >= 0 AND attempt >= failures + stopped_attempts",
            name=op.f("ck_runs_attempts"),
        ),
        sa.CheckConstraint("length(policy_key) = 16", name=op.f("ck_runs_policy_key")),
        sa.CheckConstraint("webhook_no <> 0 OR delivery_id = id", name=op.f("ck_runs_without_delivery")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint(
            "delivery_id", "automation_id", "replay", name=op.f("uq_runs_delivery_id_automation_id_replay")
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_runs_automation_id", "runs", ["automation_id", "webhook_no", "id"], unique=False)
    op.create_index(
        "ix_runs_automation_not_succeeded",
        "runs",
        ["automation_id", "webhook_no", "state", "id"],
        unique=False,
        sqlite_where=sa.text("state NOT IN ('queued', 'running', 'succeeded')"),
        postgresql_where=sa.text("state NOT IN ('queued', 'running', 'succeeded')"),
    )
    op.create_index(
        "ix_runs_backlog",
        "runs",
        ["factory_id", "priority", "id"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"),
    )
    op.create_index(
        "ix_runs_claimed",
        "runs",
        ["executor"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NULL AND executor IS NOT NULL"),
        postgresql_where=sa.text("finished_at IS NULL AND executor IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_due",
        "runs",
        ["hold", "due_at", "id"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NULL AND hold IS NOT NULL"),
        postgresql_where=sa.text("finished_at IS NULL AND hold IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_held",
        "runs",
        ["factory_id", "id"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NULL AND hold IS NOT NULL"),
        postgresql_where=sa.text("finished_at IS NULL AND hold IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_key",
        "runs",
        ["policy_key", "hold", "id"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NULL AND policy_key IS NOT NULL"),
        postgresql_where=sa.text("finished_at IS NULL AND policy_key IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_not_succeeded",
        "runs",
        ["webhook_no", "state", "id"],
        unique=False,
        sqlite_where=sa.text("state NOT IN ('queued', 'running', 'succeeded')"),
        postgresql_where=sa.text("state NOT IN ('queued', 'running', 'succeeded')"),
    )
    op.create_index("ix_runs_webhook_no", "runs", ["webhook_no", "id"], unique=False)
    op.create_index(
        "ix_runs_without_delivery",
        "runs",
        ["factory_id", "id"],
        unique=False,
        sqlite_where=sa.text("webhook_no = 0"),
        postgresql_where=sa.text("webhook_no = 0"),
    )
    op.create_index(
        "ix_runs_without_delivery_not_succeeded",
        "runs",
        ["factory_id", "state", "id"],
        unique=False,
        sqlite_where=sa.text("webhook_no = 0 AND state NOT IN ('queued', 'running', 'succeeded')"),
        postgresql_where=sa.text("webhook_no = 0 AND state NOT IN ('queued', 'running', 'succeeded')"),
    )
    op.create_table(
        "teams",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_teams")),
    )
    op.create_table(
        "window_counts",
        sa.Column("webhook_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("rate_limit", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("slot", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("period", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("webhook_no", "rate_limit", "slot", name=op.f("pk_window_counts")),
        comment="Rows of the log by rate limit and period of time. Only for webhooks with high rate limits.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "audit_log",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor_id", sa.Text(), nullable=False),
        sa.Column("actor_name", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("client", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject_kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("subject_name", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "actor_kind IN ('operator', 'key', 'member', 'service')", name=op.f("ck_audit_log_actor_kind")
        ),
        sa.CheckConstraint(
            "channel IN ('cli', 'api', 'files', 'dashboard', 'service')", name=op.f("ck_audit_log_channel")
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_audit_log_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
        comment="Every act of management, written with it. Nothing changes or removes a row. `details` is JSON text.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_audit_log_factory_id", "audit_log", ["factory_id", "id"], unique=False)
    op.create_index("ix_audit_log_team_id", "audit_log", ["team_id", "id"], unique=False)
    op.create_table(
        "factories",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("defined_by_files", sa.Boolean(), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_factories_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_factories")),
        sa.UniqueConstraint("name", name=op.f("uq_factories_name")),
    )
    op.create_table(
        "members",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("oidc_issuer", sa.Text(), nullable=True),
        sa.Column("oidc_subject", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_members_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_members")),
    )
    op.create_index(
        "uq_members_email",
        "members",
        ["team_id", "email"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_index(
        "uq_members_oidc_subject",
        "members",
        ["oidc_issuer", "oidc_subject"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "secrets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("factory_id", sa.Text(), nullable=False),
        sa.Column("for_runs", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_secrets_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
        sa.UniqueConstraint("team_id", "name", name=op.f("uq_secrets_team_id_name")),
        comment="Team secrets. A value never changes in place: each change is a new version.",
    )
    op.create_table(
        "alarm_destinations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("shown_target", sa.Text(), nullable=False),
        sa.Column("alarm_kinds", sa.Text(), nullable=False),
        sa.Column("includes_factories", sa.Boolean(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_sent_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_alarm_destinations_factory_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_alarm_destinations_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alarm_destinations")),
        comment="Where alarms are sent. The e-mail address, the URL and the signing secret are sealed.",
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_api_keys_factory_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_api_keys_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
        comment="API keys by the SHA-256 of their token, which is 256 random bits and kept nowhere.",
    )
    op.create_table(
        "automations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("max_running", sa.Integer(), nullable=True),
        sa.Column("pause_after_failures", sa.Integer(), nullable=True),
        sa.Column("failures_in_row", sa.Integer(), server_default="0", nullable=False),
        sa.Column("pause_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_automations_factory_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_automations")),
    )
    op.create_index(
        "ix_automations_max_running",
        "automations",
        ["max_running"],
        unique=False,
        sqlite_where=sa.text("max_running IS NOT NULL"),
        postgresql_where=sa.text("max_running IS NOT NULL"),
    )
    op.create_index(
        "ix_automations_pause_after_failures",
        "automations",
        ["pause_after_failures"],
        unique=False,
        sqlite_where=sa.text("pause_after_failures IS NOT NULL"),
        postgresql_where=sa.text("pause_after_failures IS NOT NULL"),
    )
    op.create_index(
        "uq_automations_live_name",
        "automations",
        ["factory_id", "name"],
        unique=True,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_table(
        "definition_runs",
        sa.Column("factory_id", sa.Text(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor_name", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_definition_runs_factory_id")),
        sa.PrimaryKeyConstraint("factory_id", "act", "outcome", name=op.f("pk_definition_runs")),
        comment="The last plan and the last apply of definition files, for each outcome.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "member_roles",
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_member_roles_factory_id")),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_member_roles_member_id")),
        sa.PrimaryKeyConstraint("member_id", "factory_id", name=op.f("pk_member_roles")),
    )
    op.create_table(
        "secret_versions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("secret_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["secret_id"], ["secrets.id"], name=op.f("fk_secret_versions_secret_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secret_versions")),
        sa.UniqueConstraint("id", "secret_id", name=op.f("uq_secret_versions_id_secret_id")),
        sa.UniqueConstraint("secret_id", "version", name=op.f("uq_secret_versions_secret_id_version")),
    )
    op.create_index(op.f("ix_secret_versions_secret_id"), "secret_versions", ["secret_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("client", sa.Text(), nullable=True),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("rules_tag", sa.LargeBinary(length=32), nullable=True),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_sessions_member_id")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sessions")),
        comment="Who is signed in, by the SHA-256 of what their browser holds: a copy of this table opens nothing.",
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_sessions_member_id"), "sessions", ["member_id"], unique=False)
    op.create_table(
        "sign_in_links",
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_sign_in_links_member_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_sign_in_links_team_id")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sign_in_links")),
        comment="Links that let somebody choose a password, once. One without a member makes the first admin.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "alarm_notices",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("destination_id", sa.Text(), nullable=False),
        sa.Column("notice", sa.Text(), nullable=False),
        sa.Column("more", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_until", sa.BigInteger(), nullable=True),
        sa.Column("attempted_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["destination_id"], ["alarm_destinations.id"], name=op.f("fk_alarm_notices_destination_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alarm_notices")),
        comment="An outbox: one row for each message to a destination. `notice` is JSON text.",
    )
    op.create_index("ix_alarm_notices_attempted_at", "alarm_notices", ["destination_id", "attempted_at"], unique=False)
    op.create_index("ix_alarm_notices_state", "alarm_notices", ["destination_id", "state", "id"], unique=False)
    op.create_table(
        "automation_versions",
        sa.Column("automation_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("triggers", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["automation_id"], ["automations.id"], name=op.f("fk_automation_versions_automation_id")
        ),
        sa.PrimaryKeyConstraint("automation_id", "version", name=op.f("pk_automation_versions")),
        comment="What an automation said when a run was started by it. `triggers` is JSON text.",
    )
    op.create_table(
        "automation_webhooks",
        sa.Column("webhook_uid", sa.Text(), nullable=False),
        sa.Column("automation_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["automation_id"], ["automations.id"], name=op.f("fk_automation_webhooks_automation_id")
        ),
        sa.PrimaryKeyConstraint("webhook_uid", "automation_id", name=op.f("pk_automation_webhooks")),
        comment="Which automations select a webhook now. A uid may be unknown or deleted: that is shown, not refused.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_automation_webhooks_automation_id", "automation_webhooks", ["automation_id"], unique=False)
    op.create_table(
        "schedules",
        sa.Column("automation_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("catch_up", sa.Text(), nullable=False),
        sa.Column("anchor", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["automation_id"], ["automations.id"], name=op.f("fk_schedules_automation_id")),
        sa.PrimaryKeyConstraint("automation_id", "name", name=op.f("pk_schedules")),
        comment="The schedules of automations that are not deleted, and when each is due.",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_schedules_last_at",
        "schedules",
        ["last_at"],
        unique=False,
        sqlite_where=sa.text("next_at IS NOT NULL"),
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )
    op.create_index("ix_schedules_next_at", "schedules", ["next_at"], unique=False)
    op.create_table(
        "webhooks",
        sa.Column("no", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("auth_mode", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("secret_id", sa.Text(), nullable=False),
        sa.Column("secret_version_id", sa.Text(), nullable=True),
        sa.Column("signature_scheme", sa.Text(), nullable=True),
        sa.Column("signature_options", sa.Text(), nullable=True),
        sa.Column("answers_handshakes", sa.Boolean(), nullable=False),
        sa.Column("delivery_id_header", sa.Text(), nullable=True),
        sa.Column("event_header", sa.Text(), nullable=True),
        sa.Column("allowed_networks", sa.Text(), nullable=True),
        sa.Column("expect_every", sa.Integer(), nullable=True),
        sa.Column("expected_from", sa.BigInteger(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(state = 'deleted') = (deleted_at IS NOT NULL)", name=op.f("ck_webhooks_deleted_at")),
        sa.CheckConstraint("auth_mode IN ('token', 'url_token', 'signature')", name=op.f("ck_webhooks_auth_mode")),
        sa.CheckConstraint("state <> 'enabled' OR secret_version_id IS NOT NULL", name=op.f("ck_webhooks_enabled")),
        sa.CheckConstraint("state IN ('enabled', 'disabled', 'deleted')", name=op.f("ck_webhooks_state")),
        sa.CheckConstraint("revision >= 1", name=op.f("ck_webhooks_revision")),
        sa.ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_webhooks_factory_id")),
        sa.ForeignKeyConstraint(["secret_id"], ["secrets.id"], name=op.f("fk_webhooks_secret_id")),
        sa.ForeignKeyConstraint(
            ["secret_version_id", "secret_id"],
            ["secret_versions.id", "secret_versions.secret_id"],
            name=op.f("fk_webhooks_secret_version_id"),
        ),
        sa.PrimaryKeyConstraint("no", name=op.f("pk_webhooks")),
        sa.UniqueConstraint("uid", name=op.f("uq_webhooks_uid")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_webhooks_live_name",
        "webhooks",
        ["factory_id", "name"],
        unique=True,
        sqlite_where=sa.text("state <> 'deleted'"),
        postgresql_where=sa.text("state <> 'deleted'"),
    )
