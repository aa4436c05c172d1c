"""The schema that this version needs, and how its connections to PostgreSQL are named."""

from functools import cache
from pathlib import Path
from typing import Final

_MIGRATIONS: Final = Path(__file__).parent / "migrations" / "versions"


@cache
def revisions() -> list[str]:
    """This version's migrations, oldest first. A file name begins with its revision."""
    return sorted(path.name.partition("_")[0] for path in _MIGRATIONS.glob("[0-9]*_*.py"))


def application_name() -> str:
    """The name of this version's connections, by which a migration recognizes other versions."""
    return f"hookmill {revisions()[-1]}"
