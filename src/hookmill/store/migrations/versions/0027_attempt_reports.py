"""What agents report about attempts: the result, the cost and the tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_table(
        "attempt_reports",
        sa.Column("run_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("is_result_cut", sa.Boolean(), nullable=False),
        sa.Column("cost_microusd", sa.BigInteger(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_attempt_reports")),
        comment="What agents have reported about attempts that have ended. Attempts without a report have no row.",
        sqlite_with_rowid=False,
    )
