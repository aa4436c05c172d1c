"""Run options: what the runs of an automation get in addition to the prompt and the payload."""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    # Both databases add a column without rewriting the table.
    op.execute("ALTER TABLE automation_versions ADD COLUMN options TEXT DEFAULT '{}' NOT NULL")
