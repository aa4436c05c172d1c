"""Alarms, and how often a webhook expects a delivery."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    # Null: the webhook expects no deliveries.
    op.add_column("webhooks", sa.Column("expect_every", sa.Integer(), nullable=True))
    op.add_column("webhooks", sa.Column("expected_from", sa.BigInteger(), nullable=True))
    op.create_table(
        "alarms",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("subject_name", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("raised_at", sa.BigInteger(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.Column("clear_since", sa.BigInteger(), nullable=True),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.Column("snoozed_until", sa.BigInteger(), nullable=True),
        sa.Column("announced_at", sa.BigInteger(), nullable=True),
        sa.Column("last_announced_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alarms")),
        comment="Alarms, open and resolved. The open ones have no `resolved_at`.",
        sqlite_with_rowid=False,
    )
    is_open = sa.text("resolved_at IS NULL")
    op.create_index(
        "uq_alarms_open",
        "alarms",
        ["kind", "subject_id"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_index(
        "ix_alarms_open_factory_id",
        "alarms",
        ["factory_id", "id"],
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_index("ix_alarms_factory_id", "alarms", ["factory_id", "id"])
    op.create_index("ix_alarms_subject_id", "alarms", ["subject_id", "kind", "id"])
