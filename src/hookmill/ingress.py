"""A delivery, from the door to the log. Read this first.

An attempt is judged by what is in memory, and the judgement is worth nothing until the store has confirmed that the
webhook is still the one it was judged by: an acceptance by the transaction that writes it down, a refusal by a look
at the stored revision. That is why disable, delete and rotate hold at once, in every process, without a look-up for
each delivery.
"""

import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain import payload
from hookmill.domain.authentication import Authentic, Refused, Verdict, authenticate, diagnosis, needs_body
from hookmill.domain.client import Network, client_address
from hookmill.domain.delivery import (
    Accepted,
    Attempt,
    Broken,
    Budget,
    Challenged,
    Duplicate,
    Label,
    NotFound,
    Outcome,
    RateLimited,
    Unavailable,
    identify,
    rate_limited,
    replay_digest,
)
from hookmill.domain.errors import StoreUnavailable
from hookmill.domain.ids import DeliveryKey, time_ordered
from hookmill.domain.limits import WINDOW_SECONDS
from hookmill.domain.webhook import AuthMode, LiveWebhook
from hookmill.store.admission import Admission, Plan, RunToStart, Stale
from hookmill.store.group_commit import GroupCommit
from hookmill.store.snapshot import Snapshot

JUDGED_AGAIN_SECONDS: Final = 5.0
"""How long a webhook may go on changing under one delivery before the sender is asked to come again."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The body is over the limit; `size` is what was declared, or how much had come when reading stopped."""

    size: int


Body = bytes | TooLarge | Broken
ReadBody = Callable[[], Awaitable[Body]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The two budgets of every webhook, per sliding minute."""

    deliveries_per_minute: int
    failed_authentications_per_minute: int


class Ingress:
    """One event loop's ingress."""

    def __init__(
        self,
        snapshot: Snapshot,
        group_commit: GroupCommit,
        limits: Limits,
        *,
        has_room: Callable[[], bool] = lambda: True,
        public_url: str = "",
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        """`has_room` says whether the disk may take another delivery; `public_url` is what senders were given.

        `trusted_proxies` are believed when they say for whom they ask.
        """
        self._snapshot = snapshot
        self._group_commit = group_commit
        self._size_of = {
            Budget.DELIVERIES: limits.deliveries_per_minute,
            Budget.FAILED_AUTHENTICATIONS: limits.failed_authentications_per_minute,
        }
        self._has_room = has_room
        self._public_url = public_url
        self._trusted_proxies = trusted_proxies
        self._entropy = _Entropy()
        self._full_until: dict[tuple[int, int], int] = {}
        self._refusals: defaultdict[tuple[int, int, str], int] = defaultdict(int)

    async def receive(self, attempt: Attempt, read_body: ReadBody) -> Outcome:
        """What became of the attempt. An `Accepted` or `Duplicate` is durable before this returns."""
        body: Body | None = None
        webhook = self._snapshot.get(attempt.uid)
        judged_until: float | None = None
        try:
            while judged_until is None or time.monotonic() < judged_until:
                if webhook is None or not _is_here(webhook, attempt):
                    webhook = await self._snapshot.confirmed(attempt.uid)
                    if webhook is None or not _is_here(webhook, attempt):
                        return self._not_found(webhook, attempt)

                # Where the proof needs no body, a stranger's body is not read.
                proof = None if needs_body(webhook) else authenticate(webhook, attempt)
                if body is None and not isinstance(proof, Refused):
                    body = await read_body()
                if isinstance(body, Broken):
                    return body

                if proof is None and isinstance(body, bytes):
                    proof = authenticate(webhook, attempt, body, public_url=self._public_url)
                outcome = await self._admit(self._judge(webhook, attempt, proof, body), webhook, attempt)
                if not isinstance(outcome, Stale):
                    return _answered(outcome, proof)
                judged_until = judged_until or time.monotonic() + JUDGED_AGAIN_SECONDS
                webhook = await self._snapshot.confirmed(attempt.uid)
        except StoreUnavailable:
            return Unavailable()
        return Unavailable()

    def _judge(
        self, webhook: LiveWebhook, attempt: Attempt, proof: Verdict | None, body: bytes | TooLarge | None
    ) -> Plan:
        """What should be written about the attempt. `proof` is None where a body that is too large would have had to
        prove anything."""
        if isinstance(body, TooLarge) and not isinstance(proof, Refused):
            # Too large to be hashed is too large to be proven: a stranger's bytes must not spend the sender's budget.
            budget = Budget.DELIVERIES if proof is not None else Budget.FAILED_AUTHENTICATIONS
            return self._plan(webhook, attempt, Label.REJECTED_TOO_LARGE, budget, body.size)
        # Whatever is not a proof is a refusal: nothing below happens for a sender who has not proven itself.
        if not isinstance(proof, Authentic) or not isinstance(body, bytes):
            return self._failure(webhook, attempt, proof, body)

        parsed = payload.parse(body)
        if isinstance(parsed, payload.NotJson):
            plan = self._plan(webhook, attempt, Label.REJECTED_INVALID_JSON, Budget.DELIVERIES, len(body))
            plan.reason = parsed.reason
            return plan

        plan = self._plan(webhook, attempt, Label.ACCEPTED, Budget.DELIVERIES, len(body))
        plan.body = body
        identity = identify(webhook.delivery_id_header, proof.event_id, attempt, body)
        kind, plan.identity_digest, plan.identity_shown = identity
        plan.identity_kind = int(kind)
        if proof.fingerprint is not None:
            plan.replay_digest = replay_digest(proof.fingerprint)
        if webhook.subscriptions and proof.reply is None:
            plan.runs = tuple(
                RunToStart(self._entropy.key(attempt.received_at), chosen.automation_id, chosen.version)
                for chosen in webhook.subscriptions
                if chosen.matches(parsed)
            )
        return plan

    def _failure(
        self, webhook: LiveWebhook, attempt: Attempt, proof: Verdict | None, body: bytes | TooLarge | None
    ) -> Plan:
        """401 and a row, while the failures' budget lasts.

        Judged after verification, so that nobody who merely knows the URL can use up what the real sender needs.
        """
        size = len(body) if isinstance(body, bytes) else _declared_size(attempt)
        plan = self._plan(webhook, attempt, Label.REJECTED_AUTH, Budget.FAILED_AUTHENTICATIONS, size)
        if needs_body(webhook) and isinstance(body, bytes) and (plan.webhook_no, plan.budget) not in self._full_until:
            # Many times the work of a refusal, so not for a flood whose rows are not kept anyway.
            plan.reason = diagnosis(webhook, attempt, body, public_url=self._public_url)
        elif isinstance(proof, Refused):
            plan.reason = str(proof.reason)
        plan.client = client_address(attempt.peer, attempt.headers.get(b"x-forwarded-for"), self._trusted_proxies)
        return plan

    def _plan(self, webhook: LiveWebhook, attempt: Attempt, label: Label, budget: Budget, size: int) -> Plan:
        return Plan(
            delivery=self._entropy.key(attempt.received_at),
            webhook_no=webhook.no,
            factory_id=webhook.factory_id,
            revision=webhook.revision,
            received_at=attempt.received_at,
            label=label,
            budget=int(budget),
            budget_size=self._size_of[budget],
            size=size,
        )

    async def _admit(self, plan: Plan, webhook: LiveWebhook, attempt: Attempt) -> Admission:
        if not self._has_room():
            return Unavailable()
        budget = plan.webhook_no, plan.budget
        if budget in self._full_until and (full := await self._refused_from_memory(budget, webhook, attempt)):
            return full
        outcome = await self._group_commit.admit(plan)
        if isinstance(outcome, RateLimited):
            self._full_until[budget] = outcome.opens_at
            self._count(plan.webhook_no, attempt, _REFUSED_FOR[Budget(plan.budget)])
        return outcome

    async def _refused_from_memory(
        self, budget: tuple[int, int], webhook: LiveWebhook, attempt: Attempt
    ) -> RateLimited | None:
        """429 without a write while the window is known to be full, if the webhook is still the one judged by."""
        opens_at = self._full_until[budget]
        # More than a window ahead is from before the clock was set back.
        if not 0 < opens_at - attempt.received_at <= WINDOW_SECONDS * 1_000_000:
            del self._full_until[budget]
            return None
        current = await self._snapshot.confirmed(attempt.uid)
        if current is None or current.revision != webhook.revision:
            return None
        self._count(webhook.no, attempt, _REFUSED_FOR[Budget(budget[1])])
        return rate_limited(attempt.received_at, opens_at)

    def _not_found(self, webhook: LiveWebhook | None, attempt: Attempt) -> NotFound:
        if webhook is not None and not webhook.accepts_deliveries:
            self._count(webhook.no, attempt, "not_found")
        return NotFound()

    def _count(self, webhook_no: int, attempt: Attempt, kind: str) -> None:
        minute = attempt.received_at - attempt.received_at % 60_000_000
        self._refusals[webhook_no, minute, kind] += 1

    def write_down_refusals(self) -> None:
        """Hand over what was counted since the last time. Attempts without a row in the log are seen only in these
        counters."""
        if self._refusals:
            self._group_commit.count_refusals([(*key, count) for key, count in self._refusals.items()])
            self._refusals.clear()


_REFUSED_FOR: Final = {Budget.DELIVERIES: "rate_limited", Budget.FAILED_AUTHENTICATIONS: "failed_authentications"}


def _answered(outcome: Admission, proof: Verdict | None) -> Outcome:
    """A provider's challenge is answered once it is recorded, as often as it is repeated."""
    assert not isinstance(outcome, Stale)
    reply = proof.reply if isinstance(proof, Authentic) else None
    if reply is None or not isinstance(outcome, Accepted | Duplicate):
        return outcome
    return Challenged(reply.status, reply.content_type, reply.body)


def _is_here(webhook: LiveWebhook, attempt: Attempt) -> bool:
    """Whether the attempt's URL is one of an enabled webhook. A token segment belongs to `url_token` alone."""
    if not webhook.accepts_deliveries:
        return False
    return attempt.url_token is None or webhook.auth_mode is AuthMode.URL_TOKEN


def _declared_size(attempt: Attempt) -> int:
    """What the sender says of a body that nobody read: for the owner to see, and for nothing else."""
    declared = attempt.headers.get(b"content-length", b"")
    return int(declared) if declared.isdigit() and len(declared) < 10 else 0


class _Entropy:
    """Random bytes drawn from the system a page at a time: a system call per delivery would show."""

    __slots__ = ("_at", "_page")

    def __init__(self) -> None:
        self._page = b""
        self._at = 0

    def key(self, now_us: int) -> DeliveryKey:
        if self._at >= len(self._page):
            self._page, self._at = os.urandom(8 * 512), 0
        self._at += 8
        return DeliveryKey(time_ordered(now_us, self._page[self._at - 8 : self._at]))
