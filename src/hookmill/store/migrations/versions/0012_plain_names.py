"""Renames to the terms of the code: dropped_attempts, deliveries.rate_limit, runs.claimed_at."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_COMMENT = "Attempts that get no row in the log, counted by webhook and minute."


def upgrade() -> None:
    # Both databases rename a column in place, and in the indexes; Alembic would copy SQLite's whole table.
    op.execute("ALTER TABLE deliveries RENAME COLUMN budget TO rate_limit")
    op.execute("ALTER TABLE runs RENAME COLUMN handed_at TO claimed_at")
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    if on_postgresql:
        op.execute("ALTER INDEX ix_runs_in_hand RENAME TO ix_runs_claimed")
    else:
        op.drop_index("ix_runs_in_hand", table_name="runs")
        claimed = sa.text("finished_at IS NULL AND executor IS NOT NULL")
        op.create_index("ix_runs_claimed", "runs", ["executor"], sqlite_where=claimed)

    # The table is copied, because the names of its constraints contain its name. It has few rows.
    op.create_table(
        "dropped_attempts",
        sa.Column("webhook_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("minute", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("webhook_no", "minute", "kind", name=op.f("pk_dropped_attempts")),
        comment=_COMMENT,
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO dropped_attempts (webhook_no, minute, kind, count) "
        "SELECT webhook_no, minute, kind, count FROM refusals"
    )
    op.drop_table("refusals")
    if on_postgresql:
        # Since version 18, NOT NULL constraints have names.
        op.execute(
            """
            DO $$ BEGIN
                IF EXISTS (SELECT 1 FROM pg_constraint WHERE conname = 'deliveries_budget_not_null') THEN
                    ALTER TABLE deliveries
                        RENAME CONSTRAINT deliveries_budget_not_null TO deliveries_rate_limit_not_null;
                END IF;
            END $$
            """
        )
