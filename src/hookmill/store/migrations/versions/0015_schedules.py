"""Schedules, and runs without a delivery."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    # Both databases add a column without rewriting the table.
    for column in ("schedule TEXT", "schedule_timezone TEXT", "scheduled_at BIGINT", "started_by TEXT"):
        op.execute(f"ALTER TABLE runs ADD COLUMN {column}")
    op.create_table(
        "schedules",
        sa.Column("automation_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("catch_up", sa.Text(), nullable=False),
        sa.Column("anchor", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("automation_id", "name", name=op.f("pk_schedules")),
        sa.ForeignKeyConstraint(["automation_id"], ["automations.id"], name=op.f("fk_schedules_automation_id")),
        comment="The schedules of automations that are not deleted, and when each is due.",
        sqlite_with_rowid=False,
    )
    enabled = sa.text("next_at IS NOT NULL")
    without_delivery = sa.text("webhook_no = 0")
    others = sa.text("webhook_no = 0 AND state NOT IN ('queued', 'running', 'succeeded')")
    for name, table, columns, where in (
        ("ix_schedules_next_at", "schedules", ["next_at"], None),
        ("ix_schedules_last_at", "schedules", ["last_at"], enabled),
        ("ix_runs_without_delivery", "runs", ["factory_id", "id"], without_delivery),
        ("ix_runs_without_delivery_not_succeeded", "runs", ["factory_id", "state", "id"], others),
    ):
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
