"""The networks from which a webhook accepts deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    # Null: every network.
    op.add_column("webhooks", sa.Column("allowed_networks", sa.Text(), nullable=True))
