"""The pages of the delivery log, with live updates, and of one delivery, with its identity and matches."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from hookmill.domain import moment
from hookmill.domain.delivery import Delivery, IdentityKind, Label, merge_adjacent, possible_identity_digests
from hookmill.domain.errors import Conflict, Invalid, NotFound
from hookmill.domain.ids import DeliveryKey, WebhookUid, delivery_id, delivery_key, time_of, time_ordered_key
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import PAYLOAD_FILE
from hookmill.domain.sample import unchanged_first_automation
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.management.filters import AutomationMatch
from hookmill.presentation.delivery import details
from hookmill.web.dashboard import live, pages
from hookmill.web.dashboard.access import managing, viewing
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.tree import tree_of
from hookmill.web.dashboard.urls import url

PAGE: Final = live.PAGE
RAW_BYTES_SHOWN: Final = 20_000
"""The bytes of a body that the page shows first. A link shows the rest."""
GAPS_MAX: Final = 100

pages.FLASH_MESSAGES.update(
    replayed="Delivery replayed with the current automations. The new runs are listed first, marked as replays."
)

IDENTITY_FROM: Final = {
    IdentityKind.DELIVERY_ID_HEADER: "the webhook's delivery id header",
    IdentityKind.PROVIDER: "the provider's delivery id",
    IdentityKind.SENDER: "the X-Service-Delivery-Id or X-Warp-Delivery-Id header",
    IdentityKind.BODY_SHA256: "the body hash (SHA-256): the sender sent no id",
    IdentityKind.SIGNED_CONTENT: "the signed content",
}
REFUSED_FOR: Final = {
    "rate_limited": "over the rate limit",
    "failed_authentications": "over the limit of failed authentications",
    "not_found": "webhook disabled or deleted",
}


# ── The log ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Consecutive minutes in which a webhook dropped attempts for one cause: from `since` until before
    `until`, in µs."""

    webhook_uid: WebhookUid
    webhook_name: str
    kind: str
    since: int
    until: int
    count: int

    @property
    def cause(self) -> str:
        return REFUSED_FOR.get(self.kind, self.kind.replace("_", " "))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """The requested part of the log. `typed` has the fields of the form, and `problems` their errors by field."""

    typed: dict[str, str]
    filters: dict[str, Any]
    problems: dict[str, str]

    @property
    def query(self) -> dict[str, str]:
        return {name: value for name, value in self.typed.items() if value}


def log(context: PageContext, may: MayView) -> Response:
    log_query = _log_query(context)
    if redirect := _redirect_to_delivery(context, may, log_query.typed["identity"]):
        return redirect
    webhooks = context.management.webhooks.all(may, with_deleted=True)
    before = _delivery_key_from(context.query.get("before", ""))
    rows: Sequence[Delivery] = ()
    if not log_query.problems:
        rows = context.management.log.newest(may, **log_query.filters, before=before, limit=PAGE + 1)
    has_older, rows = len(rows) > PAGE, rows[:PAGE]
    is_first = before is None and "until" not in log_query.filters and not log_query.problems
    names = {webhook.uid: webhook.name for webhook in webhooks}
    gaps = _gaps_on_page(context, may, log_query, before, rows if has_older else (), names)
    here = ("f", may.factory.name, "deliveries")
    # Retention keeps the newest rows. So if only a webhook is selected, an empty page means that it had no deliveries.
    is_empty_log = is_first and not rows and not gaps and set(log_query.query) <= {"webhook"}
    accepted = [row.key for row in rows if row.label is Label.ACCEPTED]
    # Live updates of an empty page start now.
    newest = delivery_id(rows[0].key if rows else time_ordered_key(context.service.now_us(), bytes(8)))
    return context.page(
        "deliveries.html",
        status=422 if log_query.problems else 200,
        may=may,
        lines=list(_in_order(rows, gaps)),
        runs=context.management.runs.counts_by_delivery(may, accepted) if accepted else {},
        has_rows=bool(rows or gaps),
        empty_log=_empty_log(context, may, log_query, webhooks) if is_empty_log else None,
        log_query=log_query,
        webhooks=webhooks,
        labels=list(Label),
        before=before,
        has_older=has_older,
        # Ends with `before=`. The template adds the last row's id; after live updates, the script adds that of the row
        # that is then last.
        older=url(*here, **log_query.query) + ("&" if log_query.query else "?") + "before=",
        last=delivery_id(rows[-1].key) if rows else "",
        live_at=url(*here, "live", **log_query.query, after=newest) if is_first else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyLog:
    """An empty log: the webhook to which a new user can send a delivery."""

    webhook: Webhook | None
    """None if there is no webhook, or more than one."""
    has_webhooks: bool
    starts_first_automation: bool
    """Whether the webhook starts the automation that the first start of the service created, unchanged."""


def _empty_log(context: PageContext, may: MayView, log_query: LogQuery, webhooks: Sequence[Webhook]) -> EmptyLog:
    existing = [webhook for webhook in webhooks if webhook.state is not WebhookState.DELETED]
    chosen = existing[0] if len(existing) == 1 else None
    if uid := log_query.typed["webhook"]:
        chosen = context.management.webhooks.get(may, uid)
    automation = unchanged_first_automation(context.management.automations.all(may))
    return EmptyLog(
        webhook=chosen,
        has_webhooks=bool(existing),
        starts_first_automation=automation is not None
        and chosen is not None
        and chosen.uid in automation.selected_webhook_uids(),
    )


def _log_query(context: PageContext) -> LogQuery:
    query = context.query
    typed = {name: query.get(name, "").strip() for name in ("webhook", "label", "since", "until", "event", "identity")}
    filters: dict[str, Any] = {}
    problems: dict[str, str] = {}
    if typed["webhook"]:
        filters["webhook"] = typed["webhook"]
    for name in ("event", "identity"):
        if typed[name]:
            filters[name] = typed[name]
    if typed["label"]:
        labels = {label.name.lower(): label for label in Label}
        if typed["label"].lower() in labels:
            filters["label"] = labels[typed["label"].lower()]
        else:
            problems["label"] = "Unknown label. Choose one from the list."
    for name in ("since", "until"):
        if typed[name]:
            try:
                # A browser sends a time without a zone: the page asks for UTC.
                filters[name] = moment.parse_iso(typed[name])
            except ValueError:
                problems[name] = "Invalid time. Write it as 2026-11-21T09:12, in UTC."
    if filters.get("since", 0) >= filters.get("until", 1 << 62):
        problems["until"] = "The end must be later than the start."
    return LogQuery(typed=typed, filters=filters, problems=problems)


def _delivery_key_from(shown: str) -> DeliveryKey | None:
    return delivery_key(shown) if shown else None


def _redirect_to_delivery(context: PageContext, may: MayView, identity: str) -> Response | None:
    """A redirect to the delivery if `identity` is the id of one; else None."""
    if not identity.startswith("dlv_"):
        return None
    with suppress(Invalid, NotFound):
        context.management.log.get(may, identity)
        return context.redirect("f", may.factory.name, "deliveries", identity)
    return None


def _gaps_on_page(
    context: PageContext,
    may: MayView,
    log_query: LogQuery,
    before: DeliveryKey | None,
    rows: Sequence[Delivery],
    names: dict[WebhookUid, str],
) -> list[Gap]:
    """Attempts dropped in the time that the page covers. If older rows follow on the next page, only those since this
    page's last row."""
    # Dropped attempts have no label, no identity and no event type.
    if log_query.problems or not log_query.filters.keys().isdisjoint({"label", "identity", "event"}):
        return []
    since = max(
        (at for at in (log_query.filters.get("since"), rows[-1].received_at if rows else None) if at), default=None
    )
    until = min(
        (at for at in (log_query.filters.get("until"), time_of(before) if before else None) if at), default=None
    )
    counters = context.management.log.dropped_attempts(may, log_query.filters.get("webhook"), since=since, until=until)
    return [
        Gap(
            webhook_uid=dropped.webhook_uid,
            webhook_name=names.get(dropped.webhook_uid, dropped.webhook_uid),
            kind=dropped.kind,
            since=dropped.since,
            until=dropped.until,
            count=dropped.count,
        )
        for dropped in merge_adjacent(counters)[:GAPS_MAX]
    ]


def _in_order(rows: Sequence[Delivery], gaps: Sequence[Gap]) -> Iterator[Delivery | Gap]:
    """Rows and gaps, newest first. A gap's place is that of its `until`."""
    remaining = list(gaps)
    for row in rows:
        while remaining and remaining[0].until > row.received_at:
            yield remaining.pop(0)
        yield row
    yield from remaining


async def watch(context: PageContext, may: MayView) -> Response:
    """New rows of the log, as server-sent events."""
    log_query = _log_query(context)
    if log_query.problems or "until" in log_query.filters:
        raise Invalid("A log with an end time has no live updates.")
    after = _delivery_key_from(context.request.headers.get("last-event-id") or context.query.get("after", ""))
    filters = log_query.filters
    uid = None
    if "webhook" in filters:
        webhook = await context.in_thread(context.management.webhooks.get, may, filters["webhook"])
        uid = webhook.uid
    log_filter = live.LogFilter(
        webhook=uid,
        label=filters.get("label"),
        since=filters.get("since"),
        event=filters.get("event"),
        identities=possible_identity_digests(filters["identity"]) if "identity" in filters else None,
    )
    return live.stream(context, may, log_filter, filters, after)


# ── One delivery ─────────────────────────────────────────────────────────────────────────────────────────────


def delivery(context: PageContext, may: MayView) -> Response:
    return _delivery_page(context, may)


def _delivery_page(context: PageContext, may: MayView, *, status: int = 200, problem: str = "") -> Response:
    management = context.management
    shown_id = context.parameters["delivery"]
    row = management.log.get(may, shown_id)
    body: bytes | None = None
    matches: Sequence[AutomationMatch] = ()
    if row.label is Label.ACCEPTED:
        # Retention may prune the delivery between these reads.
        with suppress(NotFound):
            body = management.log.payload(may, shown_id)
            matches = management.filters.explain(may, shown_id)
    is_whole = context.query.get("raw") == "all"
    raw = body if body is None or is_whole else body[:RAW_BYTES_SHOWN]
    return context.page(
        "delivery.html",
        status=status,
        may=may,
        delivery=row,
        details=details(row),
        problem=problem,
        webhook=management.webhooks.get(may, row.webhook_uid),
        identity_from=IDENTITY_FROM[row.identity_kind] if row.identity_kind is not None else None,
        body=body,
        tree=tree_of(body) if body is not None else None,
        raw=raw.decode("utf-8", "backslashreplace" if is_whole else "ignore") if raw is not None else "",
        is_raw_wanted=is_whole,
        is_cut=body is not None and raw is not None and len(raw) < len(body),
        matches=sorted(
            (match for match in matches if _selects_webhook(match)),
            key=lambda match: (not match.would_trigger, match.automation.name),
        ),
        elsewhere=sorted(
            (match.automation for match in matches if not _selects_webhook(match)),
            key=lambda automation: automation.name,
        ),
        runs=management.runs.of_delivery(may, shown_id),
    )


def _selects_webhook(match: AutomationMatch) -> bool:
    """Whether the automation selects the delivery's webhook."""
    return any(test.webhook_check for test in match.trigger_tests)


def payload(context: PageContext, may: MayView) -> Response:
    """The body, exactly as it was received."""
    headers = {
        "Content-Disposition": f'attachment; filename="{PAYLOAD_FILE}"',
        # The body is untrusted, so it must not run scripts with this origin.
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    body = context.management.log.payload(may, context.parameters["delivery"])
    return Response(body, media_type="application/json", headers=headers)


def replay(context: PageContext, may: MayManage) -> Response:
    shown_id = context.parameters["delivery"]
    try:
        context.management.log.replay(may, shown_id, context.form.optional("automation"))
    except Conflict as error:
        return _delivery_page(context, may, status=409, problem=error.reason)
    return context.redirect("f", may.factory.name, "deliveries", shown_id, flash="replayed")


PAGES: Final = (
    Page("GET", "/f/{factory}/deliveries", log, viewing),
    Page("GET", "/f/{factory}/deliveries/live", watch, viewing, is_background=True),
    Page("GET", "/f/{factory}/deliveries/{delivery}", delivery, viewing),
    Page("GET", "/f/{factory}/deliveries/{delivery}/payload", payload, viewing),
    Page("POST", "/f/{factory}/deliveries/{delivery}/replay", replay, managing),
)
