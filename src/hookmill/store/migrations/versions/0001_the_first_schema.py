"""The first schema: that of `store/schema.py`, until the first release writes it down here."""

from alembic import op

from hookmill.store.schema import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
