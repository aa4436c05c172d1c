"""What every check gets: the snapshot that it reads, and the problems that it yields."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hookmill.domain.automation import Trigger, triggers_from_stored
from hookmill.domain.ids import time_ordered_key
from hookmill.domain.limits import LOG_DAYS_KEPT
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction
from hookmill.store.keys.sealing import KeyRing

STATEMENT_SECONDS: Final = 600
"""The longest time of one statement on PostgreSQL."""
DAY_US: Final = 86_400_000_000
CLOCK_TOLERANCE_US: Final = 3_600_000_000
"""Times that hosts recorded may contradict each other by this much, because their clocks differ, or were set."""
VERSIONS_IN_MEMORY: Final = 1_000

RESTORE: Final = "If it is needed, restore a backup from before the damage (docs/backup.md)."
REPORT: Final = "Hookmill does not write this. Report it, and keep a backup of this state."


@dataclass(frozen=True, slots=True)
class DatabaseProblem:
    """A row that contradicts others. `text` says what is wrong and what that means, `advice` says what to do."""

    kind: str
    """What the row contradicts, such as `payload_missing`."""
    row: str
    """The row, such as `delivery dlv_…`."""
    text: str
    advice: str = REPORT


@dataclass(slots=True)
class DatabaseSnapshot:
    """A consistent state of the database, which one read transaction has. `now` is in µs since 1970."""

    tx: Transaction
    keys: KeyRing
    now: int
    report: Callable[[str, int, int], None]
    """Receives what is checked, the number of rows since its last call, and the total number of rows."""
    check: Callable[[], None]
    """Raises if the verification must end."""
    webhooks: Mapping[int, Row] = field(default_factory=dict)
    """By number."""
    automations: Mapping[str, Row] = field(default_factory=dict)
    """By id, also deleted ones."""
    rows: int = 0
    """How many rows were checked."""
    _triggers: dict[tuple[str, int], tuple[Trigger, ...] | None] = field(default_factory=dict)

    def load(self) -> None:
        """Read the webhooks and automations, to which most rows refer."""
        dialect.allow_long_statements(self.tx, STATEMENT_SECONDS)
        self.webhooks = {row["no"]: row for row in self.tx.all("SELECT * FROM webhooks")}
        self.automations = {row["id"]: row for row in self.tx.all("SELECT * FROM automations")}

    @property
    def kept_since(self) -> bytes:
        """A key. The log still has every delivery and run with a later one."""
        return time_ordered_key(max(self.now - LOG_DAYS_KEPT * DAY_US + CLOCK_TOLERANCE_US, 0), b"\xff" * 8)

    def pages(self, title: str, table: str, sql: str, *, rows_per_page: int) -> Iterator[Sequence[Row]]:
        """The result of `sql` in pages. It has the parameters `:last` and `:limit`, and returns the column `key`, which
        is bytes and the order."""
        total = self.tx.integer(f"SELECT COUNT(*) FROM {table}")
        self.report(title, 0, total)
        last = b""
        while rows := self.tx.all(sql, last=last, limit=rows_per_page):
            self.check()
            yield rows
            last = rows[-1]["key"]
            self.rows += len(rows)
            self.report(title, len(rows), total)

    def triggers_of(self, automation: str, version: int) -> tuple[Trigger, ...] | None:
        """The triggers of a stored version; None if there is no such version, or if a trigger can't be read."""
        key = automation, version
        if key not in self._triggers:
            stored = self.tx.scalar(
                "SELECT triggers FROM automation_versions WHERE automation_id = :automation AND version = :version",
                automation=automation,
                version=version,
            )
            if len(self._triggers) >= VERSIONS_IN_MEMORY:
                self._triggers.clear()
            triggers = triggers_from_stored(stored) if stored is not None else None
            self._triggers[key] = triggers if not isinstance(triggers, str) else None
        return self._triggers[key]
