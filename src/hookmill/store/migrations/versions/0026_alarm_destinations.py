"""The destinations of alarms, and the notices that wait to be sent to them."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.create_table(
        "alarm_destinations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("shown_target", sa.Text(), nullable=False),
        sa.Column("alarm_kinds", sa.Text(), nullable=False),
        sa.Column("includes_factories", sa.Boolean(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_sent_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name="fk_alarm_destinations_team_id"),
        sa.ForeignKeyConstraint(["factory_id"], ["factories.id"], name="fk_alarm_destinations_factory_id"),
        sa.PrimaryKeyConstraint("id", name="pk_alarm_destinations"),
        comment="Where alarms are sent. The e-mail address, the URL and the signing secret are sealed.",
    )
    op.create_table(
        "alarm_notices",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("destination_id", sa.Text(), nullable=False),
        sa.Column("notice", sa.Text(), nullable=False),
        sa.Column("more", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_until", sa.BigInteger(), nullable=True),
        sa.Column("attempted_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["destination_id"], ["alarm_destinations.id"], name="fk_alarm_notices_destination_id"),
        sa.PrimaryKeyConstraint("id", name="pk_alarm_notices"),
        comment="An outbox: one row for each message to a destination. `notice` is JSON text.",
    )
    op.create_index("ix_alarm_notices_attempted_at", "alarm_notices", ["destination_id", "attempted_at"])
    op.create_index("ix_alarm_notices_state", "alarm_notices", ["destination_id", "state", "id"])
