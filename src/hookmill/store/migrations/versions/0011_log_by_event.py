"""An index for the log by event type."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    where = sa.text("event IS NOT NULL")
    op.create_index(
        "ix_deliveries_event",
        "deliveries",
        ["webhook_no", "event", "label", "received_at"],
        sqlite_where=where,
        postgresql_where=where,
    )
