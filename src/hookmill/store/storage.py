"""How much space the stored data takes."""

from hookmill.store.database import Transaction
from hookmill.store.rows.tables import TABLES


def data_bytes(tx: Transaction) -> int:
    """The bytes of all rows. On SQLite, this includes the indexes."""
    if tx.on_sqlite:
        return tx.integer(
            """
            SELECT (page_count - freelist_count) * page_size
            FROM pragma_page_count, pragma_freelist_count, pragma_page_size
            """
        )
    sizes = " + ".join(f"pg_table_size('{table.quoted}')" for table in TABLES)
    return tx.integer(f"SELECT {sizes}")
