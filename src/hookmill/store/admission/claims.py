"""Claims of identities (deduplication): which plans of a transaction are the first with their identity.

The signed content is claimed before the delivery id, because an attacker who replays a captured request can change
every header that isn't signed.
"""

from collections.abc import Sequence
from typing import Any, Final

from hookmill.domain.delivery import IdentityKind
from hookmill.store.admission.plan import Acceptance
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Transaction
from hookmill.store.identity_segments import SegmentCache

_CLAIM: Final = RowStatement(
    """
    INSERT INTO identities (webhook_no, segment, digest, delivery_id, kind, claimed_at)
    {rows}
    ON CONFLICT (segment, webhook_no, digest) DO NOTHING
    """,
    ("int", "int", "bytea", "bytea", "smallint", "bigint"),
)

# A body's digest is an identity as long as the delivery is in the log.
_OWNERS: Final = RowStatement(
    f"""
    WITH claims (webhook_no, segment, digest) AS ({{rows}})
    SELECT i.webhook_no, i.segment, i.digest, i.delivery_id,
           i.kind <> {IdentityKind.BODY_SHA256:d} OR EXISTS (SELECT 1 FROM deliveries d WHERE d.id = i.delivery_id)
    FROM claims
    JOIN identities i ON i.segment = claims.segment AND i.webhook_no = claims.webhook_no AND i.digest = claims.digest
    """,
    ("int", "int", "bytea"),
)

_RELEASE: Final = RowStatement(
    """
    DELETE FROM identities
    WHERE (webhook_no, segment, digest) IN ({rows})
    """,
    ("int", "int", "bytea"),
)

# A retry that was signed again is a Duplicate by its id. Its signed content is then stored for the original delivery,
# because only an Accepted delivery has identities.
_GIVE_TO_ORIGINAL: Final = RowStatement(
    """
    WITH retries (webhook_no, segment, digest, original) AS ({rows})
    UPDATE identities
    SET delivery_id = retries.original
    FROM retries
    WHERE identities.segment = retries.segment AND identities.webhook_no = retries.webhook_no
      AND identities.digest = retries.digest
    """,
    ("int", "int", "bytea", "bytea"),
)

_Identity = tuple[int, bytes]
"""A webhook's number and a digest."""
_ClaimValues = tuple[int, int, bytearray, bytearray, int, int]


def claim_identities(
    tx: Transaction, acceptances: Sequence[tuple[int, Acceptance]], segments: SegmentCache
) -> dict[int, bytes]:
    """Claim the identities of these plans, each with its position. Returns the duplicates: the position of each one,
    and the key of the original delivery."""
    if not acceptances:
        return {}
    segments.refresh(tx)
    originals_by_position: dict[int, bytes] = {}
    with_signed_content = [
        (position, plan, digest) for position, plan in acceptances if (digest := plan.signed_content_digest) is not None
    ]
    owners = _claim_digests(
        tx, segments, [(plan, digest, int(IdentityKind.SIGNED_CONTENT)) for _, plan, digest in with_signed_content]
    )
    for position, plan, digest in with_signed_content:
        if (owner := owners[plan.webhook_no, digest]) != plan.delivery_key:
            originals_by_position[position] = owner
    remaining = [(position, plan) for position, plan in acceptances if position not in originals_by_position]
    owners = _claim_digests(
        tx, segments, [(plan, plan.identity.digest, int(plan.identity.kind)) for _, plan in remaining]
    )
    originals_of_retries: dict[bytes, bytes] = {}
    claims_of_retries: list[tuple[int, int, bytearray, bytearray]] = []
    for position, plan in remaining:
        if (owner := owners[plan.webhook_no, plan.identity.digest]) != plan.delivery_key:
            originals_by_position[position] = owner
            if (digest := plan.signed_content_digest) is not None:
                originals_of_retries[plan.delivery_key] = owner
                claims_of_retries.append((plan.webhook_no, segments.open_segment, bytearray(digest), bytearray(owner)))
    if claims_of_retries:
        _GIVE_TO_ORIGINAL.execute(tx, claims_of_retries)
        # A replay of a retry in this batch is a Duplicate of the retry's original.
        for position, owner in originals_by_position.items():
            originals_by_position[position] = originals_of_retries.get(owner, owner)
    return originals_by_position


def _claim_digests(
    tx: Transaction, segments: SegmentCache, candidates: Sequence[tuple[Acceptance, bytes, int]]
) -> dict[_Identity, bytes]:
    """Claim each candidate's digest as an identity. A candidate is a plan, a digest, and the kind of the identity.

    Returns the key of the delivery that owns each identity.
    """
    claims: dict[_Identity, _ClaimValues] = {}
    to_search: list[tuple[int, int, bytearray]] = []
    for plan, digest, kind in candidates:
        identity = (plan.webhook_no, digest)
        if identity in claims:
            continue
        digest_value = bytearray(digest)
        claims[identity] = (
            plan.webhook_no,
            segments.open_segment,
            digest_value,
            bytearray(plan.delivery_key),
            kind,
            plan.received_at,
        )
        for segment in segments.segments_to_search(digest):
            to_search.append((plan.webhook_no, segment, digest_value))
    owners = {identity: bytes(claim[3]) for identity, claim in claims.items()}
    if to_search:
        earlier_owners = _owners(tx, to_search)
        owners |= earlier_owners
        for identity in earlier_owners:
            del claims[identity]
    if claims and _CLAIM.execute(tx, list(claims.values())) < len(claims):
        present_owners = _owners(tx, [claim[:3] for claim in claims.values()])
        owners |= present_owners
        # The digests that `_owners` has released are claimed now.
        if free := [claim for identity, claim in claims.items() if identity not in present_owners]:
            _CLAIM.execute(tx, free)
    return owners


def _owners(tx: Transaction, places: Sequence[tuple[int, int, bytearray]]) -> dict[_Identity, bytes]:
    """The owners of identities, which are searched by webhook, segment and digest.

    Releases the digests of bodies whose deliveries are not in the log: retention has removed the delivery, or this
    transaction has claimed the digest and inserts the log row later.
    """
    owners: dict[_Identity, bytes] = {}
    released: list[tuple[Any, ...]] = []
    for webhook_no, segment, digest, delivery, is_kept in _OWNERS.select(tx, places):
        if is_kept:
            owners[webhook_no, bytes(digest)] = bytes(delivery)
        else:
            released.append((webhook_no, segment, bytearray(digest)))
    if released:
        _RELEASE.execute(tx, released)
    return owners
