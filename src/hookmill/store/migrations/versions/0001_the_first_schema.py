"""The first schema: that of `store/schema.py`, until the first release writes it down here."""

from alembic import op
from sqlalchemy.schema import CreateIndex, CreateTable, SetTableComment

from hookmill.store.schema import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    # `create_all` creates the indexes of a table in any order. SQLite prefers the last one of those that are equally
    # good, so their order must not change.
    for table in metadata.sorted_tables:
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            op.execute(CreateIndex(index))
        if op.get_bind().dialect.supports_comments:
            op.execute(SetTableComment(table))
