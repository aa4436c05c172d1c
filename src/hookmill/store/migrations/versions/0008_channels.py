"""The audit log says through which channel somebody came: the command line, the API, the dashboard or files."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    # Both databases rename a column in place; Alembic would copy SQLite's whole table.
    op.execute("ALTER TABLE audit_log RENAME COLUMN door TO channel")
    if op.get_bind().dialect.name == "postgresql":
        # From version 18 on, what must not be null is a constraint with a name.
        op.execute(
            """
            DO $$ BEGIN
                IF EXISTS (SELECT 1 FROM pg_constraint WHERE conname = 'audit_log_door_not_null') THEN
                    ALTER TABLE audit_log RENAME CONSTRAINT audit_log_door_not_null TO audit_log_channel_not_null;
                END IF;
            END $$
            """
        )
