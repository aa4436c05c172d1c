"""Adds deliveries that are two weeks old, which retention removes during the drill."""

import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from hookmill.domain.authentication import Authentic
from hookmill.domain.delivery import Accepted, Identity, IdentityKind
from hookmill.domain.ids import DeliveryKey, time_ordered_key
from hookmill.domain.webhook import AuthMode, Webhook
from hookmill.maintenance import DAY_US, run_retention
from hookmill.store.admission.plan import Acceptance
from hookmill.store.admission.transaction import admit
from hookmill.store.database import Database, open_database

ROWS: Final = 60
"""How many deliveries each fault adds."""
KEPT_ROWS: Final = 50
"""How many of a webhook's newest deliveries retention keeps, however old they are."""
AGE_DAYS: Final = 14


class AgedLog:
    """The log of a webhook whose deliveries are all old."""

    def __init__(self, url: str, webhook: Webhook, directory: Path):
        self._url = url
        self._webhook = webhook
        self._packages = directory / "no-packages"
        """It does not exist, because these deliveries start no runs."""
        self._keys: list[bytes] = []
        """The keys of the added deliveries, oldest first."""

    def grow_and_prune(self, retry: Callable[[Callable[[], Any]], Any]):
        """Add old deliveries, then run retention. `retry` repeats a step while the database is unavailable."""
        with open_database(self._url) as database:
            retry(lambda: self._add_rows(database))
            retry(lambda: self._prune(database))

    def count_wrong_rows(self) -> int:
        """Run retention a last time. Returns how many rows are missing or should have been removed."""
        with open_database(self._url) as database:
            # If retention of a worker holds the lock, the worker removes the rows.
            deadline = time.monotonic() + 30
            while self._rows(database) != set(self._keys[-KEPT_ROWS:]) and time.monotonic() < deadline:
                self._prune(database)
                time.sleep(0.05)
            return len(self._rows(database) ^ set(self._keys[-KEPT_ROWS:]))

    def _prune(self, database: Database):
        run_retention(database, self._packages, _now_us())

    def _rows(self, database: Database) -> set[bytes]:
        with database.read() as tx:
            rows = tx.all("SELECT id FROM deliveries WHERE webhook_no = :webhook", webhook=self._webhook.no)
        return {bytes(row["id"]) for row in rows}

    def _add_rows(self, database: Database):
        plans = [self._plan(number) for number in range(ROWS)]
        keys = [bytes(plan.delivery_key) for plan in plans]
        with database.write() as tx:
            # A previous attempt may have reported a failure although its COMMIT succeeded. Find its rows.
            self._keys = sorted({*self._keys, *self._newer_rows(tx)})
            outcomes = admit(tx, plans)
        assert [type(outcome) for outcome in outcomes] == [Accepted] * ROWS
        self._keys += keys

    def _newer_rows(self, tx: Any) -> list[bytes]:
        newest = self._keys[-1] if self._keys else b""
        rows = tx.all(
            "SELECT id FROM deliveries WHERE webhook_no = :webhook AND id > :newest",
            webhook=self._webhook.no,
            newest=newest,
        )
        return [bytes(row["id"]) for row in rows]

    def _plan(self, number: int) -> Acceptance:
        received_at = _now_us() - AGE_DAYS * DAY_US + number
        return Acceptance(
            proof=Authentic(AuthMode.TOKEN, fingerprint=None),
            delivery_key=DeliveryKey(time_ordered_key(received_at, os.urandom(8))),
            webhook_no=self._webhook.no,
            factory_id=self._webhook.factory_id,
            revision=self._webhook.revision,
            received_at=received_at,
            per_minute=1_000,
            identity=Identity(IdentityKind.SENDER, sha256(os.urandom(16)).digest()[:16], None),
            body=b"{}",
            runs=(),
        )


def _now_us() -> int:
    return time.time_ns() // 1000
