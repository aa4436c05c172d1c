"""Team secrets that runs may get."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("secrets", sa.Column("for_runs", sa.Boolean(), server_default=sa.false(), nullable=False))
