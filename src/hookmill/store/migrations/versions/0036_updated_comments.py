"""Numbers of comments and reviews that messages about runs have created, and the models that agents reported."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    op.execute("ALTER TABLE run_results RENAME COLUMN check_run TO remote_id")
    op.create_index(
        "ix_run_results_remote_id",
        "run_results",
        ["lane", "queued_at"],
        sqlite_where=sa.text("remote_id IS NOT NULL"),
        postgresql_where=sa.text("remote_id IS NOT NULL"),
    )
    op.add_column("attempt_reports", sa.Column("model", sa.Text(), nullable=True))
