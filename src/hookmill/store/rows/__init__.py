"""Reads and writes whole rows of every table, for moves and backups.

`tables` describes the tables, generically from the schema. `sqlite` and `postgres` read and write their rows, in the
order of the keys. `digest` compares tables, whatever the database.
"""

from collections.abc import Callable
from typing import TypeAlias

ReportRows: TypeAlias = Callable[[str, int, int], None]
"""Receives the phase, the number of rows since the last call of this phase, and the total number of rows."""
