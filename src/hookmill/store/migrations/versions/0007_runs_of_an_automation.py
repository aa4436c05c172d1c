"""Indexes for the runs of one automation, and for the newest run of each automation."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_index("ix_runs_automation_id", "runs", ["automation_id", "webhook_no", "id"])
    not_succeeded = sa.text("state IN ('failed', 'cancelled', 'interrupted')")
    op.create_index(
        "ix_runs_automation_not_succeeded",
        "runs",
        ["automation_id", "webhook_no", "state", "id"],
        sqlite_where=not_succeeded,
        postgresql_where=not_succeeded,
    )
