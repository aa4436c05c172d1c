"""Checks that need a computation: payloads, digests, filters of payloads and of identities, triggers, sealed values."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

from hookmill.domain.automation import DeliveryFilter, filters_of, schedules_of
from hookmill.domain.delivery import IdentityKind, Label, body_identity_digest, possible_identity_digests
from hookmill.domain.ids import delivery_id, run_id, time_of
from hookmill.domain.limits import IDENTITY_SHOWN_CHARACTERS
from hookmill.domain.payload import Parsed, parse
from hookmill.domain.run_options import options_from_stored
from hookmill.store import bloom
from hookmill.store.database import Row
from hookmill.store.keys.rotation import SEALED_TABLES
from hookmill.store.keys.sealing import WrongKey
from hookmill.store.verification.snapshot import CLOCK_TOLERANCE_US, RESTORE, DatabaseProblem, DatabaseSnapshot

ROWS_PER_PAGE: Final = 200
"""Each row can have a body of 256 KiB."""
IDENTITIES_PER_PAGE: Final = 5_000
KEY_TIME_TOLERANCE_US: Final = 1_000_000
SAVE_AGAIN: Final = "Save the automation again, such as with `hookmill automation change NAME --prompt …`."
REPLACE_SECRET: Final = (
    "Give what uses it a new secret, such as with `hookmill webhook rotate NAME`. Remove an alarm destination, and add "
    "it again. docs/secrets.md has the details."
)
_DELIVERIES: Final = """
    SELECT d.id AS key, d.webhook_no, d.received_at, d.label, d.size, d.identity_kind, d.identity, d.identity_digest,
           d.event, p.body
    FROM deliveries d LEFT JOIN payloads p ON p.delivery_id = d.id
    WHERE d.id > :last
    ORDER BY d.id
    LIMIT :limit
"""

_Selection = tuple[str, int, Sequence[DeliveryFilter]]
"""An automation that selects a webhook, since when in µs since 1970 it has not changed, and its triggers."""


def check_deliveries(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    selections = _selections(snapshot)
    for rows in snapshot.pages("checking deliveries", "deliveries", _DELIVERIES, rows_per_page=ROWS_PER_PAGE):
        runs: dict[bytes, list[Row]] = {}
        for run in snapshot.tx.all(
            """
            SELECT id, delivery_id, automation_id, automation_version, replay
            FROM runs
            WHERE delivery_id >= :first AND delivery_id <= :last AND webhook_no <> 0
            """,
            first=rows[0]["key"],
            last=rows[-1]["key"],
        ):
            runs.setdefault(run["delivery_id"], []).append(run)
        for row in rows:
            name, key = f"delivery {delivery_id(row['key'])}", row["key"]
            if abs(time_of(key) - row["received_at"]) > KEY_TIME_TOLERANCE_US:
                text = "Its time is not the time of its id, so pages may omit it."
                yield DatabaseProblem("delivery_time", name, text)
            if (digest := _expected_digest(row)) is not None and digest != row["identity_digest"]:
                text = "Its event id or its payload was altered: the digest of its identity is another one."
                yield DatabaseProblem("identity_digest", name, text, RESTORE)
            if row["label"] != Label.ACCEPTED:
                continue
            payload = parse(row["body"]) if row["body"] is not None else None
            if row["body"] is None:
                text = "Its payload does not exist, so its runs fail, and it can't be replayed."
                yield DatabaseProblem("payload_missing", name, text, RESTORE)
            elif len(row["body"]) != row["size"] or not isinstance(payload, Parsed):
                text = f"Its payload of {row['size']:,} bytes was altered: it has another size, or is not JSON."
                yield DatabaseProblem("payload_altered", name, text, RESTORE)
            elif row["webhook_no"] in snapshot.webhooks:
                yield from _check_runs(snapshot, row, payload, runs.get(key, ()), selections.get(row["webhook_no"], ()))


def _expected_digest(row: Row) -> bytes | None:
    """The digest of what the log shows of the identity; None if the log does not show all of it."""
    kind: int | None = row["identity_kind"]
    text: str | None = row["identity"]
    if row["label"] not in (Label.ACCEPTED, Label.DUPLICATE) or row["identity_digest"] is None:
        return None
    if kind == IdentityKind.BODY_SHA256 and row["body"] is not None and len(row["body"]) == row["size"]:
        return body_identity_digest(sha256(row["body"]).digest())
    if (
        kind in (IdentityKind.DELIVERY_ID_HEADER, IdentityKind.PROVIDER, IdentityKind.SENDER)
        and text is not None
        and len(text) < IDENTITY_SHOWN_CHARACTERS
        and "�" not in text
    ):
        return possible_identity_digests(text)[kind - 1]
    return None


def _check_runs(
    snapshot: DatabaseSnapshot, row: Row, payload: Parsed, runs: Sequence[Row], selections: Sequence[_Selection]
) -> Iterator[DatabaseProblem]:
    """Whether an Accepted delivery has started the runs that it must, and no others."""
    name = f"delivery {delivery_id(row['key'])}"
    uid = snapshot.webhooks[row["webhook_no"]]["uid"]
    started = {run["automation_id"] for run in runs if run["replay"] == 0}
    for run in runs:
        triggers = snapshot.triggers_of(run["automation_id"], run["automation_version"])
        if run["replay"] or triggers is None:
            continue
        selecting = [each for each in filters_of(triggers) if uid in each.webhook_ids]
        if _matches(selecting, row["event"], payload) is False:
            text = f"No trigger of its automation's version {run['automation_version']} matches its {name}."
            yield DatabaseProblem("run_unmatched", f"run {run_id(run['id'])}", text)
    for automation, unchanged_since, own_filters in selections:
        is_unchanged = unchanged_since + CLOCK_TOLERANCE_US < row["received_at"]
        if automation not in started and is_unchanged and _matches(own_filters, row["event"], payload):
            yield DatabaseProblem(
                "run_missing",
                name,
                f"It matches automation {automation}, but has started no run of it.",
                "To run the automation, replay the delivery: hookmill delivery replay DELIVERY.",
            )


def _matches(filters: Sequence[DeliveryFilter], event: str | None, payload: Parsed) -> bool | None:
    """Whether a trigger matches. None if the evaluation fails, which admission records as an interrupted run."""
    try:
        return any(each.matches(event, payload) for each in filters)
    except Exception:
        return None


def _selections(snapshot: DatabaseSnapshot) -> Mapping[int, Sequence[_Selection]]:
    """The enabled automations that select each webhook now, by its number. A webhook that answers handshakes has none,
    because handshakes start no runs."""
    numbers = {
        (row["uid"], row["factory_id"]): row["no"]
        for row in snapshot.webhooks.values()
        if not row["answers_handshakes"]
    }
    selections: dict[int, list[_Selection]] = {}
    for automation in snapshot.automations.values():
        triggers = snapshot.triggers_of(automation["id"], automation["version"])
        if automation["deleted_at"] is not None or not automation["enabled"] or triggers is None:
            continue
        for uid in {uid for each in filters_of(triggers) for uid in each.webhook_ids}:
            if (number := numbers.get((uid, automation["factory_id"]))) is not None:
                selecting = [each for each in filters_of(triggers) if uid in each.webhook_ids]
                selections.setdefault(number, []).append((automation["id"], automation["updated_at"], selecting))
    return selections


def check_identity_filters(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Whether the filter of each segment contains all of its identities."""
    segments = snapshot.tx.all(
        "SELECT s.no, f.bits FROM identity_segments s JOIN identity_filters f ON f.no = s.filter_no ORDER BY s.no"
    )
    snapshot.report("checking filters of identities", 0, len(segments))
    for segment in segments:
        webhook_no, digest = -1, b""
        while rows := snapshot.tx.all(
            """
            SELECT webhook_no, digest FROM identities
            WHERE segment = :segment AND (webhook_no, digest) > (:webhook, :digest)
            ORDER BY webhook_no, digest
            LIMIT :limit
            """,
            segment=segment["no"],
            webhook=webhook_no,
            digest=digest,
            limit=IDENTITIES_PER_PAGE,
        ):
            snapshot.check()
            for row in rows:
                webhook_no, digest = row["webhook_no"], row["digest"]
                if not bloom.may_contain(segment["bits"], int.from_bytes(digest, "little")):
                    text = "The filter of its segment lacks it, so a retry of its event would be accepted again."
                    name = f"identity {digest.hex()}"
                    yield DatabaseProblem("identity_filter", name, text, RESTORE)
            snapshot.rows += len(rows)
        snapshot.report("checking filters of identities", 1, len(segments))


def check_automations(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Whether what starts and limits the runs of an automation is that of its latest version."""
    selected: dict[str, set[str]] = {}
    for row in snapshot.tx.all("SELECT automation_id, webhook_uid FROM automation_webhooks"):
        selected.setdefault(row["automation_id"], set()).add(row["webhook_uid"])
    schedules: dict[str, set[str]] = {}
    for row in snapshot.tx.all("SELECT automation_id, name FROM schedules"):
        schedules.setdefault(row["automation_id"], set()).add(row["name"])
    for automation in snapshot.automations.values():
        snapshot.check()
        snapshot.rows += 1
        key = automation["id"]
        triggers = snapshot.triggers_of(key, automation["version"])
        version = snapshot.tx.one(
            "SELECT policy, options FROM automation_versions WHERE automation_id = :key AND version = :version",
            key=key,
            version=automation["version"],
        )
        options = options_from_stored(version["policy"], version["options"]) if version is not None else None
        if options is None or triggers is None or options.unreadable_parts:
            yield DatabaseProblem(
                "automation_unreadable",
                f"automation {key}",
                "Its triggers, policy or options can't be read, so no run of it starts.",
                "Replace all of the part that can't be read with one request of the API.",
            )
            continue
        is_live = automation["deleted_at"] is None
        uids = {uid for each in filters_of(triggers) for uid in each.webhook_ids} if is_live else set()
        names = {schedule.name for schedule in schedules_of(triggers)} if is_live else set()
        limits = automation["max_running"], automation["pause_after_failures"]
        for kind, agrees, text in (
            ("automation_webhooks", selected.get(key, set()) == uids, "The webhooks that start it are not those of its "
             "triggers, so runs are missing or unwanted."),
            ("automation_schedule", schedules.get(key, set()) >= names, "A schedule of it is not stored, so it starts "
             "no runs."),
            ("automation_policy", (options.max_running, options.pause_after_failures) == limits, "The limits that "
             "workers apply are not those of its policy."),
        ):  # fmt: skip
            if not agrees:
                yield DatabaseProblem(kind, f"automation {key}", text, SAVE_AGAIN)


def check_sealed_values(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Whether the master keys decrypt every secret."""
    for table in SEALED_TABLES:
        for row in snapshot.tx.all(f"SELECT id, key_id, sealed FROM {table} ORDER BY id"):
            snapshot.rows += 1
            try:
                snapshot.keys.named(row["key_id"]).open(row["sealed"], row["id"])
            except WrongKey:
                text = "No available master key decrypts its value, so it can't be used."
                name = f"{table} {row['id']}"
                yield DatabaseProblem("secret_sealed", name, text, REPLACE_SECRET)
