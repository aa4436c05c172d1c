"""Members who sign in with OpenID Connect, and how a session began."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    for column in ("oidc_issuer TEXT", "oidc_subject TEXT"):
        op.execute(f"ALTER TABLE members ADD COLUMN {column}")
    is_present = sa.text("removed_at IS NULL")
    op.create_index(
        "uq_members_oidc_subject",
        "members",
        ["oidc_issuer", "oidc_subject"],
        unique=True,
        sqlite_where=is_present,
        postgresql_where=is_present,
    )
    op.execute("ALTER TABLE sessions ADD COLUMN method TEXT DEFAULT 'password' NOT NULL")
    op.add_column("sessions", sa.Column("rules_tag", sa.LargeBinary(length=32), nullable=True))
