"""Numbers of the check runs that messages about runs have created at GitHub."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.add_column("run_results", sa.Column("check_run", sa.BigInteger(), nullable=True))
