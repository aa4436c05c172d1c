"""`hookmill verify`."""

import sqlite3
from contextlib import closing


def test_consistent_data_is_said_to_be_so(webhook, automation, hookmill):
    printed = hookmill("verify")

    assert printed.out.startswith("Checked ")
    assert printed.out.endswith(" s. The data is consistent.\n")
    assert "checking relations: " in printed.err
    assert "0 of no rows" not in printed.err
    assert hookmill("verify", "--json").json["problems"] == []


def test_problems_are_printed_with_what_to_do(automation, log, hookmill):
    with closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute("DELETE FROM automation_webhooks")
        connection.executemany("INSERT INTO payloads VALUES (?, ?)", [(b"%016d" % n, b"{}") for n in range(60)])

    printed = hookmill("verify", exit_code=1)

    assert printed.out.startswith("payload of delivery dlv_")
    assert "\n  Save the automation again, such as with" in printed.out
    assert "\n10 more problems of these kinds are not listed.\n" in printed.out
    assert printed.out.endswith("There are 61 problems.\n")
    result = hookmill("verify", "--json", exit_code=1).json
    assert result["consistent"] is False
    assert len(result["problems"]) == 51
    assert result["omitted_problems"] == 10


def test_rows_that_refer_to_nothing_are_named(webhook, log, hookmill):
    log.execute("DELETE FROM factories")

    assert "It refers to a row of factories that does not exist." in hookmill("verify", exit_code=1).out


def test_damaged_file_is_named(webhook, log, hookmill):
    with closing(sqlite3.connect(log.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_deliveries_log'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with log.path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"damage" * 100)

    printed = hookmill("verify", exit_code=1)

    assert "the SQLite file: SQLite reports: " in printed.out
    assert "restore the newest backup that verifies" in printed.out


def test_verification_needs_the_master_key(webhook, hookmill, data_dir):
    (data_dir / "master.key").unlink()

    assert "master.key is missing" in hookmill("verify", exit_code=1).err
