"""Indexes for pages of the log with rare labels, duplicates, or runs that did not succeed."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    not_succeeded = "state IN ('failed', 'cancelled', 'interrupted')"
    for name, table, columns, condition in (
        ("ix_deliveries_not_accepted", "deliveries", ["webhook_no", "label", "received_at"], "label <> 1"),
        ("ix_deliveries_duplicates", "deliveries", ["webhook_no", "identity_digest", "id"], "label = 2"),
        ("ix_runs_not_succeeded", "runs", ["webhook_no", "state", "id"], not_succeeded),
    ):
        where = sa.text(condition)
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
