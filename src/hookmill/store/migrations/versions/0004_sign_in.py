"""Sign-in: passwords, sessions, and links with which a member chooses a password."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("members", sa.Column("password_hash", sa.Text(), nullable=True))
    op.create_table(
        "sessions",
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("client", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_sessions_member_id")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sessions")),
        comment="Who is signed in, by the SHA-256 of what their browser holds: a copy of this table opens nothing.",
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_sessions_member_id"), "sessions", ["member_id"])
    op.create_table(
        "sign_in_links",
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_sign_in_links_team_id")),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_sign_in_links_member_id")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sign_in_links")),
        comment="Links that let somebody choose a password, once. One without a member makes the first admin.",
        sqlite_with_rowid=False,
    )
