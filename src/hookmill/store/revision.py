"""The schema of a database, and the one that this version needs."""

from functools import cache
from pathlib import Path
from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.store import dialect
from hookmill.store.database import Transaction

OTHER_SCHEMA_ADVICE: Final = (
    "Use the version that has written it, or start this one with an empty database and an empty data directory."
)
VERSIONS: Final = Path(__file__).parent / "migrations" / "versions"


@cache
def revisions() -> list[str]:
    """This version's migrations, oldest first. A file name begins with its revision."""
    return sorted(path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*_*.py"))


def stored_revision(tx: Transaction) -> str | None:
    """The revision of the database's schema; None if the database has no schema of this service."""
    # Without Alembic: importing it would take more time than all the rest of most starts.
    if not dialect.has_table(tx, "alembic_version"):
        return None
    return tx.scalar("SELECT version_num FROM alembic_version")


def refuse_unknown_schema(tx: Transaction) -> None:
    """Raises `Conflict` for a schema of another version that this one does not know. It may be older or newer."""
    revision = stored_revision(tx)
    if revision is not None and revision not in revisions():
        raise Conflict(
            f"The database has schema {revision}, which this version of Hookmill does not know: it needs "
            f"{revisions()[-1]}. {OTHER_SCHEMA_ADVICE} Nothing was changed."
        )
