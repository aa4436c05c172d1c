"""The delivery log, live, and each delivery: what came, which event it is, and why it started what it started."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from hookmill.domain import moment
from hookmill.domain.delivery import Delivery, IdentityKind, Label, identities_shown_as, joined
from hookmill.domain.errors import Conflict, HookmillError, Invalid, NotFound
from hookmill.domain.ids import DeliveryKey, WebhookUid, delivery_id, delivery_key, time_of, time_ordered
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import PAYLOAD_FILE
from hookmill.domain.sample import ready_made
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
"""How much of a body a page shows at first: the rest is a click away."""
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
class Narrowed:
    """What of the log is asked for. `typed` is the form as it was filled in; `problems` name its faults by field."""

    typed: dict[str, str]
    filters: dict[str, Any]
    problems: dict[str, str]

    @property
    def query(self) -> dict[str, str]:
        return {name: value for name, value in self.typed.items() if value}


def log(context: PageContext, may: MayView) -> Response:
    narrowed = _narrowed(context)
    if redirect := _meant_itself(context, may, narrowed.typed["identity"]):
        return redirect
    webhooks = context.management.webhooks.all(may, with_deleted=True)
    before = _key_in(context.query.get("before", ""))
    rows: Sequence[Delivery] = ()
    if not narrowed.problems:
        rows = context.management.log.newest(may, **narrowed.filters, before=before, limit=PAGE + 1)
    has_older, rows = len(rows) > PAGE, rows[:PAGE]
    is_first = before is None and "until" not in narrowed.filters and not narrowed.problems
    names = {webhook.uid: webhook.name for webhook in webhooks}
    gaps = _gaps_beside(context, may, narrowed, before, rows if has_older else (), names)
    here = ("f", may.factory.name, "deliveries")
    # With nothing but a webhook asked for, an empty page says that nothing ever came: the newest rows are always kept.
    is_waiting = is_first and not rows and not gaps and set(narrowed.query) <= {"webhook"}
    accepted = [row.key for row in rows if row.label is Label.ACCEPTED]
    # An empty page has seen everything until now.
    newest = delivery_id(rows[0].key if rows else time_ordered(context.service.now_us(), bytes(8)))
    return context.page(
        "deliveries.html",
        status=422 if narrowed.problems else 200,
        may=may,
        lines=list(_in_order(rows, gaps)),
        runs=context.management.runs.counts_by_delivery(may, accepted) if accepted else {},
        has_rows=bool(rows or gaps),
        waiting=_waiting(context, may, narrowed, webhooks) if is_waiting else None,
        narrowed=narrowed,
        webhooks=webhooks,
        labels=list(Label),
        before=before,
        has_older=has_older,
        # The script names another row when the page has moved on.
        older=url(*here, **narrowed.query) + ("&" if narrowed.query else "?") + "before=",
        last=delivery_id(rows[-1].key) if rows else "",
        live_at=url(*here, "live", **narrowed.query, after=newest) if is_first else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A log that nothing came to yet: the webhook that a newcomer would post to, and what they need to know of it."""

    webhook: Webhook | None
    """None: there is none, or they have to choose."""
    has_webhooks: bool
    is_ready_made: bool


def _waiting(context: PageContext, may: MayView, narrowed: Narrowed, webhooks: Sequence[Webhook]) -> Waiting:
    live = [webhook for webhook in webhooks if webhook.state is not WebhookState.DELETED]
    chosen = live[0] if len(live) == 1 else None
    if uid := narrowed.typed["webhook"]:
        chosen = context.management.webhooks.get(may, uid)
    automation = ready_made(context.management.automations.all(may))
    return Waiting(
        webhook=chosen,
        has_webhooks=bool(live),
        is_ready_made=automation is not None and chosen is not None and chosen.uid in automation.selected_webhooks(),
    )


def _narrowed(context: PageContext) -> Narrowed:
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
    return Narrowed(typed=typed, filters=filters, problems=problems)


def _key_in(shown: str) -> DeliveryKey | None:
    return delivery_key(shown) if shown else None


def _meant_itself(context: PageContext, may: MayView, identity: str) -> Response | None:
    """Whoever looks for a delivery's own id is shown that delivery."""
    if not identity.startswith("dlv_"):
        return None
    with suppress(Invalid, NotFound):
        context.management.log.get(may, identity)
        return context.go("f", may.factory.name, "deliveries", identity)
    return None


def _gaps_beside(
    context: PageContext,
    may: MayView,
    narrowed: Narrowed,
    before: DeliveryKey | None,
    rows: Sequence[Delivery],
    names: dict[WebhookUid, str],
) -> list[Gap]:
    """Attempts dropped in the time that the page covers, down to its last row if others are below."""
    # Dropped attempts have no label, no identity and no event type.
    if narrowed.problems or not narrowed.filters.keys().isdisjoint({"label", "identity", "event"}):
        return []
    since = max(
        (at for at in (narrowed.filters.get("since"), rows[-1].received_at if rows else None) if at), default=None
    )
    until = min((at for at in (narrowed.filters.get("until"), time_of(before) if before else None) if at), default=None)
    counters = context.management.log.dropped_attempts(may, narrowed.filters.get("webhook"), since=since, until=until)
    return [
        Gap(
            webhook_uid=dropped.webhook_uid,
            webhook_name=names.get(dropped.webhook_uid, dropped.webhook_uid),
            kind=dropped.kind,
            since=dropped.since,
            until=dropped.until,
            count=dropped.count,
        )
        for dropped in joined(counters)[:GAPS_MAX]
    ]


def _in_order(rows: Sequence[Delivery], gaps: Sequence[Gap]) -> Iterator[Delivery | Gap]:
    """Newest first; a gap stands where it ended."""
    left = list(gaps)
    for row in rows:
        while left and left[0].until > row.received_at:
            yield left.pop(0)
        yield row
    yield from left


async def watch(context: PageContext, may: MayView) -> Response:
    """Rows of the log as they come, as server-sent events."""
    narrowed = _narrowed(context)
    if narrowed.problems or "until" in narrowed.filters:
        raise Invalid("A log with an end time has no live updates.")
    after = _key_in(context.request.headers.get("last-event-id") or context.query.get("after", ""))
    filters = narrowed.filters
    uid = None
    if "webhook" in filters:
        webhook = await context.in_thread(context.management.webhooks.get, may, filters["webhook"])
        uid = webhook.uid
    wanted = live.Wanted(
        webhook=uid,
        label=filters.get("label"),
        since=filters.get("since"),
        event=filters.get("event"),
        identities=identities_shown_as(filters["identity"]) if "identity" in filters else None,
    )
    return live.stream(context, may, wanted, filters, after)


# ── One delivery ─────────────────────────────────────────────────────────────────────────────────────────────


def delivery(context: PageContext, may: MayView) -> Response:
    return _delivery_page(context, may)


def _delivery_page(context: PageContext, may: MayView, *, status: int = 200, problem: str = "") -> Response:
    management = context.management
    shown_id = context.parameters["delivery"]
    row = management.log.get(may, shown_id)
    body: bytes | None = None
    verdicts: Sequence[AutomationMatch] = ()
    if row.label is Label.ACCEPTED:
        # Retention may take it between two looks.
        with suppress(NotFound):
            body = management.log.payload(may, shown_id)
            verdicts = management.filters.explain(may, shown_id)
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
        verdicts=sorted(
            (one for one in verdicts if _listens(one)), key=lambda one: (not one.would_trigger, one.automation.name)
        ),
        elsewhere=sorted((one.automation for one in verdicts if not _listens(one)), key=lambda each: each.name),
        runs=management.runs.of_delivery(may, shown_id),
    )


def _listens(verdict: AutomationMatch) -> bool:
    """Whether the automation has to do with the delivery's webhook at all."""
    return any(test.webhook_check for test in verdict.triggers)


def payload(context: PageContext, may: MayView) -> Response:
    """The body, exactly as it was received."""
    headers = {
        "Content-Disposition": f'attachment; filename="{PAYLOAD_FILE}"',
        # Shown in a page of ours, a body of somebody else's could act there.
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    body = context.management.log.payload(may, context.parameters["delivery"])
    return Response(body, media_type="application/json", headers=headers)


def replay(context: PageContext, may: MayManage) -> Response:
    shown_id = context.parameters["delivery"]
    try:
        context.management.log.replay(may, shown_id, context.form.optional("automation"))
    except Conflict as error:
        return _delivery_page(context, may, status=409, problem=_without_commands(error))
    return context.go("f", may.factory.name, "deliveries", shown_id, flash="replayed")


def _without_commands(error: HookmillError) -> str:
    """The page itself shows what a command would."""
    return str(error).partition(" To see why:")[0]


PAGES: Final = (
    Page("GET", "/f/{factory}/deliveries", log, viewing),
    Page("GET", "/f/{factory}/deliveries/live", watch, viewing, by_itself=True),
    Page("GET", "/f/{factory}/deliveries/{delivery}", delivery, viewing),
    Page("GET", "/f/{factory}/deliveries/{delivery}/payload", payload, viewing),
    Page("POST", "/f/{factory}/deliveries/{delivery}/replay", replay, managing),
)
