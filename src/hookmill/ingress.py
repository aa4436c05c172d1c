"""A delivery, from the HTTP request to the log. Read this first.

The ingress evaluates each attempt against a webhook in memory. The result is used only if the stored webhook still
has the same revision. The transaction that records the attempt compares the revisions; before a 404, the stored webhook
is read again. So disable, delete and rotate take effect immediately in every process, without a look-up for each
delivery.
"""

import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain import payload
from hookmill.domain.activity import FAILED_AUTHENTICATIONS, NOT_FOUND, RATE_LIMITED
from hookmill.domain.authentication import (
    Authentic,
    Authentication,
    Refused,
    authenticate,
    diagnosis,
    needs_body,
    refuse_client,
)
from hookmill.domain.automation import Subscription
from hookmill.domain.client import FORWARDED_FOR, client_ip
from hookmill.domain.delivery import (
    Accepted,
    Attempt,
    CutShort,
    Duplicate,
    Label,
    LogDetails,
    NoSuchWebhook,
    Outcome,
    RateLimit,
    RateLimited,
    Rejected,
    Unavailable,
    identify,
    rate_limited,
)
from hookmill.domain.errors import ReportFailure, StoreUnavailable
from hookmill.domain.event import event_type
from hookmill.domain.ids import DeliveryKey, delivery_id, time_ordered_key
from hookmill.domain.ingress_webhook import IngressWebhook
from hookmill.domain.limits import WINDOW_SECONDS
from hookmill.domain.networks import Address, Network
from hookmill.domain.trace import (
    TRACEPARENT_HEADER,
    Span,
    Trace,
    Tracing,
    commit_span_id,
    delivery_span_id,
    valid_traceparent,
)
from hookmill.domain.webhook import AuthMode
from hookmill.metrics import DROPPED_ATTEMPTS, Metrics
from hookmill.store.admission.group_commit import GroupCommit
from hookmill.store.admission.plan import Acceptance, Plan, Rejection, RunToStart
from hookmill.store.admission.snapshot import Snapshot
from hookmill.store.admission.transaction import AdmissionOutcome, Stale

REEVALUATE_SECONDS_MAX: Final = 5.0
"""If a webhook keeps changing while one delivery is evaluated, the sender gets a 503 after this time."""


_NO_LOG_DETAILS: Final = LogDetails()


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The body is over the limit. `size` is the declared size, or the size at which reading stopped, in bytes."""

    size: int


Body = bytes | TooLarge | CutShort
ReadBody = Callable[[], Awaitable[Body]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The two rate limits that apply to each webhook, per sliding minute."""

    deliveries_per_minute: int
    failed_authentications_per_minute: int


class Ingress:
    """Evaluates delivery attempts, and admits them with group commit. One instance per event loop."""

    def __init__(
        self,
        snapshot: Snapshot,
        group_commit: GroupCommit,
        limits: Limits,
        *,
        has_room: Callable[[], bool] = lambda: True,
        public_url: str = "",
        trusted_proxies: Sequence[Network] = (),
        metrics: Metrics | None = None,
        tracing: Tracing | None = None,
        report_failure: ReportFailure = lambda _component, _error: None,
    ) -> None:
        """`has_room`: whether the disk has room for another delivery. `public_url`: the base of the webhooks' URLs.
        `report_failure` gets exceptions that nobody expected.

        `trusted_proxies`: the proxies whose `X-Forwarded-For` determines the client's address. Without `tracing`, no
        spans are recorded.
        """
        self._snapshot = snapshot
        self._group_commit = group_commit
        self._limits = limits
        self._has_room = has_room
        self._public_url = public_url
        self._trusted_proxies = trusted_proxies
        self._metrics = metrics or Metrics()
        # The first call creates the counters of all kinds. They must exist before their first increase.
        self._metrics.number(DROPPED_ATTEMPTS, RATE_LIMITED)
        self._tracing = tracing
        self.report_failure = report_failure
        self._row_keys = _RowKeyGenerator()
        self._limited_until: dict[tuple[int, int], int] = {}
        """When an exceeded limit admits deliveries again, in µs since 1970: by webhook number and `RateLimit`."""
        self._dropped_counts: defaultdict[tuple[int, int, str], int] = defaultdict(int)
        """Counts of dropped attempts since the last write: by webhook number, start of the minute in µs, and kind."""

    async def receive(self, attempt: Attempt, read_body: ReadBody) -> Outcome:
        """The outcome of the attempt. If the log has a row for it, the row is durable before this returns."""
        body: Body | None = None
        webhook = self._snapshot.get(attempt.uid)
        # There is no deadline yet. The first stale plan starts it.
        deadline: float | None = None
        try:
            while deadline is None or time.monotonic() < deadline:
                if webhook is None or not _serves(webhook, attempt):
                    webhook = await self._snapshot.revalidate(attempt.uid)
                    if webhook is None or not _serves(webhook, attempt):
                        return self._not_found(webhook, attempt)

                # The client's network and tokens are verified before the body is read, and signatures after it.
                authentication: Authentication | None = None
                if webhook.allowed_networks is not None:
                    authentication = refuse_client(webhook.allowed_networks, self._client_ip_of(attempt))
                if authentication is None and not needs_body(webhook):
                    authentication = authenticate(webhook, attempt)
                if body is None and not isinstance(authentication, Refused):
                    body = await read_body()
                if isinstance(body, CutShort):
                    return body

                if authentication is None and isinstance(body, bytes):
                    authentication = authenticate(webhook, attempt, body, public_url=self._public_url)
                plan = self._evaluate(webhook, attempt, authentication, body)
                outcome = await self._admit(plan, webhook, attempt)
                if not isinstance(outcome, Stale):
                    return _outcome_for_sender(outcome, plan)
                deadline = deadline or time.monotonic() + REEVALUATE_SECONDS_MAX
                webhook = await self._snapshot.revalidate(attempt.uid)
        except StoreUnavailable:
            return Unavailable()
        return Unavailable()

    def _evaluate(
        self,
        webhook: IngressWebhook,
        attempt: Attempt,
        authentication: Authentication | None,
        body: bytes | TooLarge | None,
    ) -> Plan:
        """What to record about the attempt.

        `authentication` is None if it is unknown: verification needs the body, and the body is too large.
        """
        if isinstance(body, TooLarge) and not isinstance(authentication, Refused):
            # An unauthenticated attempt must not count against the sender's rate limit.
            limit = RateLimit.DELIVERIES if authentication is not None else RateLimit.FAILED_AUTHENTICATIONS
            return self._rejection(webhook, attempt, Label.REJECTED_TOO_LARGE, limit, body.size)
        if not isinstance(authentication, Authentic) or not isinstance(body, bytes):
            return self._authentication_failure(webhook, attempt, authentication, body)
        parsed = payload.parse(body)
        if isinstance(parsed, payload.NotJson):
            return self._rejection(
                webhook,
                attempt,
                Label.REJECTED_INVALID_JSON,
                RateLimit.DELIVERIES,
                len(body),
                reason=parsed.reason,
            )
        return self._acceptance(webhook, attempt, authentication, body, parsed)

    def _acceptance(
        self, webhook: IngressWebhook, attempt: Attempt, proof: Authentic, body: bytes, parsed: payload.Parsed
    ) -> Acceptance:
        log_details = self._log_details(webhook, attempt, parsed, is_authenticated=True)
        event = log_details.event if log_details is not None else None
        runs: tuple[RunToStart, ...] = ()
        if webhook.subscriptions and proof.challenge_reply is None:
            runs = tuple(
                run
                for subscription in webhook.subscriptions
                if (run := self._run_of(subscription, attempt, event, parsed)) is not None
            )
        return Acceptance(
            proof=proof,
            delivery_key=DeliveryKey(self._row_keys.next_key(attempt.received_at)),
            webhook_no=webhook.no,
            factory_id=webhook.factory_id,
            revision=webhook.revision,
            received_at=attempt.received_at,
            per_minute=self._limits.deliveries_per_minute,
            identity=identify(webhook.delivery_id_header, proof.event_id, attempt, body),
            body=body,
            runs=runs,
            log_details=log_details,
        )

    def _run_of(
        self, subscription: Subscription, attempt: Attempt, event: str | None, parsed: payload.Parsed
    ) -> RunToStart | None:
        """The automation's run of the delivery; None if no trigger matches.

        A defect in the evaluation of one automation must cost neither the delivery nor the runs of others. Its run is
        recorded as interrupted, so that the loss is visible and the delivery can be replayed.
        """
        policy_key: bytes | None = None
        interrupted_because: str | None = None
        try:
            if not subscription.matches(event, parsed):
                return None
            interrupted_because = subscription.policy.reason_against_runs
            policy_key = subscription.policy.policy_key(subscription.automation_id, parsed)
        except Exception as error:
            self.report_failure(f"automation {subscription.automation_id}", error)
            interrupted_because = (
                f"Hookmill failed to evaluate this automation for the delivery: a fault of type {type(error).__name__}."
                " Look for it in the log of the service, and report it. Then replay the delivery."
            )
        return RunToStart(
            self._row_keys.next_key(attempt.received_at),
            subscription.automation_id,
            subscription.version,
            subscription.policy.priority.rank,
            policy_key,
            interrupted_because,
        )

    def _authentication_failure(
        self,
        webhook: IngressWebhook,
        attempt: Attempt,
        authentication: Authentication | None,
        body: bytes | TooLarge | None,
    ) -> Rejection:
        """The rejection of an unauthenticated attempt. It counts against the rate limit of failed authentications.

        Only verified attempts count against the rate limit of deliveries. So a client that only knows the URL can't use
        up the real sender's limit.
        """
        size = len(body) if isinstance(body, bytes) else _declared_size(attempt)
        limit = RateLimit.FAILED_AUTHENTICATIONS
        reason = None
        if isinstance(authentication, Refused):
            reason = str(authentication.reason)
            may_get_row = (webhook.no, int(limit)) not in self._limited_until
            if authentication.is_by_signature and isinstance(body, bytes) and may_get_row:
                # A diagnosis costs many times as much as verification. It is skipped if the attempt gets no row anyway.
                reason = diagnosis(webhook, attempt, body, public_url=self._public_url)
        return self._rejection(webhook, attempt, Label.REJECTED_AUTH, limit, size, reason=reason)

    def _client_ip_of(self, attempt: Attempt) -> Address | None:
        return client_ip(attempt.peer, attempt.headers.get(FORWARDED_FOR), self._trusted_proxies)

    def _rejection(
        self,
        webhook: IngressWebhook,
        attempt: Attempt,
        label: Label,
        limit: RateLimit,
        size: int,
        *,
        reason: str | None = None,
    ) -> Rejection:
        is_authenticated = limit is RateLimit.DELIVERIES
        return Rejection(
            delivery_key=DeliveryKey(self._row_keys.next_key(attempt.received_at)),
            webhook_no=webhook.no,
            revision=webhook.revision,
            received_at=attempt.received_at,
            label=label,
            rate_limit=int(limit),
            per_minute=(
                self._limits.deliveries_per_minute
                if is_authenticated
                else self._limits.failed_authentications_per_minute
            ),
            size=size,
            log_details=self._log_details(webhook, attempt, is_authenticated=is_authenticated, reason=reason),
        )

    def _log_details(
        self,
        webhook: IngressWebhook,
        attempt: Attempt,
        parsed: payload.Parsed | None = None,
        *,
        is_authenticated: bool,
        reason: str | None = None,
    ) -> LogDetails | None:
        """What the log records about the attempt; None if there is nothing.

        An unauthenticated client can send any event type and any trace, so only its address is recorded.
        """
        source = webhook.event_source if is_authenticated else None
        event = event_type(source, attempt, parsed) if source is not None else None
        client = self._client_ip_of(attempt) if not is_authenticated else None
        log_details = LogDetails(
            reason=reason,
            client=str(client) if client is not None else None,
            event=event.name if event is not None else None,
            event_signed=event.is_signed if event is not None else None,
            traceparent=_traceparent(attempt) if is_authenticated and self._tracing is not None else None,
        )
        return log_details if log_details != _NO_LOG_DETAILS else None

    async def _admit(self, plan: Plan, webhook: IngressWebhook, attempt: Attempt) -> AdmissionOutcome:
        if not self._has_room():
            return Unavailable()
        limit_key = plan.webhook_no, plan.rate_limit
        if limit_key in self._limited_until:
            rate_limited_outcome = await self._rate_limited_from_memory(limit_key, webhook, attempt)
            if rate_limited_outcome is not None:
                return rate_limited_outcome
        trace = self._sampled_trace(plan)
        if trace is None or self._tracing is None:
            outcome = await self._group_commit.admit(plan)
        else:
            outcome = await self._admit_with_spans(plan, webhook, attempt, trace, self._tracing)
        if isinstance(outcome, RateLimited):
            self._limited_until[limit_key] = outcome.opens_at
            self._count_dropped(plan.webhook_no, attempt, _DROPPED_KINDS[RateLimit(plan.rate_limit)])
        return outcome

    def _sampled_trace(self, plan: Plan) -> Trace | None:
        """The trace of the delivery, if its spans are recorded."""
        if self._tracing is None:
            return None
        traceparent = plan.log_details.traceparent if plan.log_details is not None else None
        return self._tracing.sampled_trace_of(traceparent, plan.delivery_key)

    async def _admit_with_spans(
        self, plan: Plan, webhook: IngressWebhook, attempt: Attempt, trace: Trace, tracing: Tracing
    ) -> AdmissionOutcome:
        """Admit the plan. If the log has a row for the attempt, record the spans of the delivery and its commit.

        Other attempts have no spans, because unauthenticated clients could cause any number of them.
        """
        commit_began_at = tracing.clock()
        outcome = await self._group_commit.admit(plan)
        if not isinstance(outcome, Accepted | Duplicate | Rejected):
            return outcome
        ended_at = tracing.clock()
        span_id = delivery_span_id(plan.delivery_key)
        tracing.record(
            Span(
                name="delivery",
                trace=trace,
                span_id=span_id,
                parent_span_id=trace.parent_span_id,
                started_at=attempt.received_at,
                ended_at=ended_at,
                attributes={
                    "hookmill.outcome": _outcome_name(outcome),
                    "hookmill.webhook_uid": webhook.uid,
                    "hookmill.delivery_id": delivery_id(plan.delivery_key),
                    "hookmill.body_bytes": plan.size,
                },
                is_request=True,
            )
        )
        tracing.record(
            Span(
                name="commit",
                trace=trace,
                span_id=commit_span_id(plan.delivery_key),
                parent_span_id=span_id,
                started_at=commit_began_at,
                ended_at=ended_at,
            )
        )
        return outcome

    async def _rate_limited_from_memory(
        self, limit_key: tuple[int, int], webhook: IngressWebhook, attempt: Attempt
    ) -> RateLimited | None:
        """A 429 without a write, if the rate limit is still exceeded and the stored webhook has not changed."""
        opens_at = self._limited_until[limit_key]
        wait_us = opens_at - attempt.received_at
        # A wait of more than one window means that the clock was set back since then.
        is_exceeded = 0 < wait_us <= WINDOW_SECONDS * 1_000_000
        if not is_exceeded:
            del self._limited_until[limit_key]
            return None
        current = await self._snapshot.revalidate(attempt.uid)
        if current is None or current.revision != webhook.revision:
            return None
        self._count_dropped(webhook.no, attempt, _DROPPED_KINDS[RateLimit(limit_key[1])])
        return rate_limited(attempt.received_at, opens_at)

    def _not_found(self, webhook: IngressWebhook | None, attempt: Attempt) -> NoSuchWebhook:
        """A 404. If the webhook exists, but is disabled or deleted, the attempt is counted as dropped."""
        if webhook is not None and not webhook.accepts_deliveries:
            self._count_dropped(webhook.no, attempt, NOT_FOUND)
        return NoSuchWebhook()

    def _count_dropped(self, webhook_no: int, attempt: Attempt, kind: str) -> None:
        minute = attempt.received_at - attempt.received_at % 60_000_000
        self._dropped_counts[webhook_no, minute, kind] += 1
        self._metrics.number(DROPPED_ATTEMPTS, kind).value += 1

    def write_dropped(self) -> None:
        """Send the writer the counts of the attempts that were dropped since the last call. They have no log rows."""
        if self._dropped_counts:
            self._group_commit.send_dropped_counts([(*key, count) for key, count in self._dropped_counts.items()])
            self._dropped_counts.clear()


_DROPPED_KINDS: Final = {
    RateLimit.DELIVERIES: RATE_LIMITED,
    RateLimit.FAILED_AUTHENTICATIONS: FAILED_AUTHENTICATIONS,
}


def _outcome_for_sender(outcome: AdmissionOutcome, plan: Plan) -> Outcome:
    """The outcome for the sender. A challenge that was recorded gets its reply, even if it is a duplicate."""
    assert not isinstance(outcome, Stale)
    challenge_reply = plan.proof.challenge_reply if isinstance(plan, Acceptance) else None
    if challenge_reply is None or not isinstance(outcome, Accepted | Duplicate):
        return outcome
    return challenge_reply


def _serves(webhook: IngressWebhook, attempt: Attempt) -> bool:
    """Whether the webhook is enabled. If the URL has a token segment, the mode must also be `url_token`."""
    if not webhook.accepts_deliveries:
        return False
    return attempt.url_token is None or webhook.auth_mode is AuthMode.URL_TOKEN


def _traceparent(attempt: Attempt) -> str | None:
    """The sender's trace; None if it has sent none, or an invalid one, or several."""
    if TRACEPARENT_HEADER in attempt.conflicting_headers:
        return None
    return valid_traceparent(attempt.headers.get(TRACEPARENT_HEADER))


def _outcome_name(outcome: Accepted | Duplicate | Rejected) -> str:
    match outcome:
        case Accepted():
            return "accepted"
        case Duplicate():
            return "duplicate"
        case Rejected(label):
            return label.name.lower()


def _declared_size(attempt: Attempt) -> int:
    """The `Content-Length` of a body that was not read, for display in the log only; 0 if it is absent or invalid."""
    declared = attempt.headers.get(b"content-length", b"")
    return int(declared) if declared.isdigit() and len(declared) < 10 else 0


class _RowKeyGenerator:
    """Makes random time-ordered keys of deliveries and runs.

    It buffers random bytes, because a system call per delivery is measurable.
    """

    __slots__ = ("_buffer", "_offset")

    def __init__(self) -> None:
        self._buffer = b""
        self._offset = 0

    def next_key(self, now_us: int) -> bytes:
        if self._offset >= len(self._buffer):
            self._buffer, self._offset = os.urandom(8 * 512), 0
        self._offset += 8
        return time_ordered_key(now_us, self._buffer[self._offset - 8 : self._offset])
