"""The texts that runs write for people, such as their summaries."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
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
