"""Statements with many rows: each row is used once, however many there are."""

from typing import Any

import pytest

from hookmill.store.bulk import ROWS_MAX, RowStatement

INSERT = RowStatement("INSERT INTO many (no, words, bytes, number) {rows}", ("int", "text", "bytea", "bigint"))
ECHO = RowStatement("SELECT * FROM ({rows}) AS pairs", ("int", "text"))
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 255, 257, ROWS_MAX - 1, ROWS_MAX, ROWS_MAX + 1, 2 * ROWS_MAX + 3]


@pytest.fixture
def database(store):
    with store.database.write() as tx:
        blob = "BLOB" if tx.on_sqlite else "BYTEA"
        tx.run(f"CREATE TABLE many (no INTEGER PRIMARY KEY, words TEXT, bytes {blob}, number BIGINT)")
    return store.database


def test_statement_with_any_number_of_rows_writes_each_row_once(database):
    for size in SIZES:
        rows: list[tuple[Any, ...]] = [(i, f"word {i}", bytearray(b"%d" % i), i << 40) for i in range(1, size + 1)]

        with database.write() as tx:
            tx.run("DELETE FROM many")
            changed_rows = INSERT.execute(tx, rows)
            stored = tx.all("SELECT * FROM many ORDER BY no")

        assert changed_rows == size
        assert [(row["no"], row["words"], row["bytes"], row["number"]) for row in stored] == rows


def test_query_with_any_number_of_rows_gets_each_row_once(database):
    for size in SIZES:
        rows = [(i, f"word {i}") for i in range(1, size + 1)]

        with database.read() as tx:
            selected = [(row[0], row[1]) for row in ECHO.select(tx, rows)]

        assert sorted(selected) == rows


def test_statement_without_rows_changes_nothing(database):
    with database.write() as tx:
        assert INSERT.execute(tx, []) == 0
        assert ECHO.select(tx, []) == []


def test_rows_can_contain_nulls_and_unusual_values(database):
    rows = [
        (1, None, None, None),
        (2, "", b"", 0),
        (3, "0", b"\x00", -1),
        (4, "'; DROP TABLE many; --", bytes(range(256)), 2**63 - 1),
        (5, "%s ? :x {rows} \N{PARTY POPPER}", b"\xff", -(2**63)),
    ]

    with database.write() as tx:
        INSERT.execute(tx, rows)

    with database.read() as tx:
        stored = tx.all("SELECT * FROM many ORDER BY no")
    assert [(row["no"], row["words"], row["bytes"], row["number"]) for row in stored] == rows


def test_rows_with_a_conflict_are_not_counted_as_changed(database):
    insert = RowStatement("INSERT INTO many (no, words) {rows} ON CONFLICT (no) DO NOTHING", ("int", "text"))

    with database.write() as tx:
        counts = [insert.execute(tx, [(i, "x") for i in numbers]) for numbers in ([1, 2, 3], [2, 3, 4], [1])]

    assert counts == [3, 1, 0]
