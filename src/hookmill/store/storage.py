"""How much space the stored data takes."""

from hookmill.store.database import Transaction
from hookmill.store.rows.tables import TABLES


def data_bytes(tx: Transaction) -> int:
    """The bytes of all rows. On SQLite, this includes the indexes."""
    if tx.on_sqlite:
        row = tx.one(
            """
            SELECT (page_count - freelist_count) * page_size AS bytes
            FROM pragma_page_count, pragma_freelist_count, pragma_page_size
            """
        )
    else:
        sizes = " + ".join(f"pg_table_size('{table.quoted}')" for table in TABLES)
        row = tx.one(f"SELECT {sizes} AS bytes")
    assert row is not None
    return int(row["bytes"])
