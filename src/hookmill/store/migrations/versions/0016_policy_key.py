"""Renames runs.run_key, which is not the key of the run, to policy_key."""

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    # Both databases rename a column in place, and in the indexes.
    op.execute("ALTER TABLE runs RENAME COLUMN run_key TO policy_key")
