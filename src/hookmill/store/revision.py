"""The schema that this version needs."""

from functools import cache
from pathlib import Path
from typing import Final

_MIGRATIONS: Final = Path(__file__).parent / "migrations" / "versions"


@cache
def revisions() -> list[str]:
    """This version's migrations, oldest first. A file name begins with its revision."""
    return sorted(path.name.partition("_")[0] for path in _MIGRATIONS.glob("[0-9]*_*.py"))
