"""Files of runs in the database, so that every host can show them."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    # Both databases add a column without rewriting the table.
    for column in ("package_webhook_name TEXT", "has_more_files BOOLEAN"):
        op.execute(f"ALTER TABLE runs ADD COLUMN {column}")
    op.create_table(
        "run_files",
        sa.Column("run_id", sa.LargeBinary(16), nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger()),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_run_files")),
        comment="Files of runs for all hosts. Prepared files that the command left unchanged have no row.",
    )
    op.create_table(
        "removed_runs",
        sa.Column("run_id", sa.LargeBinary(16), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_removed_runs")),
        comment="Runs that retention has removed, and whose files it has not removed yet.",
        sqlite_with_rowid=False,
    )
