"""The audit log's column `door` is renamed to `channel`: the command line, the API, the dashboard or files."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    # Both databases rename a column in place; Alembic would copy SQLite's whole table.
    op.execute("ALTER TABLE audit_log RENAME COLUMN door TO channel")
    if op.get_bind().dialect.name == "postgresql":
        # Since version 18, NOT NULL constraints have names.
        op.execute(
            """
            DO $$ BEGIN
                IF EXISTS (SELECT 1 FROM pg_constraint WHERE conname = 'audit_log_door_not_null') THEN
                    ALTER TABLE audit_log RENAME CONSTRAINT audit_log_door_not_null TO audit_log_channel_not_null;
                END IF;
            END $$
            """
        )
