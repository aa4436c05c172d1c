"""Limits of running runs, and automations that are disabled after failures."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute("ALTER TABLE factories ADD COLUMN max_running INTEGER")
    for column in (
        "max_running INTEGER",
        "pause_after_failures INTEGER",
        "failures_in_row INTEGER DEFAULT '0' NOT NULL",
        "pause_reason TEXT",
    ):
        op.execute(f"ALTER TABLE automations ADD COLUMN {column}")
    for column in ("max_running", "pause_after_failures"):
        has_value = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            f"ix_automations_{column}", "automations", [column], sqlite_where=has_value, postgresql_where=has_value
        )
