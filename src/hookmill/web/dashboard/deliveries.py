"""The pages of the delivery log, with live updates, and of one delivery, with its identity and matches."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from hookmill.domain import moment
from hookmill.domain.activity import FAILED_AUTHENTICATIONS, NOT_FOUND, RATE_LIMITED
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
from hookmill.web.dashboard.access import require_manager, require_viewer
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.tree import tree_of
from hookmill.web.dashboard.urls import url

PAGE_SIZE: Final = live.PAGE_SIZE
RAW_BYTES_MAX: Final = 20_000
"""How many bytes of a body the page of a delivery shows, unless its link for all bytes is used."""
DROPPED_RANGES_MAX: Final = 100

pages.FLASH_MESSAGES.update(
    replayed="Delivery replayed with the current automations. The new runs are listed first, marked as replays."
)

IDENTITY_SOURCES: Final = {
    IdentityKind.DELIVERY_ID_HEADER: "the webhook's delivery id header",
    IdentityKind.PROVIDER: "the provider's delivery id",
    IdentityKind.SENDER: "the X-Service-Delivery-Id or X-Warp-Delivery-Id header",
    IdentityKind.BODY_SHA256: "the body hash (SHA-256): the sender sent no id",
    IdentityKind.SIGNED_CONTENT: "the signed content",
}
DROPPED_REASONS: Final = {
    RATE_LIMITED: "over the rate limit deliveries_per_minute",
    FAILED_AUTHENTICATIONS: "over the limit of failed authentications",
    NOT_FOUND: "webhook disabled or deleted",
}
"""Why attempts were dropped, by their kind."""


# ── The log ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRange:
    """Consecutive minutes in which a webhook dropped attempts for one reason.

    They begin at `since` and end before `until`, in µs.
    """

    webhook_uid: WebhookUid
    webhook_name: str
    kind: str
    since: int
    until: int
    count: int

    @property
    def reason(self) -> str:
        return DROPPED_REASONS.get(self.kind, self.kind.replace("_", " "))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """The requested part of the log."""

    inputs: dict[str, str]
    """The fields of the form as typed."""
    filters: dict[str, Any]
    """The parsed fields, as arguments of `management.log.newest`."""
    problems: dict[str, str]
    """The errors by field."""

    @property
    def query(self) -> dict[str, str]:
        """The filled-in fields, as the query of a URL."""
        return {name: value for name, value in self.inputs.items() if value}


def log(context: PageContext, may: MayView) -> Response:
    log_query = _log_query(context)
    if redirect := _redirect_to_delivery(context, may, log_query.inputs["identity"]):
        return redirect
    webhooks = context.management.webhooks.all(may, with_deleted=True)
    before = _delivery_key_from(context.query.get("before", ""))
    rows: Sequence[Delivery] = ()
    if not log_query.problems:
        rows = context.management.log.newest(may, **log_query.filters, before=before, limit=PAGE_SIZE + 1)
    has_older, rows = len(rows) > PAGE_SIZE, rows[:PAGE_SIZE]
    is_first_page = before is None and "until" not in log_query.filters and not log_query.problems
    names_by_uid = {webhook.uid: webhook.name for webhook in webhooks}
    dropped_ranges = _dropped_ranges_on_page(context, may, log_query, before, rows if has_older else (), names_by_uid)
    here = ("f", may.factory.name, "deliveries")
    # Retention keeps the newest deliveries of each webhook. So without filters, or with a webhook as the only filter,
    # an empty first page means that there has never been a delivery.
    is_empty_log = is_first_page and not rows and not dropped_ranges and set(log_query.query) <= {"webhook"}
    accepted_keys = [row.key for row in rows if row.label is Label.ACCEPTED]
    # The live updates of an empty page begin with deliveries from now on.
    newest_id = delivery_id(rows[0].key if rows else time_ordered_key(context.service.now_us(), bytes(8)))
    return context.page(
        "deliveries.html",
        status=422 if log_query.problems else 200,
        may=may,
        entries=list(_in_order(rows, dropped_ranges)),
        run_counts=context.management.runs.counts_by_delivery(may, accepted_keys) if accepted_keys else {},
        has_rows=bool(rows or dropped_ranges),
        empty_log=_empty_log(context, may, log_query, webhooks) if is_empty_log else None,
        log_query=log_query,
        webhooks=webhooks,
        labels=list(Label),
        before=before,
        has_older=has_older,
        # Ends with `before=`. The template adds the id of the last row. After a live update has removed this row, the
        # script adds the id of the new last row.
        older_url_prefix=url(*here, **log_query.query) + ("&" if log_query.query else "?") + "before=",
        last_id=delivery_id(rows[-1].key) if rows else "",
        live_url=url(*here, "live", **log_query.query, after=newest_id) if is_first_page else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyLog:
    """The text about the first delivery on the page of an empty log."""

    webhook: Webhook | None
    """The webhook by which the log is filtered, or the factory's only webhook; else None."""
    has_webhooks: bool
    starts_first_automation: bool
    """Whether deliveries of the webhook start the automation that the first start of the service created, unchanged."""


def _empty_log(context: PageContext, may: MayView, log_query: LogQuery, webhooks: Sequence[Webhook]) -> EmptyLog:
    existing = [webhook for webhook in webhooks if webhook.state is not WebhookState.DELETED]
    webhook = existing[0] if len(existing) == 1 else None
    if uid := log_query.inputs["webhook"]:
        webhook = context.management.webhooks.get(may, uid)
    automation = unchanged_first_automation(context.management.automations.all(may))
    return EmptyLog(
        webhook=webhook,
        has_webhooks=bool(existing),
        starts_first_automation=automation is not None
        and webhook is not None
        and webhook.uid in automation.selected_webhook_uids(),
    )


def _log_query(context: PageContext) -> LogQuery:
    query = context.query
    inputs = {name: query.get(name, "").strip() for name in ("webhook", "label", "since", "until", "event", "identity")}
    filters: dict[str, Any] = {}
    problems: dict[str, str] = {}
    if inputs["webhook"]:
        filters["webhook"] = inputs["webhook"]
    for name in ("event", "identity"):
        if inputs[name]:
            filters[name] = inputs[name]
    if inputs["label"]:
        labels_by_name = {label.name.lower(): label for label in Label}
        if inputs["label"].lower() in labels_by_name:
            filters["label"] = labels_by_name[inputs["label"].lower()]
        else:
            problems["label"] = "Unknown label. Choose one from the list."
    for name in ("since", "until"):
        if inputs[name]:
            try:
                # The browser's input field has no time zone. The page asks for UTC, as `parse_iso` assumes.
                filters[name] = moment.parse_iso(inputs[name])
            except ValueError:
                problems[name] = "Invalid time. Write it as 2026-11-21T09:12, in UTC."
    if filters.get("since", 0) >= filters.get("until", 1 << 62):
        problems["until"] = "The end must be later than the start."
    return LogQuery(inputs=inputs, filters=filters, problems=problems)


def _delivery_key_from(shown_id: str) -> DeliveryKey | None:
    return delivery_key(shown_id) if shown_id else None


def _redirect_to_delivery(context: PageContext, may: MayView, identity: str) -> Response | None:
    """A redirect to the delivery whose id `identity` is; None if it is no delivery's id."""
    if not identity.startswith("dlv_"):
        return None
    with suppress(Invalid, NotFound):
        context.management.log.get(may, identity)
        return context.redirect("f", may.factory.name, "deliveries", identity)
    return None


def _dropped_ranges_on_page(
    context: PageContext,
    may: MayView,
    log_query: LogQuery,
    before: DeliveryKey | None,
    rows: Sequence[Delivery],
    names_by_uid: dict[WebhookUid, str],
) -> list[DroppedRange]:
    """The newest ranges of attempts that were dropped in the time that the page covers.

    `rows`: the rows of the page if an older page follows, whose time ends at the last of these rows; otherwise empty.
    """
    # Dropped attempts have no label, no identity and no event type.
    if log_query.problems or not log_query.filters.keys().isdisjoint({"label", "identity", "event"}):
        return []
    since = max(
        (at for at in (log_query.filters.get("since"), rows[-1].received_at if rows else None) if at), default=None
    )
    until = min(
        (at for at in (log_query.filters.get("until"), time_of(before) if before else None) if at), default=None
    )
    dropped_attempts = context.management.log.dropped_attempts(
        may, log_query.filters.get("webhook"), since=since, until=until
    )
    return [
        DroppedRange(
            webhook_uid=dropped.webhook_uid,
            webhook_name=names_by_uid.get(dropped.webhook_uid, dropped.webhook_uid),
            kind=dropped.kind,
            since=dropped.since,
            until=dropped.until,
            count=dropped.count,
        )
        for dropped in merge_adjacent(dropped_attempts)[:DROPPED_RANGES_MAX]
    ]


def _in_order(rows: Sequence[Delivery], dropped_ranges: Sequence[DroppedRange]) -> Iterator[Delivery | DroppedRange]:
    """The rows and the ranges of dropped attempts, newest first. The place of a range is at its `until`."""
    remaining = list(dropped_ranges)
    for row in rows:
        while remaining and remaining[0].until > row.received_at:
            yield remaining.pop(0)
        yield row
    yield from remaining


async def watch(context: PageContext, may: MayView) -> Response:
    """New rows of the log, as server-sent events."""
    log_query = _log_query(context)
    if log_query.problems or "until" in log_query.filters:
        raise Invalid("The log has live updates only with valid filters and without an end time.")
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
        identity_digests=possible_identity_digests(filters["identity"]) if "identity" in filters else None,
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
    shows_whole_body = context.query.get("raw") == "all"
    raw = body if body is None or shows_whole_body else body[:RAW_BYTES_MAX]
    return context.page(
        "delivery.html",
        status=status,
        may=may,
        delivery=row,
        details=details(row),
        problem=problem,
        webhook=management.webhooks.get(may, row.webhook_uid),
        identity_from=IDENTITY_SOURCES[row.identity_kind] if row.identity_kind is not None else None,
        body=body,
        tree=tree_of(body) if body is not None else None,
        raw=raw.decode("utf-8", "backslashreplace" if shows_whole_body else "ignore") if raw is not None else "",
        shows_whole_body=shows_whole_body,
        is_raw_cut=body is not None and raw is not None and len(raw) < len(body),
        matches=sorted(
            (match for match in matches if _selects_webhook(match)),
            key=lambda match: (not match.would_trigger, match.automation.name),
        ),
        automations_of_other_webhooks=sorted(
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
    Page("GET", "/f/{factory}/deliveries", log, require_viewer),
    Page("GET", "/f/{factory}/deliveries/live", watch, require_viewer, is_background=True),
    Page("GET", "/f/{factory}/deliveries/{delivery}", delivery, require_viewer),
    Page("GET", "/f/{factory}/deliveries/{delivery}/payload", payload, require_viewer),
    Page("POST", "/f/{factory}/deliveries/{delivery}/replay", replay, require_manager),
)
