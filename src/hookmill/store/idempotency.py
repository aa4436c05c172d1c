"""Answers to requests that may be repeated. One may hold a secret that is shown once, so they are sealed."""

from hashlib import sha256

from hookmill.domain.secret import SecretValue
from hookmill.store.database import Transaction
from hookmill.store.keys import binding
from hookmill.store.keys.sealing import MasterKeys


def row_id(caller: str, key: str) -> str:
    """One caller's keys are apart from everybody else's."""
    return sha256(f"{caller}\x00{key}".encode()).hexdigest()


def kept(tx: Transaction, row: str, keys: MasterKeys, *, since: int) -> tuple[bytes, bytes] | None:
    """The digest of the request that used the key first, and its answer; None when there was none since then."""
    found = tx.one(
        "SELECT request_digest, key_id, sealed FROM idempotency_keys WHERE id = :id AND created_at > :since",
        id=row,
        since=since,
    )
    if found is None:
        return None
    answer = keys.named(found["key_id"]).open(bytes(found["sealed"]), row)
    return bytes(found["request_digest"]), answer.reveal().encode()


def keep(tx: Transaction, row: str, request_digest: bytes, answer: bytes, keys: MasterKeys, now: int) -> None:
    key = binding.sealing_key(tx, keys)
    tx.run("DELETE FROM idempotency_keys WHERE id = :id", id=row)
    tx.run(
        """
        INSERT INTO idempotency_keys (id, request_digest, key_id, sealed, created_at)
        VALUES (:id, :digest, :key, :sealed, :now)
        """,
        id=row,
        digest=request_digest,
        key=key.id,
        sealed=key.seal(SecretValue(answer.decode()), row),
        now=now,
    )


def forget(tx: Transaction, *, before: int) -> int:
    return tx.run("DELETE FROM idempotency_keys WHERE created_at <= :before", before=before)
