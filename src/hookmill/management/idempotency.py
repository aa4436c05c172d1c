"""Stores responses by Idempotency-Key. A retry with the same key gets the first response and changes nothing."""

import hmac
from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.domain.limits import IDEMPOTENT_ANSWERS_KEPT_HOURS
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management.installation import Operations
from hookmill.store import idempotency

RESPONSES_KEPT_US: Final = IDEMPOTENT_ANSWERS_KEPT_HOURS * 3_600_000_000


class IdempotencyKeyReused(Conflict):
    """A different request has used the Idempotency-Key."""


class Idempotency(Operations):
    """Stores responses. Call both methods inside `one_transaction`: then a response is stored only with its change."""

    def stored_response(self, may: MayManage | MayAdminister, key: str, request_digest: bytes) -> bytes | None:
        """The stored response; None if the actor has not used the key within a day. Raises `IdempotencyKeyReused`."""
        since = self._installation.now() - RESPONSES_KEPT_US
        with self._installation.reading() as tx:
            stored = idempotency.stored_response(
                tx, idempotency.row_id_of(may.actor.id, key), self._installation.master_keys, since=since
            )
        if stored is None:
            return None
        stored_digest, response = stored
        if not hmac.compare_digest(stored_digest, request_digest):
            raise IdempotencyKeyReused("This Idempotency-Key was used for another request. Use a new key.")
        return response

    def store(self, may: MayManage | MayAdminister, key: str, request_digest: bytes, response: bytes) -> None:
        """Store the response, sealed, for a day."""
        with self._installation.changing(may) as change:
            row_id = idempotency.row_id_of(may.actor.id, key)
            idempotency.store(change.tx, row_id, request_digest, response, self._installation.master_keys, change.now)
            # The operation itself has a line in the audit log.
            change.skip_audit()
