"""An upgrade keeps every row of every table. `make drill ARGS="--only upgrade"` also runs the old version's code."""

from typing import Any

import sqlalchemy as sa

from hookmill.domain.run import RunState
from hookmill.store.database import open_database
from hookmill.store.migrate import migrate
from hookmill.store.schema import metadata
from tests.support.digests import digests_of_tables, engine_of
from tests.support.odd_rows import ROWS, odd_value

OLD_REVISION = "0016"
RUNS = 2_000


def test_upgrade_keeps_every_row_of_every_table(empty_database_url: str):
    with open_database(empty_database_url) as database:
        migrate(database, to=OLD_REVISION)
        fill(empty_database_url)
        before = digests_of_tables(empty_database_url)
        assert [name for name, table in before.items() if table.rows < ROWS] == []
        assert before["runs"].rows == RUNS + ROWS

        assert migrate(database) is True

    assert digests_of_tables(empty_database_url, {name: table.columns for name, table in before.items()}) == before


def fill(url: str) -> None:
    """Add rows with unusual values to every table of the old schema, and deliveries with runs in every state."""
    engine = engine_of(url)
    old_schema = sa.MetaData()
    try:
        old_schema.reflect(engine)
        old_schema.remove(old_schema.tables["alembic_version"])
        with engine.begin() as connection:
            for table in old_schema.sorted_tables:
                # Only the present schema has the lengths of keys. PostgreSQL does not store them.
                columns = [metadata.tables[table.name].columns[column.name] for column in table.columns]
                rows = [{column.name: _value(column, number) for column in columns} for number in range(ROWS)]
                connection.execute(table.insert(), rows)
            connection.execute(old_schema.tables["deliveries"].insert(), [_delivery(number) for number in range(RUNS)])
            connection.execute(old_schema.tables["runs"].insert(), [_run(number) for number in range(RUNS)])
    finally:
        engine.dispose()


def _value(column: sa.Column[Any], number: int) -> Any:
    value = odd_value(column, number)
    return bool(value) if isinstance(column.type, sa.Boolean) and value is not None else value


def _delivery(number: int) -> dict[str, Any]:
    return {"id": _key(number), "webhook_no": number % 7, "received_at": number, "label": 1, "rate_limit": 1, "size": 2}


def _run(number: int) -> dict[str, Any]:
    state = list(RunState)[number % len(RunState)]
    return {
        "id": _key(number),
        "delivery_id": _key(number),
        "webhook_no": number % 7,
        "factory_id": "fac_1",
        "automation_id": "aut_1",
        "automation_version": 1,
        "state": state.value,
        "attempt": 0 if state is RunState.QUEUED else 1,
        "created_at": number,
        "claimed_at": None if state is RunState.QUEUED else number,
        "finished_at": number if state.is_final else None,
        "executor": "exe_1" if state is RunState.RUNNING else None,
        "hold": number % 4 + 1 if state is RunState.QUEUED and number % 2 else None,
    }


def _key(number: int) -> bytes:
    return number.to_bytes(16, "big")
