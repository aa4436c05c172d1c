"""A factory's home page: problems that need attention, and its webhooks with their activity."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from hookmill.domain.activity import FAILED_AUTHENTICATIONS, NOT_FOUND, RATE_LIMIT_ADVICE, RATE_LIMITED
from hookmill.domain.automation import Automation
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.ids import WebhookUid
from hookmill.domain.permission import MayView
from hookmill.domain.run import Run, RunState
from hookmill.domain.sample import unchanged_first_automation
from hookmill.domain.signatures.description import delivery_id_location
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.management.activity import WebhookActivity
from hookmill.web.dashboard.access import require_viewer
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.chart import Chart, chart
from hookmill.web.dashboard.page_context import PageContext, version_tag
from hookmill.web.dashboard.urls import url

DROPPED_REASONS: Final = {
    RATE_LIMITED: "over the rate limit (429)",
    FAILED_AUTHENTICATIONS: "over the limit of failed authentications (429)",
    NOT_FOUND: "while it was disabled (404)",
}
"""Why attempts were dropped, by kind. A deleted webhook's attempts are `NOT_FOUND`, too, but this page omits deleted
webhooks."""

FIRST_STEPS_RUNS: Final = 10
"""A factory with this number of runs no longer shows the first steps on its page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """A problem that needs attention, its consequence, and a link to act on it."""

    is_loss: bool
    """Whether the problem loses events, or starts too few runs. Such problems are listed first."""
    subject: str
    subject_url: str
    problem: str
    """The rest of a sentence that begins with the subject: `has no secret yet`."""
    consequence: str
    action: str
    """The text of the link."""
    action_url: str


@dataclass(frozen=True, slots=True)
class WebhookOverview:
    """A webhook with its activity, as the home page shows it."""

    webhook: Webhook
    activity: WebhookActivity
    chart: Chart
    dropped_while_disabled: int
    """Attempts while the webhook was disabled. The chart omits them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSteps:
    """The progress of a new user."""

    webhook: Webhook
    """The webhook to try: one that starts the first automation, or else the first by name."""
    delivery: Delivery | None
    """The newest one of the factory."""
    automation: Automation | None
    """The one that the first start of the service created, if it still has its first name and prompt; else one that
    deliveries start."""
    run: Run | None
    """A successful one that a delivery started if there is one, else the newest that a delivery started."""
    starts_first_automation: bool
    """Whether `webhook` starts the automation that the first start of the service created, and this automation still
    has its first name and prompt."""

    @property
    def starts_for_every_delivery(self) -> bool:
        """Whether every delivery of the webhook starts the automation."""
        return self.automation is not None and self.webhook.uid in self.automation.unfiltered_webhook_uids()

    @property
    def is_done(self) -> bool:
        return self.run is not None and self.run.state is RunState.SUCCEEDED

    @property
    def version_tag(self) -> str:
        """The version tag of the steps."""
        run = (self.run.id, self.run.state) if self.run is not None else None
        return version_tag(
            self.webhook.uid, self.delivery and self.delivery.key, self.automation and self.automation.id, run
        )


def home(context: PageContext, may: MayView) -> Response:
    management = context.management
    webhooks_by_uid = {webhook.uid: webhook for webhook in management.webhooks.all(may, with_deleted=True)}
    activity_by_uid = management.log.activity(may)
    automations = management.automations.all(may)
    overviews = [
        WebhookOverview(webhook, activity, chart(activity.hours), activity.dropped_count(NOT_FOUND))
        for uid, webhook in webhooks_by_uid.items()
        if webhook.state is not WebhookState.DELETED and (activity := activity_by_uid.get(uid)) is not None
    ]
    steps = _first_steps(context, may)
    # `management` has no access to the disk, so the process that serves this page checks its own disk.
    concerns = [
        *([_NO_ROOM] if not context.service.has_room() else []),
        *(
            concern
            for overview in overviews
            for concern in webhook_concerns(may.factory.name, overview.webhook, overview.activity)
        ),
        *(
            concern
            for automation in automations
            for concern in automation_concerns(may.factory.name, automation, webhooks_by_uid)
        ),
    ]
    return context.page(
        "home.html",
        may=may,
        concerns=sorted(concerns, key=lambda concern: not concern.is_loss),
        webhooks=overviews,
        first_steps=steps if steps is not None and not steps.is_done else None,
        has_deliveries=any(overview.activity.newest is not None for overview in overviews),
        limit=management.config.webhooks_per_factory,
    )


def first_steps(context: PageContext, may: MayView) -> Response:
    """The first steps, for polling. The response is empty if nothing has changed."""
    steps = _first_steps(context, may)
    return context.page_if_changed(
        "parts/first-steps.html", steps.version_tag if steps is not None else "", may=may, first_steps=steps
    )


def _first_steps(context: PageContext, may: MayView) -> FirstSteps | None:
    """The first steps; None if there are no webhooks, or if there are `FIRST_STEPS_RUNS` runs."""
    webhooks = context.management.webhooks.all(may)
    runs = context.management.runs.newest(may, limit=FIRST_STEPS_RUNS)
    if not webhooks or len(runs) == FIRST_STEPS_RUNS:
        return None
    automations = context.management.automations.all(may)
    first_automation = unchanged_first_automation(automations)
    selected_uids = first_automation.selected_webhook_uids() if first_automation is not None else frozenset()
    selected_webhook = next((webhook for webhook in webhooks if webhook.uid in selected_uids), None)
    runs = [run for run in runs if run.delivery_key is not None]
    successful_runs = (run for run in runs if run.state is RunState.SUCCEEDED)
    return FirstSteps(
        webhook=selected_webhook or webhooks[0],
        delivery=next(iter(context.management.log.newest(may, limit=1)), None),
        automation=first_automation or next((each for each in automations if each.selected_webhook_uids()), None),
        run=next(successful_runs, runs[0] if runs else None),
        starts_first_automation=selected_webhook is not None,
    )


def redirect_from_webhooks(context: PageContext, may: MayView) -> Response:
    """The home page lists the webhooks, so the parent path of their pages redirects to it."""
    return context.redirect("f", may.factory.name)


def dropped_by_reason(activity: WebhookActivity) -> tuple[tuple[str, int], ...]:
    """Why attempts were dropped, in words, and how many."""
    return tuple((reason, count) for kind, reason in DROPPED_REASONS.items() if (count := activity.dropped_count(kind)))


def webhook_concerns(factory: str, webhook: Webhook, activity: WebhookActivity) -> Iterator[Concern]:
    """The problems of one webhook. Counts are of the last 24 hours."""
    webhook_url = url("f", factory, "webhooks", webhook.uid)

    def concern(problem: str, consequence: str, action: str, action_url: str, *, is_loss: bool = False) -> Concern:
        return Concern(
            is_loss=is_loss,
            subject=webhook.name,
            subject_url=webhook_url,
            problem=problem,
            consequence=consequence,
            action=action,
            action_url=action_url,
        )

    def log_url(label: Label | None = None) -> str:
        label_query = {"label": label.name.lower()} if label is not None else {}
        return url("f", factory, "deliveries", webhook=webhook.uid, **label_query)

    if not webhook.has_secret:
        yield concern(
            "has no secret yet",
            "It stays disabled, and senders receive 404, until you enter the provider's secret.",
            "Enter the secret",
            f"{webhook_url}#secret",
        )
    elif not webhook.secret_is_current:
        yield concern(
            "uses an old value of its secret",
            f"Team secret {webhook.secret_name} has a newer value. Senders that use it are rejected until you sync.",
            "Sync",
            f"{webhook_url}#secret",
            is_loss=True,
        )
    if failed_count := activity.count(Label.REJECTED_AUTH):
        is_newest_failed = activity.newest is not None and activity.newest.label is Label.REJECTED_AUTH
        reason = activity.newest_failed_authentication and activity.newest_failed_authentication.reason
        yield concern(
            f"rejected {attempts_text(failed_count)} for failed authentication",
            ("The last attempt failed too, so the sender may have a wrong secret. " if is_newest_failed else "")
            # Some reasons are sentences, and end with a full stop.
            + (f"Last reason: {reason.removesuffix('.')}." if reason else ""),
            "View attempts",
            log_url(Label.REJECTED_AUTH),
            is_loss=is_newest_failed,
        )
    if dropped_count := activity.dropped_count(RATE_LIMITED):
        yield concern(
            f"dropped {attempts_text(dropped_count)} over its rate limit",
            f"They were authenticated and received 429. {RATE_LIMIT_ADVICE}",
            "View log",
            log_url(),
            is_loss=True,
        )
    if dropped_count := activity.dropped_count(FAILED_AUTHENTICATIONS):
        yield concern(
            f"dropped {attempts_text(dropped_count)} over the limit of failed authentications",
            "A client keeps sending a wrong credential to this webhook. Authenticated deliveries are not affected.",
            "View attempts",
            log_url(Label.REJECTED_AUTH),
        )
    if activity.duplicates_by_body:
        yield concern(
            f"detected {activity.duplicates_by_body} of its last {activity.duplicates_checked} duplicates by body "
            "hash only",
            *_missing_id(webhook, webhook_url, log_url(Label.DUPLICATE)),
        )
    for label, body_problem, consequence in (
        (
            Label.REJECTED_INVALID_JSON,
            "with invalid JSON",
            "The body is not JSON. Check the content type that the sender is configured to use.",
        ),
        (
            Label.REJECTED_TOO_LARGE,
            "with a body that is too large",
            "The body is larger than 256 KB. Configure the sender to send less data.",
        ),
    ):
        if count := activity.count(label):
            yield concern(
                f"rejected {attempts_text(count)} {body_problem}",
                consequence,
                "View deliveries",
                log_url(label),
                is_loss=True,
            )
    if dropped_count := activity.dropped_count(NOT_FOUND):
        is_disabled = webhook.state is WebhookState.DISABLED
        yield concern(
            f"received {attempts_text(dropped_count)} while it was disabled",
            "Senders received 404. Some providers remove a webhook after repeated errors.",
            "Enable" if is_disabled else "View webhook",
            f"{webhook_url}#state",
            is_loss=is_disabled,
        )


def _missing_id(webhook: Webhook, webhook_url: str, duplicates_url: str) -> tuple[str, str, str]:
    """Why duplicates have no event id and what follows, the text of the link to act on it, and its URL."""
    consequence = "If they are different events with the same body, only the first one starts runs."
    if webhook.delivery_id_header is not None:
        return (
            f"They lack the webhook's delivery id header, {webhook.delivery_id_header}. {consequence} Check that the "
            "sender sends this header, and that no proxy removes it.",
            "Check the header",
            f"{webhook_url}#delivery-id",
        )
    if (location := delivery_id_location(webhook.signature_scheme)) is not None:
        return (
            f"They lack the provider's event id ({location}). {consequence} Check that the provider sent them"
            + (", and that no proxy removes this header." if location.startswith("header") else "."),
            "View duplicates",
            duplicates_url,
        )
    return (
        f"They have no event id. {consequence} Set the header that contains the sender's event id.",
        "Set the header",
        f"{webhook_url}#delivery-id",
    )


def automation_concerns(
    factory: str, automation: Automation, webhooks_by_uid: Mapping[WebhookUid, Webhook]
) -> Iterator[Concern]:
    """The problems of an enabled automation: parts that can't be read, and webhooks that accept no deliveries."""
    if not automation.enabled:
        return
    if automation.unreadable_parts:
        yield Concern(
            is_loss=True,
            subject=automation.name,
            subject_url=url("f", factory, "automations", automation.id),
            problem=f"has {' and '.join(automation.unreadable_parts)} that can't be read",
            consequence="The automation is enabled, but no run starts.",
            action="View automation",
            action_url=url("f", factory, "automations", automation.id),
        )
    for uid in sorted(automation.selected_webhook_uids()):
        webhook = webhooks_by_uid.get(uid)
        name = f"webhook “{webhook.name}”" if webhook is not None else uid
        if webhook is None:
            selection = f"{name}, which is not a webhook of this factory"
        elif webhook.state is WebhookState.ENABLED:
            continue
        else:
            selection = f"{name}, which is {webhook.state.value}"
        yield Concern(
            is_loss=False,
            subject=automation.name,
            subject_url=url("f", factory, "automations", automation.id),
            problem=f"selects {selection}",
            consequence="The automation is enabled, but receives no deliveries from this webhook.",
            action="View automation",
            action_url=url("f", factory, "automations", automation.id),
        )


def attempts_text(count: int) -> str:
    return f"{count:,} attempt" + ("s" if count != 1 else "")


_NO_ROOM: Final = Concern(
    is_loss=True,
    subject="The disk",
    subject_url="/settings",
    problem="is nearly full",
    consequence=(
        "Every delivery receives 503 until there is space. Accepted deliveries are kept. Free some space, or move the "
        "data directory to a larger disk."
    ),
    action="View settings",
    action_url="/settings",
)


PAGES: Final[Sequence[Page]] = (
    Page("GET", "/f/{factory}", home, require_viewer),
    Page("GET", "/f/{factory}/first-steps", first_steps, require_viewer, is_background=True),
    Page("GET", "/f/{factory}/webhooks", redirect_from_webhooks, require_viewer),
)
