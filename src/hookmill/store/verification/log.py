"""Checks of the delivery log, with the payloads, and with the runs that deliveries have started."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from hookmill.domain.automation import Trigger
from hookmill.domain.delivery import IdentityKind, Label, RateLimit, body_identity_digest, possible_identity_digests
from hookmill.domain.ids import delivery_id, run_id, time_of
from hookmill.domain.limits import IDENTITY_SHOWN_CHARACTERS, LOG_DAYS_KEPT
from hookmill.domain.payload import NotJson, Parsed, parse
from hookmill.store.admission.window_counts import PERIOD_US
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Row
from hookmill.store.verification.identities import missing_identities
from hookmill.store.verification.snapshot import (
    CLOCK_TOLERANCE_US,
    RESTORE,
    DatabaseProblem,
    DatabaseSnapshot,
    key_bytes,
)

DAY_US: Final = 86_400_000_000
ROWS_PER_PAGE: Final = 200
"""Each row can have a body of 256 KiB."""
KEYS_PER_PAGE: Final = 2_000
_KEY_TIME_TOLERANCE_US: Final = 1_000_000
_REPLAY: Final = "To run the automation, replay the delivery: hookmill delivery replay DELIVERY."

_DELIVERIES: Final = """
    SELECT d.id AS key, d.webhook_no, d.received_at, d.label, d.rate_limit, d.size, d.identity_kind, d.identity,
           d.identity_digest, d.duplicate_of, d.event, p.body
    FROM deliveries d LEFT JOIN payloads p ON p.delivery_id = d.id
    WHERE d.id > :last
    ORDER BY d.id
    LIMIT :limit
"""
_ORIGINALS: Final = RowStatement("SELECT id, label, webhook_no FROM deliveries WHERE id IN ({rows})", ("bytea",))


@dataclass(frozen=True, slots=True)
class _Selection:
    """An automation that selects a webhook, and has not changed since `unchanged_since`, in µs since 1970."""

    automation: str
    unchanged_since: int
    triggers: Sequence[Trigger]


@dataclass(slots=True)
class _Page:
    """Rows of the log, and what they refer to."""

    rows: Sequence[Row]
    originals: Mapping[bytes, Row]
    runs: Mapping[bytes, Sequence[Row]]
    without_identity: Mapping[bytes, str]
    selections: Mapping[int, Sequence[_Selection]] = field(default_factory=dict)


def check_deliveries(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    selections = _selections(snapshot)
    pages = snapshot.pages("checking deliveries", "deliveries", _DELIVERIES, rows_per_page=ROWS_PER_PAGE)
    for rows in pages:
        duplicates = sorted({bytes(row["duplicate_of"]) for row in rows if row["duplicate_of"] is not None})
        runs: dict[bytes, list[Row]] = {}
        for run in snapshot.tx.all(
            """
            SELECT id, delivery_id, webhook_no, automation_id, automation_version, replay
            FROM runs
            WHERE delivery_id >= :first AND delivery_id <= :last AND webhook_no <> 0
            """,
            first=bytes(rows[0]["key"]),
            last=bytes(rows[-1]["key"]),
        ):
            runs.setdefault(bytes(run["delivery_id"]), []).append(run)
        page = _Page(
            rows,
            {bytes(row.id): row._mapping for row in _ORIGINALS.select(snapshot.tx, [(key,) for key in duplicates])}
            if duplicates
            else {},
            runs,
            missing_identities(snapshot, [row for row in rows if row["label"] == Label.ACCEPTED]),
            selections,
        )
        for row in rows:
            yield from _check_delivery(snapshot, page, row)


def _check_delivery(snapshot: DatabaseSnapshot, page: _Page, row: Row) -> Iterator[DatabaseProblem]:
    key = bytes(row["key"])
    name = f"delivery {delivery_id(key)}"
    if row["webhook_no"] not in snapshot.webhooks:
        yield DatabaseProblem(
            kind="delivery_webhook", row=name, text="Its webhook does not exist, so no page shows it."
        )
        return
    if row["label"] not in list(Label) or row["rate_limit"] not in list(RateLimit):
        yield DatabaseProblem(kind="delivery_label", row=name, text="Its label or its rate limit does not exist.")
        return
    if abs(time_of(key) - row["received_at"]) > _KEY_TIME_TOLERANCE_US:
        yield DatabaseProblem(
            kind="delivery_time", row=name, text="Its time is not the time of its id, so pages may omit it."
        )
    payload = None
    if row["label"] == Label.ACCEPTED:
        yield from _check_payload(name, row)
        parsed = parse(bytes(row["body"])) if row["body"] is not None else None
        payload = parsed if isinstance(parsed, Parsed) else None
        if reason := page.without_identity.get(key):
            yield DatabaseProblem(
                kind="identity_missing",
                row=name,
                text=f"{reason} So a retry of the same event would be accepted again.",
                advice=RESTORE,
            )
    elif row["body"] is not None:
        yield DatabaseProblem(
            kind="payload_unexpected", row=name, text="It has a payload, although it was not accepted."
        )
    yield from _check_identity(name, row)
    yield from _check_original(snapshot, page, name, row)
    yield from _check_runs(snapshot, page, name, row, payload)


def _check_payload(name: str, row: Row) -> Iterator[DatabaseProblem]:
    if row["body"] is None:
        yield DatabaseProblem(
            kind="payload_missing",
            row=name,
            text="Its payload does not exist, so its runs fail, and it can't be replayed.",
            advice=RESTORE,
        )
        return
    body = bytes(row["body"])
    if len(body) != row["size"]:
        text = f"Its payload has {len(body):,} bytes, and the log says {row['size']:,}."
        yield DatabaseProblem(kind="payload_size", row=name, text=text, advice=RESTORE)
    elif isinstance(parse(body), NotJson):
        text = "Its payload is not JSON, so it was altered."
        yield DatabaseProblem(kind="payload_altered", row=name, text=text, advice=RESTORE)


def _check_identity(name: str, row: Row) -> Iterator[DatabaseProblem]:
    """Whether the digest of the identity is that of what the log shows."""
    kind, text, digest = row["identity_kind"], row["identity"], key_bytes(row["identity_digest"])
    if row["label"] not in (Label.ACCEPTED, Label.DUPLICATE) or digest is None:
        return
    expected = None
    if kind == IdentityKind.BODY_SHA256 and row["body"] is not None and len(row["body"]) == row["size"]:
        expected = body_identity_digest(sha256(bytes(row["body"])).digest())
    elif kind in (IdentityKind.DELIVERY_ID_HEADER, IdentityKind.PROVIDER, IdentityKind.SENDER) and _is_whole(text):
        expected = possible_identity_digests(text)[kind - 1]
    if kind not in list(IdentityKind):
        yield DatabaseProblem(kind="identity_digest", row=name, text="The kind of its identity does not exist.")
    elif expected is not None and expected != digest:
        yield DatabaseProblem(
            kind="identity_digest",
            row=name,
            text="Its event id or its payload was altered: the digest of its identity is another one.",
            advice=RESTORE,
        )


def _is_whole(text: str | None) -> bool:
    """Whether the log shows the whole event id, in which no character was replaced."""
    return text is not None and len(text) < IDENTITY_SHOWN_CHARACTERS and "�" not in text


def _check_original(snapshot: DatabaseSnapshot, page: _Page, name: str, row: Row) -> Iterator[DatabaseProblem]:
    original_key = key_bytes(row["duplicate_of"])
    if (row["label"] == Label.DUPLICATE) != (original_key is not None):
        text = "It is a Duplicate of nothing." if original_key is None else "It names an original, but is no Duplicate."
        yield DatabaseProblem(kind="duplicate_original", row=name, text=text)
        return
    if original_key is None:
        return
    original = page.originals.get(original_key)
    if original is None:
        if time_of(original_key) > snapshot.now - LOG_DAYS_KEPT * DAY_US + CLOCK_TOLERANCE_US:
            yield DatabaseProblem(
                kind="duplicate_original",
                row=name,
                text=f"The log has lost its original {delivery_id(original_key)}: it is too young to have been pruned.",
                advice=RESTORE,
            )
    elif original["label"] != Label.ACCEPTED or original["webhook_no"] != row["webhook_no"]:
        yield DatabaseProblem(
            kind="duplicate_original",
            row=name,
            text=f"Its original {delivery_id(original_key)} is no Accepted delivery of the same webhook.",
        )


def _check_runs(
    snapshot: DatabaseSnapshot, page: _Page, name: str, row: Row, payload: Parsed | None
) -> Iterator[DatabaseProblem]:
    """Whether the delivery has started the runs that it must, and no others, as far as the stored data shows."""
    started: set[str] = set()
    uid = snapshot.uid(row["webhook_no"])
    for run in page.runs.get(bytes(row["key"]), ()):
        run_name = f"run {run_id(bytes(run['id']))}"
        if run["replay"] == 0:
            started.add(run["automation_id"])
        if row["label"] != Label.ACCEPTED or run["webhook_no"] != row["webhook_no"]:
            text = f"Its {name} was not accepted, or belongs to another webhook."
            yield DatabaseProblem(kind="run_delivery", row=run_name, text=text)
            continue
        triggers = snapshot.triggers_of(run["automation_id"], run["automation_version"])
        if run["replay"] or payload is None or triggers is None or triggers.unreadable is not None:
            continue
        selecting = [trigger for trigger in triggers.delivery_triggers if uid in trigger.webhook_ids]
        if _matches(selecting, row["event"], payload) is False:
            yield DatabaseProblem(
                kind="run_unmatched",
                row=run_name,
                text=f"No trigger of its automation's version {run['automation_version']} matches its {name}.",
            )
    if row["label"] != Label.ACCEPTED or payload is None:
        return
    for selection in page.selections.get(row["webhook_no"], ()):
        if (
            selection.automation not in started
            and selection.unchanged_since + CLOCK_TOLERANCE_US < row["received_at"]
            and _matches(selection.triggers, row["event"], payload)
        ):
            yield DatabaseProblem(
                kind="run_missing",
                row=name,
                text=f"It matches automation {selection.automation}, but has started no run of it.",
                advice=_REPLAY,
            )


def _matches(triggers: Sequence[Trigger], event: str | None, payload: Parsed) -> bool | None:
    """Whether a trigger matches. None if the evaluation fails, which admission records as an interrupted run."""
    try:
        return any(trigger.matches(event, payload) for trigger in triggers)
    except Exception:
        return None


def _selections(snapshot: DatabaseSnapshot) -> Mapping[int, Sequence[_Selection]]:
    """The enabled automations that select each webhook now, by its number. A webhook that answers handshakes has none,
    because handshakes start no runs."""
    numbers = {row["uid"]: row["no"] for row in snapshot.webhooks.values() if not row["answers_handshakes"]}
    selections: dict[int, list[_Selection]] = {}
    for automation in snapshot.automations.values():
        if automation["deleted_at"] is not None or not automation["enabled"]:
            continue
        triggers = snapshot.triggers_of(automation["id"], automation["version"])
        if triggers is None or triggers.unreadable is not None:
            continue
        for uid in {uid for trigger in triggers.delivery_triggers for uid in trigger.webhook_ids}:
            if uid in numbers and snapshot.webhooks[numbers[uid]]["factory_id"] == automation["factory_id"]:
                selecting = [trigger for trigger in triggers.delivery_triggers if uid in trigger.webhook_ids]
                selections.setdefault(numbers[uid], []).append(
                    _Selection(automation["id"], automation["updated_at"], selecting)
                )
    return selections


def check_payloads(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Whether each payload belongs to a delivery or to a run without a delivery."""
    for page in snapshot.pages(
        "checking payloads",
        "payloads",
        """
        SELECT p.delivery_id AS key, d.id AS delivery, r.id AS run
        FROM payloads p
        LEFT JOIN deliveries d ON d.id = p.delivery_id
        LEFT JOIN runs r ON r.id = p.delivery_id
        WHERE p.delivery_id > :last
        ORDER BY p.delivery_id
        LIMIT :limit
        """,
        rows_per_page=KEYS_PER_PAGE,
    ):
        for row in page:
            if row["delivery"] is None and row["run"] is None:
                yield DatabaseProblem(
                    kind="payload_without_delivery",
                    row=f"payload {bytes(row['key']).hex()}",
                    text="The log has lost its delivery.",
                    advice=RESTORE,
                )


def check_window_counts(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Whether the log has all rows that admission has counted for high rate limits.

    Deleted webhooks are left out: `hookmill doctor` removes the rows of its temporary webhooks, and another process may
    then add a count.
    """
    oldest = (snapshot.now - (LOG_DAYS_KEPT - 1) * DAY_US) // PERIOD_US
    for row in snapshot.tx.all(
        """
        SELECT c.* FROM window_counts c LEFT JOIN webhooks w ON w.no = c.webhook_no
        WHERE c.period > :oldest AND w.deleted_at IS NULL
        """,
        oldest=oldest,
    ):
        snapshot.check()
        counted = snapshot.tx.one(
            """
            SELECT COUNT(*) AS number FROM deliveries
            WHERE webhook_no = :webhook AND rate_limit = :rate_limit AND received_at >= :since AND received_at < :until
            """,
            webhook=row["webhook_no"],
            rate_limit=row["rate_limit"],
            since=row["period"] * PERIOD_US,
            until=(row["period"] + 1) * PERIOD_US,
        )
        assert counted is not None
        snapshot.rows += 1
        if counted["number"] < row["count"]:
            uid = snapshot.uid(row["webhook_no"]) if row["webhook_no"] in snapshot.webhooks else row["webhook_no"]
            yield DatabaseProblem(
                kind="rows_lost",
                row=f"webhook {uid}",
                text=f"{row['count']:,} deliveries of one period were counted, and the log has {counted['number']:,}.",
                advice=RESTORE,
            )
