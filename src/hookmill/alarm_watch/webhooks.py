"""The conditions of alarms about webhooks."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hookmill.domain.alarm import (
    AUTHENTICATION_RANGE_US,
    RATE_LIMIT_WINDOW_MINUTES,
    AlarmCondition,
    AlarmKind,
    AlarmSubject,
    AlarmThresholds,
    authentication_fails,
    duration_text,
    may_be_quiet,
)
from hookmill.domain.probe import is_probe
from hookmill.store import alarm_inputs, dialect
from hookmill.store.alarm_inputs import WatchedWebhook
from hookmill.store.database import Database, Transaction

MINUTE_US = 60_000_000


@dataclass(slots=True)
class ConditionPage:
    """For one page of webhooks: the conditions that are true, and those that stay unknown because too many rows would
    have to be read."""

    conditions: list[AlarmCondition] = field(default_factory=list)
    undecided: set[tuple[AlarmKind, str]] = field(default_factory=set)


def webhook_conditions(
    database: Database, thresholds: AlarmThresholds, now: int, watched_from: int
) -> Iterator[ConditionPage]:
    """The conditions of all enabled webhooks, page by page. Between two pages, no transaction is open.

    `watched_from`: since when the service has been running without an interruption. Times are in µs since 1970.
    """
    last_no = 0
    while True:
        page = ConditionPage()
        with database.read() as tx:
            dialect.force_custom_query_plans(tx)
            watched = alarm_inputs.enabled_webhooks(
                tx,
                after=last_no,
                failed_since=now - AUTHENTICATION_RANGE_US,
                rate_limited_since=now - RATE_LIMIT_WINDOW_MINUTES * MINUTE_US,
            )
            for webhook in watched:
                if not is_probe(webhook.name, webhook.secret_name):
                    _evaluate(tx, webhook, thresholds, now, watched_from, page)
        yield page
        if len(watched) < alarm_inputs.WEBHOOKS_PER_READ:
            return
        last_no = watched[-1].no


def _evaluate(
    tx: Transaction,
    webhook: WatchedWebhook,
    thresholds: AlarmThresholds,
    now: int,
    watched_from: int,
    page: ConditionPage,
) -> None:
    subject = AlarmSubject(id=webhook.uid, name=webhook.name, factory_id=webhook.factory_id)

    def add(kind: AlarmKind, summary: str) -> None:
        page.conditions.append(AlarmCondition(kind=kind, subject=subject, summary=summary))

    expect_every = webhook.expect_every_seconds
    if expect_every is not None and may_be_quiet(webhook.expected_from, expect_every, watched_from, now):
        accepted = alarm_inputs.has_accepted(tx, webhook.no, now - expect_every * 1_000_000)
        if accepted is None:
            page.undecided.add((AlarmKind.WEBHOOK_QUIET, webhook.uid))
        elif not accepted:
            add(
                AlarmKind.WEBHOOK_QUIET,
                f"The webhook has accepted no delivery for more than {duration_text(expect_every)}.",
            )
    if webhook.has_failed_authentications:
        count = thresholds.failed_authentications
        if authentication_fails(alarm_inputs.newest_attempts(tx, webhook.no, count), now, count):
            add(AlarmKind.AUTHENTICATION_FAILING, f"At least the last {count} attempts failed to authenticate.")
    if webhook.rate_limited_minutes_count >= thresholds.rate_limited_minutes_min:
        add(
            AlarmKind.RATE_LIMITED,
            f"The rate limit dropped deliveries in at least {thresholds.rate_limited_minutes_min} of the last "
            f"{RATE_LIMIT_WINDOW_MINUTES} minutes.",
        )
