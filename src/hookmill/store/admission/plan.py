"""What the ingress decided about an attempt: to accept it, or to reject it. It is recorded only if the webhook is still
the one that the attempt was evaluated against.

Plans travel from an ingress process to its writing process, so they hold plain values.
"""

from typing import ClassVar, Final

import msgspec

from hookmill.domain.authentication import Authentic
from hookmill.domain.delivery import Identity, Label, RateLimit, Recorded, replay_digest
from hookmill.domain.ids import AutomationId, DeliveryKey, FactoryId

PLAN_OVERHEAD_BYTES: Final = 2_000
_DELIVERIES: Final = int(RateLimit.DELIVERIES)


class RunToStart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    key: bytes
    automation_id: AutomationId
    automation_version: int


class Acceptance(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True, gc=False):
    """To be recorded with its body and its runs, or as a duplicate if its identity was accepted before."""

    proof: Authentic
    """What the sender proved. Nothing is accepted without it."""
    delivery: DeliveryKey
    webhook_no: int
    factory_id: FactoryId
    revision: int
    """Of the webhook that the attempt was evaluated against."""
    received_at: int
    """Microseconds since 1970."""
    per_minute: int
    """The size of the rate limit."""
    identity: Identity
    body: bytes
    runs: tuple[RunToStart, ...] = ()
    recorded: Recorded | None = None
    """None where there is nothing else to record."""

    rate_limit: ClassVar[int] = _DELIVERIES

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def replay_digest(self) -> bytes | None:
        """What only a replay of the same signed request has again, under whatever id. None where old signatures are
        accepted."""
        return replay_digest(self.proof.fingerprint) if self.proof.fingerprint is not None else None


class Rejection(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True, gc=False):
    """To be recorded without a body, for the owner to see. It claims no identity and starts nothing."""

    delivery: DeliveryKey
    webhook_no: int
    revision: int
    received_at: int
    label: Label
    rate_limit: int
    """The number of the `RateLimit` that the attempt counts against."""
    per_minute: int
    size: int
    """Of the body in bytes, or what an unauthenticated client declared."""
    recorded: Recorded | None = None
    """None where there is nothing else to record."""


Plan = Acceptance | Rejection


def held_bytes(plan: Plan) -> int:
    """The memory that a plan takes while it waits."""
    return PLAN_OVERHEAD_BYTES + (len(plan.body) if isinstance(plan, Acceptance) else 0)
