"""A request that is repeated with the same Idempotency-Key is answered as it was the first time, and does nothing."""

import hmac
from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.domain.limits import IDEMPOTENT_ANSWERS_KEPT_HOURS
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management.installation import Installation
from hookmill.store import idempotency

KEPT_US: Final = IDEMPOTENT_ANSWERS_KEPT_HOURS * 3_600_000_000


class KeyReused(Conflict):
    """An Idempotency-Key that another request has used."""


class Idempotency:
    """Both are called inside `together`, so that an answer is kept exactly when what it says was done."""

    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def answered(self, may: MayManage | MayAdminister, key: str, request_digest: bytes) -> bytes | None:
        """The answer that was given before; None for a key that was not used. Raises `KeyReused`."""
        since = self._at.now() - KEPT_US
        with self._at.reading() as tx:
            kept = idempotency.kept(tx, idempotency.row_id(may.actor.id, key), self._at.key, since=since)
        if kept is None:
            return None
        digest, answer = kept
        if not hmac.compare_digest(digest, request_digest):
            raise KeyReused("This Idempotency-Key was used for another request. Take a new one.")
        return answer

    def keep(self, may: MayManage | MayAdminister, key: str, request_digest: bytes, answer: bytes) -> None:
        """Keep the answer, sealed, for a day."""
        with self._at.changing(may) as change:
            row = idempotency.row_id(may.actor.id, key)
            idempotency.keep(change.tx, row, request_digest, answer, self._at.key, change.now)
            # The act itself has its line.
            change.nothing()
