"""Run policies: concurrency, debounce, priority and retries."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    # Both databases add a column without rewriting the table.
    op.execute("ALTER TABLE automation_versions ADD COLUMN policy TEXT DEFAULT '{}' NOT NULL")
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    key_type = "BYTEA" if on_postgresql else "BLOB"
    for column in (
        "priority SMALLINT DEFAULT '1' NOT NULL",
        f"run_key {key_type}",
        "hold SMALLINT",
        "due_at BIGINT",
        "due_at_most BIGINT",
        f"replaced_by {key_type}",
        "failures SMALLINT DEFAULT '0' NOT NULL",
    ):
        op.execute(f"ALTER TABLE runs ADD COLUMN {column}")
    op.create_table(
        "failed_attempts",
        sa.Column("run_id", sa.LargeBinary(16), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=False),
        sa.Column("exit_status", sa.Integer()),
        sa.Column("output_tail", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_failed_attempts")),
        comment="Attempts that failed and were followed by another one.",
        sqlite_with_rowid=False,
    )
    backlog = sa.text("finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL")
    held = sa.text("finished_at IS NULL AND hold IS NOT NULL")
    keyed = sa.text("finished_at IS NULL AND run_key IS NOT NULL")
    others = sa.text("state NOT IN ('queued', 'running', 'succeeded')")
    for name in ("ix_runs_waiting", "ix_runs_not_succeeded", "ix_runs_automation_not_succeeded"):
        op.drop_index(name, table_name="runs")
    for name, columns, where in (
        ("ix_runs_backlog", ["factory_id", "priority", "id"], backlog),
        ("ix_runs_held", ["factory_id", "id"], held),
        ("ix_runs_due", ["hold", "due_at", "id"], held),
        ("ix_runs_key", ["run_key", "hold", "id"], keyed),
        ("ix_runs_not_succeeded", ["webhook_no", "state", "id"], others),
        ("ix_runs_automation_not_succeeded", ["automation_id", "webhook_no", "state", "id"], others),
    ):
        op.create_index(name, "runs", columns, sqlite_where=where, postgresql_where=where)
