"""Attempts that agent platforms perform: the digests of their tokens, and the reports."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
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
