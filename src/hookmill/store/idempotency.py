"""Stores responses by Idempotency-Key. A response may contain a secret that is shown only once, so it is sealed."""

from hashlib import sha256

from hookmill.domain.secret import SecretValue
from hookmill.store.database import Transaction
from hookmill.store.keys import binding
from hookmill.store.keys.sealing import KeyRing


def row_id_of(caller: str, idempotency_key: str) -> str:
    """The id of the row for a caller's Idempotency-Key. Callers can't read each other's rows."""
    return sha256(f"{caller}\x00{idempotency_key}".encode()).hexdigest()


def stored_response(tx: Transaction, row_id: str, keys: KeyRing, *, since: int) -> tuple[bytes, bytes] | None:
    """The digest of the request in this row, and its response; None if there is none that was stored after `since`."""
    row = tx.one(
        "SELECT request_digest, key_id, sealed FROM idempotency_keys WHERE id = :id AND created_at > :since",
        id=row_id,
        since=since,
    )
    if row is None:
        return None
    response = keys.named(row["key_id"]).open(row["sealed"], row_id)
    return row["request_digest"], response.reveal().encode()


def store(tx: Transaction, row_id: str, request_digest: bytes, response: bytes, keys: KeyRing, now: int) -> None:
    sealing_key = binding.sealing_key(tx, keys)
    tx.run("DELETE FROM idempotency_keys WHERE id = :id", id=row_id)
    tx.run(
        """
        INSERT INTO idempotency_keys (id, request_digest, key_id, sealed, created_at)
        VALUES (:id, :digest, :key, :sealed, :now)
        """,
        id=row_id,
        digest=request_digest,
        key=sealing_key.id,
        sealed=sealing_key.seal(SecretValue(response.decode()), row_id),
        now=now,
    )


def forget(tx: Transaction, *, before: int) -> int:
    """Remove the responses stored up to this time, in µs since 1970. Returns how many."""
    return tx.run("DELETE FROM idempotency_keys WHERE created_at <= :before", before=before)
