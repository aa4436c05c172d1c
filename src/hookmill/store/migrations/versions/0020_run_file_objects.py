"""Files of runs in an object store."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    # Both databases add a column without rewriting the table.
    for column in ("object_key TEXT", "is_upload_pending BOOLEAN"):
        op.execute(f"ALTER TABLE run_files ADD COLUMN {column}")
    op.create_index(
        "ix_run_files_is_upload_pending",
        "run_files",
        ["host", "run_id"],
        sqlite_where=sa.text("is_upload_pending"),
        postgresql_where=sa.text("is_upload_pending"),
    )
    op.create_table(
        "removed_objects",
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("object_key", name=op.f("pk_removed_objects")),
        comment="Objects that have no row in run_files any more, and that the object store may still have.",
        sqlite_with_rowid=False,
    )
