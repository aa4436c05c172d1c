"""Reads pages of a factory's runs."""

from dataclasses import dataclass
from itertools import product
from typing import Final

from hookmill.domain.ids import AutomationId, DeliveryKey, FactoryId, RunKey, WebhookUid
from hookmill.domain.run import Run, RunState
from hookmill.store import dialect
from hookmill.store.database import Transaction
from hookmill.store.runs.parts import CLAIMED, HELD, READY, WITHOUT_DELIVERY
from hookmill.store.runs.reading import RUN_QUERY, run_from_row


def page_of_runs(
    tx: Transaction,
    *,
    factory: FactoryId,
    webhook: WebhookUid | None = None,
    automation: AutomationId | None = None,
    delivery: DeliveryKey | None = None,
    state: RunState | None = None,
    before: RunKey | None = None,
    limit: int = 50,
) -> list[Run]:
    """A page of a factory's runs, newest first. `before` is the last run of the previous page.

    `webhook`, `automation`, `delivery` and `state` restrict it. The page is a UNION of index scans that read at most
    `limit` rows each, so its time does not depend on the number of runs.
    """
    scans = [
        f"SELECT id FROM (SELECT id FROM runs WHERE {index_range.where} AND {condition} AND id < :before "
        f"ORDER BY {index_range.order} LIMIT :limit) AS scan_{number}"
        for number, (index_range, condition) in enumerate(
            product(
                _index_ranges(tx, factory, webhook, automation, delivery, state),
                _STATE_CONDITIONS[state] if state is not None else ["1 = 1"],
            )
        )
    ]
    runs: list[Run] = []
    dialect.force_custom_query_plans(tx)
    for start in range(0, len(scans), _SCANS_PER_QUERY):
        batch = scans[start : start + _SCANS_PER_QUERY]
        rows = tx.all(
            f"""
            {RUN_QUERY}
            JOIN (
                SELECT id FROM ({" UNION ".join(batch)}) AS scanned
                ORDER BY id DESC LIMIT :limit
            ) AS page ON page.id = runs.id
            ORDER BY runs.id DESC
            """,
            before=before or b"\xff" * 16,
            limit=limit,
            factory=factory,
            automation=automation,
            delivery=delivery,
        )
        runs += map(run_from_row, rows)
    return sorted(runs, key=lambda run: run.id, reverse=True)[:limit]


_SCANS_PER_QUERY: Final = 100
_UNFINISHED: Final = (RunState.QUEUED, RunState.RUNNING)
_STATE_CONDITIONS: Final[dict[RunState, list[str]]] = {
    # Each condition must repeat the WHERE of a partial index. Otherwise, the database does not use the index.
    **{
        state: [
            f"state = '{state}' AND {READY}",
            f"state = '{state}' AND {HELD}",
            f"state = '{state}' AND id IN (SELECT id FROM runs WHERE {CLAIMED})",
        ]
        for state in _UNFINISHED
    },
    RunState.SUCCEEDED: ["state = 'succeeded'"],
    **{
        state: [f"state = '{state}' AND state NOT IN ('queued', 'running', 'succeeded')"]
        for state in RunState
        if state not in (RunState.QUEUED, RunState.RUNNING, RunState.SUCCEEDED)
    },
}


@dataclass(frozen=True, slots=True)
class _IndexRange:
    """A range of an index, as a WHERE condition and the ORDER BY that reads it newest first."""

    where: str
    order: str = "id DESC"


def _index_ranges(
    tx: Transaction,
    factory: FactoryId,
    webhook: WebhookUid | None,
    automation: AutomationId | None,
    delivery: DeliveryKey | None,
    state: RunState | None,
) -> list[_IndexRange]:
    """The index ranges with the requested runs: of one delivery, of the factory's unfinished runs, of each webhook, or
    of each webhook and one automation. Runs without a delivery are included, unless a webhook or a
    delivery is requested."""
    rows = tx.all("SELECT no, uid FROM webhooks WHERE factory_id = :factory ORDER BY no", factory=factory)
    webhook_numbers = [row["no"] for row in rows if webhook in (None, row["uid"])]
    if webhook is None and delivery is None:
        webhook_numbers.append(WITHOUT_DELIVERY)
    if delivery is None and state not in _UNFINISHED:
        if automation is not None:
            return [_automation_range(tx, webhook_no, state) for webhook_no in webhook_numbers]
        return [
            _IndexRange(f"webhook_no = {webhook_no:d}")
            if webhook_no != WITHOUT_DELIVERY
            else _range_without_delivery(tx, state)
            for webhook_no in webhook_numbers
        ]
    condition = "delivery_id = :delivery" if delivery is not None else "factory_id = :factory"
    # Without `|| ''` and `+`, SQLite would search by automation or webhook, and scan its ended runs, too.
    automation_condition = "automation_id || '' = :automation AND " if automation is not None else ""
    if not webhook_numbers:
        return []
    return [
        _IndexRange(f"{condition} AND {automation_condition}+webhook_no IN ({', '.join(map(str, webhook_numbers))})")
    ]


def _range_without_delivery(tx: Transaction, state: RunState | None) -> _IndexRange:
    """The index range of a factory's runs without a delivery."""
    leading_columns = {"factory_id": ":factory"}
    if state not in (None, RunState.SUCCEEDED):
        leading_columns["state"] = f"'{state}'"
    where, order = dialect.index_range(tx, leading_columns, "id", ":before")
    return _IndexRange(f"webhook_no = {WITHOUT_DELIVERY} AND {where}", order)


def _automation_range(tx: Transaction, webhook_no: int, state: RunState | None) -> _IndexRange:
    """The index range of one automation's runs from one webhook."""
    leading_columns = {"automation_id": ":automation", "webhook_no": str(int(webhook_no))}
    if state not in (None, RunState.SUCCEEDED):
        leading_columns["state"] = f"'{state}'"
    return _IndexRange(*dialect.index_range(tx, leading_columns, "id", ":before"))
