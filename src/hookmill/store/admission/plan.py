"""Plans: the ingress's decision to accept or reject an attempt. A plan is recorded only if the webhook is unchanged.

An ingress process sends plans to its writer process, so they contain plain values.
"""

from typing import ClassVar, Final

import msgspec

from hookmill.domain.authentication import Authentic
from hookmill.domain.delivery import Identity, Label, LogDetails, RateLimit, replay_digest
from hookmill.domain.ids import AutomationId, DeliveryKey, FactoryId
from hookmill.domain.run_policy import Priority

PLAN_OVERHEAD_BYTES: Final = 2_000
"""The approximate memory of a waiting plan without its body."""
_DELIVERIES_RATE_LIMIT: Final = int(RateLimit.DELIVERIES)


class RunToStart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run that is recorded with the delivery. `key` is the run's key."""

    key: bytes
    automation_id: AutomationId
    automation_version: int
    priority: int = Priority.NORMAL.rank
    policy_key: bytes | None = None
    """None if the automation's policy has neither concurrency nor debounce. Otherwise, a worker decides when the run
    starts."""
    interrupted_because: str | None = None
    """Why the run is recorded as interrupted instead of starting, for people; None if it starts."""


class Acceptance(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True, gc=False):
    """Record the attempt with its body and runs, or as a duplicate if its identity was accepted before."""

    proof: Authentic
    """The proof of authentication. An acceptance can't be built without it."""
    delivery_key: DeliveryKey
    webhook_no: int
    factory_id: FactoryId
    revision: int
    """The revision of the webhook that the attempt was evaluated against."""
    received_at: int
    """Microseconds since 1970."""
    per_minute: int
    """The rate limit in attempts per sliding minute."""
    identity: Identity
    body: bytes
    runs: tuple[RunToStart, ...] = ()
    log_details: LogDetails | None = None
    """Additional columns of the log row; None if all are empty."""

    rate_limit: ClassVar[int] = _DELIVERIES_RATE_LIMIT
    """The number of the `RateLimit` that the attempt counts against. `per_minute` is the limit itself."""

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def signed_content_digest(self) -> bytes | None:
        """The digest of the signed content, by which a replay is detected even if its delivery id was changed.

        None if the scheme does not detect replays.
        """
        return replay_digest(self.proof.fingerprint) if self.proof.fingerprint is not None else None


class Rejection(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True, gc=False):
    """Record the attempt without its body. The attempt claims no identity and starts no runs."""

    delivery_key: DeliveryKey
    webhook_no: int
    revision: int
    received_at: int
    label: Label
    rate_limit: int
    """The number of the `RateLimit` that the attempt counts against."""
    per_minute: int
    """That limit in attempts per sliding minute."""
    size: int
    """The size of the body in bytes, or the declared size if the body was not read."""
    log_details: LogDetails | None = None
    """Additional columns of the log row; None if all are empty."""


Plan = Acceptance | Rejection


def memory_bytes(plan: Plan) -> int:
    """The approximate memory of a waiting plan, in bytes."""
    return PLAN_OVERHEAD_BYTES + (len(plan.body) if isinstance(plan, Acceptance) else 0)
