"""Segments of the identities, and their Bloom filters. The identities that exist become the first segment, number 0."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "identity_segments",
        sa.Column("no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger()),
        sa.Column("writable_before", sa.BigInteger()),
        sa.Column("filter_no", sa.Integer()),
        sa.PrimaryKeyConstraint("no", name=op.f("pk_identity_segments")),
        comment="The segments of the identities, which divide them by time.",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_identity_segments_without_filter",
        "identity_segments",
        ["no"],
        sqlite_where=sa.text("filter_no IS NULL"),
        postgresql_where=sa.text("filter_no IS NULL"),
    )
    op.create_table(
        "identity_filters",
        sa.Column("no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("identity_count", sa.Integer(), nullable=False),
        sa.Column("bits", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("no", name=op.f("pk_identity_filters")),
        comment="Bloom filters, each of the digests of several closed segments.",
    )
    # Retention removes a segment some time after it was closed, so this one is closed when its newest row was added.
    op.execute(
        """
        INSERT INTO identity_segments (no, opened_at, closed_at)
        SELECT 0, MIN(claimed_at), MAX(claimed_at) FROM identities HAVING COUNT(*) > 0
        """
    )
    comment = "Which events were accepted. A webhook has each digest in one segment only."
    if op.get_bind().dialect.name == "postgresql":
        # A constant default does not rewrite the table.
        op.execute("ALTER TABLE identities ADD COLUMN segment INTEGER NOT NULL DEFAULT 0")
        op.execute("ALTER TABLE identities ALTER COLUMN segment DROP DEFAULT")
        op.execute("ALTER TABLE identities DROP CONSTRAINT pk_identities")
        op.execute("ALTER TABLE identities ADD CONSTRAINT pk_identities PRIMARY KEY (segment, webhook_no, digest)")
        op.create_table_comment("identities", comment)
        return
    op.rename_table("identities", "old_identities")
    op.create_table(
        "identities",
        sa.Column("segment", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("webhook_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("delivery_id", sa.LargeBinary(16), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("segment", "webhook_no", "digest", name=op.f("pk_identities")),
        comment=comment,
        sqlite_with_rowid=False,
    )
    op.execute(
        """
        INSERT INTO identities (segment, webhook_no, digest, delivery_id, kind, claimed_at)
        SELECT 0, webhook_no, digest, delivery_id, kind, claimed_at
        FROM old_identities
        ORDER BY webhook_no, digest
        """
    )
    op.drop_table("old_identities")
