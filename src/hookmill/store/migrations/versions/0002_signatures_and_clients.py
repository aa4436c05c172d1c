"""Signatures: webhooks without a secret, signature options and handshakes. Also the client address of attempts."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("deliveries", sa.Column("client", sa.Text(), nullable=True))
    with op.batch_alter_table("webhooks", table_kwargs={"sqlite_autoincrement": True}) as webhooks:
        webhooks.alter_column("secret_version_id", existing_type=sa.Text(), nullable=True)
        webhooks.add_column(sa.Column("signature_options", sa.Text(), nullable=True))
        webhooks.add_column(sa.Column("answers_handshakes", sa.Boolean(), nullable=False, server_default=sa.false()))
