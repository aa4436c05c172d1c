"""Attempts at runs that an orderly stop of their worker ended."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.add_column("runs", sa.Column("stopped_attempts", sa.Integer(), server_default="0", nullable=False))
