"""Many rows in one statement: however many they are, each is taken once, on both databases."""

import pytest

from hookmill.store.bulk import ROWS_MAX, RowStatement

INSERT = RowStatement("INSERT INTO many (no, words, bytes, gap) {rows}", ("int", "text", "bytea", "bigint"))
ECHO = RowStatement("SELECT * FROM ({rows}) AS given", ("int", "text"))
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 255, 257, ROWS_MAX - 1, ROWS_MAX, ROWS_MAX + 1, 2 * ROWS_MAX + 3]


@pytest.fixture
def database(store):
    with store.database.write() as tx:
        blob = "BLOB" if tx.on_sqlite else "BYTEA"
        tx.run(f"CREATE TABLE many (no INTEGER PRIMARY KEY, words TEXT, bytes {blob}, gap BIGINT)")
    return store.database


def test_any_number_of_rows_is_written_and_counted(database):
    for size in SIZES:
        given = [(i, f"word {i}", bytearray(b"%d" % i), i << 40) for i in range(1, size + 1)]
        with database.write() as tx:
            tx.run("DELETE FROM many")
            touched = INSERT.execute(tx, given)
            kept = [(row["no"], row["words"], bytes(row["bytes"]), row["gap"]) for row in tx.all("SELECT * FROM many")]

        assert touched == size
        assert sorted(kept) == [(no, words, bytes(raw), gap) for no, words, raw, gap in given]


def test_any_number_of_rows_is_asked_for_and_answered(database):
    for size in SIZES:
        given = [(i, f"word {i}") for i in range(1, size + 1)]
        with database.read() as tx:
            answered = [(row[0], row[1]) for row in ECHO.select(tx, given)]

        assert sorted(answered) == given


def test_no_rows_are_nothing_to_do(database):
    with database.write() as tx:
        assert INSERT.execute(tx, []) == 0
        assert ECHO.select(tx, []) == []


def test_a_row_may_have_gaps_and_odd_values(database):
    given = [
        (1, None, None, None),
        (2, "", b"", 0),
        (3, "0", b"\x00", -1),
        (4, "'; DROP TABLE many; --", bytes(range(256)), 2**63 - 1),
        (5, "%s ? :x {rows} \N{PARTY POPPER}", b"\xff", -(2**63)),
    ]

    with database.write() as tx:
        INSERT.execute(tx, given)

    with database.read() as tx:
        rows = tx.all("SELECT * FROM many ORDER BY no")
    kept = [(row["no"], row["words"], row["bytes"] and bytes(row["bytes"]), row["gap"]) for row in rows]
    assert kept == [(no, words, raw or (None if raw is None else b""), gap) for no, words, raw, gap in given]


def test_what_was_touched_counts_only_what_a_conflict_let_through(database):
    insert = RowStatement("INSERT INTO many (no, words) {rows} ON CONFLICT (no) DO NOTHING", ("int", "text"))

    with database.write() as tx:
        counts = [insert.execute(tx, [(i, "x") for i in numbers]) for numbers in ([1, 2, 3], [2, 3, 4], [1])]

    assert counts == [3, 1, 0]
