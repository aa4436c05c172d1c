"""The sender's trace that a delivery continues."""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    # Both databases add a column without rewriting the table.
    op.execute("ALTER TABLE deliveries ADD COLUMN traceparent TEXT")
