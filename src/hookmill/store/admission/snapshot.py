"""A cache of the webhooks, against which the ingress evaluates deliveries.

The admission transaction compares the revision in each plan (the result of evaluating an attempt) with the stored one,
so a stale webhook is never used. Before a 404, before a 429 for a limit that the ingress remembers as exceeded, and
after a stale plan, the ingress revalidates the webhook here: a thread reads the stored revisions of all waiting
requests in one query.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from hookmill.domain.automation import DeliveryFilter, Subscription, filters_of, triggers_from_stored
from hookmill.domain.errors import Invalid, ReportFailure, StoreUnavailable
from hookmill.domain.event import EventSource
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.ingress_webhook import IngressWebhook
from hookmill.domain.networks import AllowedNetworks
from hookmill.domain.run_policy import RunPolicy, policy_from_stored, unreadable_text
from hookmill.domain.webhook import AuthMode, WebhookState
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Database, Row, Transaction
from hookmill.store.keys.sealing import KeyRing, WrongKey
from hookmill.store.webhooks import networks_from, options_from

if TYPE_CHECKING:
    from hookmill.domain.signatures.rule import SignatureRule

REVALIDATIONS_PER_QUERY: Final = 256
PRELOAD_PER_QUERY: Final = 64
WEBHOOKS_MAX: Final = 200_000
"""The maximum number of webhooks in memory. If there are more, those that were read first are removed, even if they are
in use. They are read again for their next delivery."""

_REVISIONS: Final = RowStatement("SELECT w.uid, w.revision FROM webhooks w WHERE w.uid IN ({rows})", ("text",))

REVALIDATION_TIMEOUT_SECONDS: Final = 5.0
"""After this time, the future of a revalidation fails with `StoreUnavailable`."""
CHECK_SECONDS: Final = 0.5
"""Interval between checks for overdue revalidations."""
REVALIDATIONS_WAITING_MAX: Final = 50_000
"""If more wait, the future of a revalidation fails immediately: a hanging database must not fill the memory."""

_Revalidation = tuple[str, "asyncio.Future[IngressWebhook | None]"]
"""A webhook's uid, and the future for the revalidated webhook."""


class Snapshot:
    """The webhooks of one event loop's ingress. `get` reads a dictionary; `revalidate` needs a query."""

    def __init__(
        self,
        database: Database,
        keys: KeyRing,
        *,
        report_failure: ReportFailure = lambda _component, _error: None,
    ) -> None:
        self._database = database
        self._keys = keys
        self._report_failure = report_failure
        self._webhooks: dict[str, IngressWebhook] = {}
        self._read_at = time.monotonic()
        """When webhooks were last compared with the database, in monotonic seconds."""
        self._loop = asyncio.get_running_loop()
        self._revalidations: deque[_Revalidation] = deque()
        """Read by the thread, oldest first."""
        self._deadlines: deque[tuple[float, asyncio.Future[IngressWebhook | None]]] = deque()
        """Read by the event loop, oldest first: when each revalidation is overdue, in the loop's time."""
        self._timeout_check: asyncio.TimerHandle | None = None
        self._wakeup = threading.Semaphore(0)
        """Released for each added revalidation, and by `close`."""
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)
        self._thread.start()

    def get(self, uid: str) -> IngressWebhook | None:
        """The webhook, if it is in memory; otherwise None."""
        return self._webhooks.get(uid)

    @property
    def webhook_count(self) -> int:
        """The number of webhooks in memory."""
        return len(self._webhooks)

    @property
    def age_seconds(self) -> float:
        """The time since webhooks were last compared with the database."""
        return time.monotonic() - self._read_at

    def revalidate(self, uid: str) -> "asyncio.Future[IngressWebhook | None]":
        """A future for the webhook as currently stored, or None if there is none. It can fail: `StoreUnavailable`."""
        result: asyncio.Future[IngressWebhook | None] = self._loop.create_future()
        if len(self._revalidations) > REVALIDATIONS_WAITING_MAX:
            _fail([result])
            return result
        self._revalidations.append((uid, result))
        self._deadlines.append((self._loop.time() + REVALIDATION_TIMEOUT_SECONDS, result))
        if self._timeout_check is None:
            self._timeout_check = self._loop.call_later(CHECK_SECONDS, self._fail_overdue)
        self._wakeup.release()
        return result

    def _fail_overdue(self) -> None:
        """Fail overdue revalidations. The thread can't do it while it waits for a hanging database."""
        now = self._loop.time()
        done_or_overdue = []
        while self._deadlines and (self._deadlines[0][1].done() or self._deadlines[0][0] <= now):
            done_or_overdue.append(self._deadlines.popleft()[1])
        _fail(done_or_overdue)
        self._timeout_check = self._loop.call_later(CHECK_SECONDS, self._fail_overdue) if self._deadlines else None

    def close(self) -> None:
        self._is_closing = True
        if self._timeout_check is not None:
            self._timeout_check.cancel()
        self._wakeup.release()
        self._thread.join(5.0)

    def _run(self) -> None:
        preload: Iterator[None] | None = self._preload()
        while not self._is_closing:
            if preload is None:
                self._wakeup.acquire(timeout=1.0)
            elif not self._wakeup.acquire(blocking=False):
                # No revalidation waits.
                try:
                    next(preload)
                except StopIteration:
                    preload = None
                continue
            batch: list[_Revalidation] = []
            while self._revalidations and len(batch) < REVALIDATIONS_PER_QUERY:
                revalidation = self._revalidations.popleft()
                if not revalidation[1].done():
                    batch.append(revalidation)
            if not batch:
                # The wait timed out, or an earlier batch contained the revalidation that released the semaphore.
                continue
            self._revalidate_batch(batch)

    def _revalidate_batch(self, batch: list[_Revalidation]) -> None:
        try:
            self._refresh({uid for uid, _ in batch})
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):
                # A webhook whose row can't be read must not fail the revalidation of others.
                for revalidation in batch:
                    self._revalidate_batch([revalidation])
                return
            self._report_failure("snapshot", error)
            self._loop.call_soon_threadsafe(_fail, [result for _, result in batch])
            return
        results = [(result, self._webhooks.get(uid)) for uid, result in batch]
        self._loop.call_soon_threadsafe(_set_results, results)

    def _preload(self) -> Iterator[None]:
        """Read every enabled webhook once, `PRELOAD_PER_QUERY` of them in each step of the iterator.

        The preload is only an optimization. A webhook whose secret can't be opened is skipped; any other error ends the
        preload.
        """
        try:
            with self._database.read() as tx:
                uids = tx.scalars(
                    "SELECT uid FROM webhooks WHERE state = 'enabled' ORDER BY no LIMIT :most", most=WEBHOOKS_MAX
                )
            for start in range(0, len(uids), PRELOAD_PER_QUERY):
                self._preload_batch(set(uids[start : start + PRELOAD_PER_QUERY]))
                yield
        except Exception as error:
            self._report_failure("snapshot", error)

    def _preload_batch(self, uids: set[str]) -> None:
        try:
            self._refresh(uids)
        except WrongKey as error:
            if len(uids) == 1:
                self._report_failure("snapshot", error)
                return
            # A webhook whose secret can't be opened must not prevent the preload of the others.
            for uid in sorted(uids):
                self._preload_batch({uid})

    def _refresh(self, uids: set[str]) -> None:
        with self._database.read() as tx:
            stored_revisions = dict(_REVISIONS.select(tx, [(uid,) for uid in sorted(uids)]))
            for uid in uids - stored_revisions.keys():
                self._webhooks.pop(uid, None)
            outdated = [
                uid
                for uid, revision in stored_revisions.items()
                if (cached := self._webhooks.get(uid)) is None or cached.revision != revision
            ]
            for webhook in read_for_ingress(tx, outdated, self._keys, report_failure=self._report_failure):
                self._webhooks[webhook.uid] = webhook
        self._read_at = time.monotonic()
        while len(self._webhooks) > WEBHOOKS_MAX:
            del self._webhooks[next(iter(self._webhooks))]


def _set_results(results: list[tuple["asyncio.Future[IngressWebhook | None]", IngressWebhook | None]]) -> None:
    for result, webhook in results:
        if not result.done():
            result.set_result(webhook)


def _fail(results: list["asyncio.Future[IngressWebhook | None]"]) -> None:
    for result in results:
        if not result.done():
            result.set_exception(StoreUnavailable("The database can't be read now."))


_WEBHOOKS: Final = RowStatement(
    """
    SELECT w.uid, w.no, w.factory_id, w.revision, w.auth_mode, w.state, w.signature_scheme, w.signature_options,
           w.answers_handshakes, w.delivery_id_header, w.event_header, w.allowed_networks, v.id AS version_id,
           v.key_id, v.sealed, p.id AS previous_version_id, p.key_id AS previous_key_id, p.sealed AS previous_sealed
    FROM webhooks w
    LEFT JOIN secret_versions v ON v.id = w.secret_version_id
    LEFT JOIN secret_versions p
        ON w.auth_mode = 'signature' AND p.secret_id = v.secret_id AND p.version = v.version - 1
    WHERE w.uid IN ({rows})
    """,
    ("text",),
)

# The join compares the factories, because an automation can name the uid of another factory's webhook.
_SUBSCRIPTIONS: Final = RowStatement(
    """
    SELECT aw.webhook_uid, a.id, a.version, v.triggers, v.policy
    FROM automation_webhooks aw
    JOIN webhooks w ON w.uid = aw.webhook_uid
    JOIN automations a
        ON a.id = aw.automation_id AND a.factory_id = w.factory_id AND a.enabled AND a.deleted_at IS NULL
    JOIN automation_versions v ON v.automation_id = a.id AND v.version = a.version
    WHERE aw.webhook_uid IN ({rows})
    ORDER BY a.id
    """,
    ("text",),
)


def read_for_ingress(
    tx: Transaction,
    uids: Iterable[str],
    keys: KeyRing,
    *,
    report_failure: ReportFailure = lambda _component, _error: None,
) -> list[IngressWebhook]:
    """The webhooks with these uids, each with its secret and subscriptions.

    `report_failure` is called once for each automation that has unreadable triggers or an unreadable policy.
    """
    rows = [(uid,) for uid in sorted(uids)]
    if not rows:
        return []
    subscriptions_by_uid: dict[str, list[Subscription]] = {}
    faults_by_automation: dict[str, Invalid] = {}
    for uid, automation, version, triggers_json, policy_json in _SUBSCRIPTIONS.select(tx, rows):
        triggers, policy = triggers_from_stored(triggers_json), policy_from_stored(policy_json)
        filters = filters_of(triggers) if not isinstance(triggers, str) else ()
        subscriptions_by_uid.setdefault(uid, []).append(
            _subscription(uid, AutomationId(automation), version, filters, policy)
        )
        for part, reason in policy.unreadable_parts.items():
            faults_by_automation[automation] = Invalid(
                f"Its runs are recorded as interrupted, because {unreadable_text(part, reason)}"
            )
        if isinstance(triggers, str):
            faults_by_automation[automation] = Invalid(
                f"It starts no runs, because its stored triggers can't be read: {triggers}"
            )
    for automation, fault in faults_by_automation.items():
        report_failure(f"automation {automation}", fault)
    return [
        _ingress_webhook(row._mapping, subscriptions_by_uid.get(row.uid, ()), keys)
        for row in _WEBHOOKS.select(tx, rows)
    ]


def _ingress_webhook(row: Row, subscriptions: Sequence[Subscription], keys: KeyRing) -> IngressWebhook:
    secret = _opened_secret(row["sealed"], row["version_id"], row["key_id"], keys)
    mode = AuthMode(row["auth_mode"])
    delivery_id_header = row["delivery_id_header"]
    rule = _signature_rule(row, secret, keys) if mode is AuthMode.SIGNATURE else None
    networks = networks_from(row["allowed_networks"])
    return IngressWebhook(
        uid=WebhookUid(row["uid"]),
        no=row["no"],
        factory_id=FactoryId(row["factory_id"]),
        revision=row["revision"],
        auth_mode=mode,
        # Without a secret, an empty credential would authenticate.
        accepts_deliveries=row["state"] == WebhookState.ENABLED and secret is not None,
        secret_digest=sha256((secret or "").encode()).digest(),
        signature_rule=rule,
        delivery_id_header=delivery_id_header.lower().encode() if delivery_id_header else None,
        event_source=_event_source(row, rule),
        subscriptions=tuple(subscriptions),
        allowed_networks=AllowedNetworks.of(networks) if networks else None,
    )


def _opened_secret(sealed: Any, version_id: str, key_id: str, keys: KeyRing) -> str | None:
    return keys.named(key_id).open(bytes(sealed), version_id).reveal() if sealed is not None else None


def _signature_rule(row: Row, secret: str | None, keys: KeyRing) -> "SignatureRule | None":
    # Imported here, so that an installation without signed webhooks never loads the catalogue.
    from hookmill.domain.signatures.rule import rule_for, scheme_named

    try:
        scheme = scheme_named(row["signature_scheme"], options_from(row["signature_options"]))
    except Invalid:
        # The stored scheme can't be read. Without a rule, every delivery is refused, and its log row has the reason.
        return None
    previous_secret = None
    # The previous secret is used only to explain why a signature was refused.
    with suppress(WrongKey):
        previous_secret = _opened_secret(
            row["previous_sealed"], row["previous_version_id"], row["previous_key_id"], keys
        )
    return rule_for(scheme, secret, previous_secret, answers_handshakes=bool(row["answers_handshakes"]))


def _event_source(row: Row, rule: "SignatureRule | None") -> EventSource | None:
    scheme = rule.scheme if rule is not None else None
    # The row has the name that the user chose, which may be an alias of the scheme.
    if scheme is not None and (event := scheme.event_for(row["signature_scheme"])) is not None:
        return EventSource.parse(event.source, is_signed=scheme.covers(event.source))
    if not (header := row["event_header"]):
        return None
    source = f"header:{header.lower()}"
    return EventSource.parse(source, is_signed=scheme is not None and scheme.covers(source))


def _subscription(
    uid: str, automation: AutomationId, version: int, filters: Sequence[DeliveryFilter], policy: RunPolicy
) -> Subscription:
    return Subscription(
        automation_id=automation,
        version=version,
        filters=tuple(each for each in filters if uid in each.webhook_ids),
        policy=policy,
    )
