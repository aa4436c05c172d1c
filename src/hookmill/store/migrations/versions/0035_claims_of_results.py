"""The executor that has claimed a message about a run."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.add_column("run_results", sa.Column("claimed_by", sa.Text(), nullable=True))
