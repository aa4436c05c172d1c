"""Counts of log rows, for high rate limits."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
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
