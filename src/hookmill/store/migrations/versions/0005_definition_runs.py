"""The last results of planning and applying definition files."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
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
