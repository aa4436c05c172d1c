"""The webhooks in memory, as the ingress evaluates deliveries against them. A cache that can't be stale where it
matters.

An acceptance is compared with the stored revision by the admission transaction. Before a refusal the webhook is
revalidated here: one reading thread asks the database for all that wait, and refreshes the webhooks that have changed.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from hookmill.domain.automation import REASONS_MAX, Subscription, Trigger
from hookmill.domain.errors import Invalid, StoreUnavailable
from hookmill.domain.event import EventSource
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.webhook import AuthMode, LiveWebhook, WebhookState
from hookmill.store.automations import parsed_triggers
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Database, Row, Transaction
from hookmill.store.keys.sealing import MasterKeys, WrongKey
from hookmill.store.webhooks import options_from

if TYPE_CHECKING:
    from hookmill.domain.signatures.rule import SignatureRule

QUESTIONS_MAX: Final = 256
READ_AHEAD: Final = 64
KEPT_MAX: Final = 200_000
"""Webhooks in memory. Past this the oldest are read again when a delivery comes for them."""

_REVISIONS: Final = RowStatement("SELECT w.uid, w.revision FROM webhooks w WHERE w.uid IN ({rows})", ("text",))

PATIENCE_SECONDS: Final = 5.0
"""How long a question waits for the database before `StoreUnavailable` is the answer."""
LOOK_SECONDS: Final = 0.5
QUESTIONS_WAITING_MAX: Final = 50_000
"""Beyond it the answer is `StoreUnavailable` at once: a database that hangs must not fill the memory."""

Answer = LiveWebhook | None
Failed = Callable[[str, BaseException], None]
"""Reports a fault to the operator: where, and what."""


class Snapshot:
    """The webhooks of one event loop's ingress. `get` costs a dictionary look-up; `revalidated` a shared query."""

    def __init__(
        self,
        database: Database,
        keys: MasterKeys,
        *,
        failed: Failed = lambda _where, _error: None,
    ) -> None:
        self._database = database
        self._keys = keys
        self._failed = failed
        self._webhooks: dict[str, LiveWebhook] = {}
        self._loop = asyncio.get_running_loop()
        self._questions: deque[tuple[str, asyncio.Future[Answer]]] = deque()
        self._open: deque[tuple[float, asyncio.Future[Answer]]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._wakeup = threading.Semaphore(0)
        self._closing = False
        self._thread = threading.Thread(target=self._answer, name="snapshot", daemon=True)
        self._thread.start()

    def get(self, uid: str) -> Answer:
        """The webhook as last read, or None when it never was."""
        return self._webhooks.get(uid)

    def revalidated(self, uid: str) -> "asyncio.Future[Answer]":
        """The webhook as stored now, or None when there is none. Raises `StoreUnavailable`."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        if len(self._questions) > QUESTIONS_WAITING_MAX:
            _fail([answer])
            return answer
        self._questions.append((uid, answer))
        self._open.append((self._loop.time() + PATIENCE_SECONDS, answer))
        if self._watch is None:
            self._watch = self._loop.call_later(LOOK_SECONDS, self._answer_the_overdue)
        self._wakeup.release()
        return answer

    def _answer_the_overdue(self) -> None:
        """A database that hangs holds the thread that asks it; those who wait are answered from here."""
        now = self._loop.time()
        settled = []
        while self._open and (self._open[0][1].done() or self._open[0][0] <= now):
            settled.append(self._open.popleft()[1])
        _fail(settled)
        self._watch = self._loop.call_later(LOOK_SECONDS, self._answer_the_overdue) if self._open else None

    def close(self) -> None:
        self._closing = True
        if self._watch is not None:
            self._watch.cancel()
        self._wakeup.release()
        self._thread.join(5.0)

    def _answer(self) -> None:
        ahead: Iterator[int] | None = self._read_ahead()
        while not self._closing:
            # While nobody asks, what deliveries will ask for is read ahead.
            if not self._wakeup.acquire(timeout=0 if ahead is not None else 1.0) and ahead is not None:
                if next(ahead, None) is None:
                    ahead = None
                continue
            asked: list[tuple[str, asyncio.Future[Answer]]] = []
            while self._questions and len(asked) < QUESTIONS_MAX:
                question = self._questions.popleft()
                if not question[1].done():
                    asked.append(question)
            if not asked:
                continue
            self._reply(asked)

    def _reply(self, asked: list[tuple[str, "asyncio.Future[Answer]"]]) -> None:
        try:
            self._refresh({uid for uid, _ in asked})
        except Exception as error:
            if len(asked) > 1 and not isinstance(error, StoreUnavailable):
                # A webhook whose row can't be read must not fail those who asked for others.
                for question in asked:
                    self._reply([question])
                return
            self._failed("snapshot", error)
            self._loop.call_soon_threadsafe(_fail, [answer for _, answer in asked])
            return
        answers = [(answer, self._webhooks.get(uid)) for uid, answer in asked]
        self._loop.call_soon_threadsafe(_tell, answers)

    def _read_ahead(self) -> Iterator[int]:
        """Read every enabled webhook once, a few at a time. Yields how many: nobody waits for this, so any trouble
        ends it."""
        try:
            with self._database.read() as tx:
                rows = tx.all("SELECT uid FROM webhooks WHERE state = 'enabled' ORDER BY no LIMIT :most", most=KEPT_MAX)
            uids = [row["uid"] for row in rows]
            for start in range(0, len(uids), READ_AHEAD):
                some = set(uids[start : start + READ_AHEAD])
                self._refresh_ahead(some)
                yield len(some)
        except Exception as error:
            self._failed("snapshot", error)

    def _refresh_ahead(self, uids: set[str]) -> None:
        try:
            self._refresh(uids)
        except WrongKey as error:
            if len(uids) == 1:
                self._failed("snapshot", error)
                return
            # A webhook whose secret can't be opened must not keep the others waiting.
            for uid in sorted(uids):
                self._refresh_ahead({uid})

    def _refresh(self, uids: set[str]) -> None:
        with self._database.read() as tx:
            stored = dict(_REVISIONS.select(tx, [(uid,) for uid in sorted(uids)]))
            for uid in uids - stored.keys():
                self._webhooks.pop(uid, None)
            outdated = [
                uid
                for uid, revision in stored.items()
                if (kept := self._webhooks.get(uid)) is None or kept.revision != revision
            ]
            for webhook in read_live(tx, outdated, self._keys, failed=self._failed):
                self._webhooks[webhook.uid] = webhook
        while len(self._webhooks) > KEPT_MAX:
            del self._webhooks[next(iter(self._webhooks))]


def _tell(answers: list[tuple["asyncio.Future[Answer]", Answer]]) -> None:
    for answer, webhook in answers:
        if not answer.done():
            answer.set_result(webhook)


def _fail(answers: list["asyncio.Future[Answer]"]) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(StoreUnavailable("The database can't be read now."))


_LIVE: Final = RowStatement(
    """
    SELECT w.uid, w.no, w.factory_id, w.revision, w.auth_mode, w.state, w.signature_scheme, w.signature_options,
           w.answers_handshakes, w.delivery_id_header, w.event_header, v.id AS version_id, v.key_id, v.sealed,
           p.id AS previous_version_id, p.key_id AS previous_key_id, p.sealed AS previous_sealed
    FROM webhooks w
    LEFT JOIN secret_versions v ON v.id = w.secret_version_id
    LEFT JOIN secret_versions p
        ON w.auth_mode = 'signature' AND p.secret_id = v.secret_id AND p.version = v.version - 1
    WHERE w.uid IN ({rows})
    """,
    ("text",),
)

# A uid is all it takes to select a webhook; another factory's automation must learn nothing by it.
_LISTENING: Final = RowStatement(
    """
    SELECT aw.webhook_uid, a.id, a.version, v.triggers
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


def read_live(
    tx: Transaction, uids: Iterable[str], keys: MasterKeys, *, failed: Failed = lambda _where, _error: None
) -> list[LiveWebhook]:
    """The webhooks with these uids, each with its secret and its subscriptions, as one consistent reading.

    Triggers that can't be read are reported, each automation's once.
    """
    asked = [(uid,) for uid in sorted(uids)]
    if not asked:
        return []
    listening: dict[str, list[Subscription]] = {}
    unreadable: dict[str, Invalid] = {}
    for uid, automation, version, stored in _LISTENING.select(tx, asked):
        triggers, others = parsed_triggers(stored)
        listening.setdefault(uid, []).append(_subscription(uid, AutomationId(automation), version, triggers))
        if others:
            reasons = " ".join(each.reason for each in others[:REASONS_MAX])
            unreadable[automation] = Invalid(f"It has triggers that can't be read, which start nothing. {reasons}")
    for automation, fault in unreadable.items():
        failed(f"automation {automation}", fault)
    return [_live(row._mapping, listening.get(row.uid, ()), keys) for row in _LIVE.select(tx, asked)]


def _live(row: Row, subscriptions: Sequence[Subscription], keys: MasterKeys) -> LiveWebhook:
    secret = _secret(row["sealed"], row["version_id"], row["key_id"], keys)
    mode = AuthMode(row["auth_mode"])
    header = row["delivery_id_header"]
    rule = _signature_rule(row, secret, keys) if mode is AuthMode.SIGNATURE else None
    return LiveWebhook(
        uid=WebhookUid(row["uid"]),
        no=row["no"],
        factory_id=FactoryId(row["factory_id"]),
        revision=row["revision"],
        auth_mode=mode,
        # Without a secret anybody could prove themselves with none.
        accepts_deliveries=row["state"] == WebhookState.ENABLED and secret is not None,
        secret_digest=sha256((secret or "").encode()).digest(),
        signature=rule,
        delivery_id_header=header.lower().encode() if header else None,
        event_source=_event_source(row, rule),
        subscriptions=tuple(subscriptions),
    )


def _secret(sealed: Any, version_id: str, key_id: str, keys: MasterKeys) -> str | None:
    return keys.named(key_id).open(bytes(sealed), version_id).reveal() if sealed is not None else None


def _signature_rule(row: Row, secret: str | None, keys: MasterKeys) -> "SignatureRule | None":
    # An installation without signed webhooks never loads the providers.
    from hookmill.domain.signatures.rule import rule_for, scheme_named

    try:
        scheme = scheme_named(row["signature_scheme"], options_from(row["signature_options"]))
    except Invalid:
        # A newer version knew it. Nothing verifies, and the log says why.
        return None
    previous = None
    # It only serves to say why a signature was refused.
    with suppress(WrongKey):
        previous = _secret(row["previous_sealed"], row["previous_version_id"], row["previous_key_id"], keys)
    return rule_for(scheme, secret, previous, answers_handshakes=bool(row["answers_handshakes"]))


def _event_source(row: Row, rule: "SignatureRule | None") -> EventSource | None:
    scheme = rule.scheme if rule is not None else None
    if scheme is not None and (event := scheme.event_for(row["signature_scheme"])) is not None:
        return EventSource.at(event.source, is_signed=scheme.covers(event.source))
    if not (header := row["event_header"]):
        return None
    where = f"header:{header.lower()}"
    return EventSource.at(where, is_signed=scheme is not None and scheme.covers(where))


def _subscription(uid: str, automation: AutomationId, version: int, triggers: Sequence[Trigger]) -> Subscription:
    return Subscription(
        automation_id=automation,
        version=version,
        filters=tuple(trigger for trigger in triggers if uid in trigger.webhook_ids),
    )
