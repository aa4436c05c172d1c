"""The event type of a delivery, and the webhook's header that contains it."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("webhooks", sa.Column("event_header", sa.Text(), nullable=True))
    op.add_column("deliveries", sa.Column("event", sa.Text(), nullable=True))
    op.add_column("deliveries", sa.Column("event_signed", sa.Boolean(), nullable=True))
