"""The check before a move: which rows PostgreSQL can't store, in tables with any names of columns."""

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text

from hookmill.domain.errors import Invalid
from hookmill.store.move.source import refuse_unstorable
from hookmill.store.rows.tables import tables_of

NAMES = [("id", "problem"), ("problem", "id"), ("order", "typeof"), ("it's", "is_storable_text"), ("select", "it's")]


def test_names_of_columns_never_change_which_rows_are_refused(store_on_sqlite):
    for number, (key_name, name) in enumerate(NAMES):
        metadata = MetaData()
        Table(f"table_{number}", metadata, Column(key_name, Integer, primary_key=True), Column(name, Text))
        (table,) = tables_of(metadata)

        with store_on_sqlite.database.write() as tx:
            tx.run(f'CREATE TABLE {table.name} ("{key_name}" PRIMARY KEY, "{name}")')
            rows = [(1, None), (2, "text"), (3, b"bytes"), (4, "")]
            tx.bulk_many(f"INSERT INTO {table.name} VALUES (?, ?)", rows)
            with pytest.raises(Invalid) as refusal:
                refuse_unstorable(tx, table)

        lines = [line for line in str(refusal.value).splitlines() if line.startswith("  ")]
        assert lines == [f"  {table.name} {key_name}=3: {name}"]
