"""The pages of automations: the list, one automation, starting a run, enabling, disabling and deleting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from hookmill.domain.automation import Automation, DeliveryFilter
from hookmill.domain.delivery import Delivery
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.ids import WebhookUid, run_id
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import PACKAGE_RUNNER
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.presentation.automation import option_lines, schedule_text
from hookmill.web.dashboard import filter_editor, pages
from hookmill.web.dashboard.access import require_manager, require_viewer
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.runs import RunList, list_if_changed
from hookmill.web.dashboard.urls import url

RUNS_SHOWN: Final = 20

pages.FLASH_MESSAGES.update(
    {
        "automation-enabled": "Automation enabled. Its triggers start runs.",
        "automation-disabled": "Automation disabled. Runs in progress continue.",
        "automation-run": "Run started as a replay of the delivery.",
        "automation-run-now": "Run started.",
        "automation-deleted": "Automation deleted. Its runs are kept.",
    }
)

WebhooksByUid = Mapping[WebhookUid, Webhook]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedWebhook:
    """A webhook that an automation selects by uid. `name` is None if the factory has no such webhook."""

    uid: str
    name: str | None
    state: str
    """The value of a `WebhookState`, or `unknown`."""

    @property
    def is_enabled(self) -> bool:
        return self.state == WebhookState.ENABLED


def all_automations(context: PageContext, may: MayView) -> Response:
    automations = context.management.automations.all(may)
    webhooks_by_uid = all_webhooks(context, may)
    last_runs = context.management.runs.newest_by_automation(may)
    rows = [
        (
            automation,
            selected_webhooks(automation.selected_webhook_uids(), webhooks_by_uid),
            last_runs.get(automation.id),
        )
        for automation in automations
    ]
    return context.page(
        "automations.html",
        may=may,
        rows=rows,
        webhooks=existing_webhooks(webhooks_by_uid),
        next_times=context.management.automations.next_times(may),
    )


def automation_page(context: PageContext, may: MayView) -> Response:
    return _automation_page(context, may)


def _automation_page(context: PageContext, may: MayView, *, status: int = 200, problem: str = "") -> Response:
    automation = context.management.automations.get(may, context.parameters["automation"])
    webhooks_by_uid = all_webhooks(context, may)
    return context.page(
        "automation.html",
        status=status,
        may=may,
        problem=problem,
        automation=automation,
        triggers=[
            (selected_webhooks(each.webhook_ids, webhooks_by_uid), each.event, filter_text(each))
            for each in automation.filters
        ],
        schedules=_schedules(context, may, automation),
        warnings=context.management.automations.warnings(may, automation),
        only_writes_files=automation.runner == PACKAGE_RUNNER,
        policy=option_lines(automation),
        run_list=_run_list(context, may, automation),
        tested_delivery=_tested_delivery(context, may, automation),
        unfiltered_automations=_unfiltered_automations(context, may, automation),
    )


def _schedules(context: PageContext, may: MayView, automation: Automation) -> list[tuple[str, str]]:
    """The names of the automation's schedules, and their texts."""
    next_times = context.management.automations.next_times_of(may, automation)
    return [
        (schedule.name, schedule_text(schedule, next_times.get(schedule.name))) for schedule in automation.schedules
    ]


def _unfiltered_automations(context: PageContext, may: MayView, automation: Automation) -> list[Automation]:
    """Other enabled automations that select one of this automation's webhooks, and start a run for all its deliveries.

    Empty if this automation is disabled, or also has no filter.
    """
    if not automation.enabled or automation.unfiltered_webhook_uids():
        return []
    selected_uids = automation.selected_webhook_uids()
    return [
        other
        for other in context.management.automations.all(may)
        if other.id != automation.id and other.enabled and not selected_uids.isdisjoint(other.unfiltered_webhook_uids())
    ]


def runs(context: PageContext, may: MayView) -> Response:
    """The list of the newest runs, for polling. The response is empty if nothing has changed."""
    automation = context.management.automations.get(may, context.parameters["automation"])
    return list_if_changed(context, _run_list(context, may, automation))


def _run_list(context: PageContext, may: MayView, automation: Automation) -> RunList:
    newest_runs = context.management.runs.newest(may, automation=automation.id, limit=RUNS_SHOWN + 1)
    return RunList(
        runs=newest_runs[:RUNS_SHOWN],
        poll_url=url("f", may.factory.name, "automations", automation.id, "runs"),
        empty_text="No runs yet.",
        is_of_one_automation=True,
        older_url=url("f", may.factory.name, "runs", automation=automation.id)
        if len(newest_runs) > RUNS_SHOWN
        else None,
    )


# Replaying the tested delivery


def _tested_delivery(context: PageContext, may: MayView, automation: Automation) -> Delivery | None:
    """The delivery that the editor tested, if the enabled automation matches it, and the member may replay it."""
    if not isinstance(may, MayManage) or not automation.enabled:
        return None
    sample = filter_editor.load_sample(context.management, may, context.query.get("tested_delivery", ""))
    if sample is None or not filter_editor.would_trigger(automation.filters, sample):
        return None
    return sample.delivery


def replay(context: PageContext, may: MayManage) -> Response:
    """Replay a stored delivery for this automation, and redirect to the run."""
    try:
        [run] = context.management.log.replay(may, context.form["delivery"], context.parameters["automation"])
    except Conflict as error:
        return _automation_page(context, may, status=409, problem=error.reason)
    return context.redirect("f", may.factory.name, "runs", run_id(run.id), flash="automation-run")


# Starting a run by hand


def run_form(context: PageContext, may: MayManage) -> Response:
    return _run_form(context, may)


def _run_form(context: PageContext, may: MayManage, *, status: int = 200, problem: str = "") -> Response:
    return context.page(
        "automation-run.html",
        status=status,
        may=may,
        automation=context.management.automations.get(may, context.parameters["automation"]),
        payload=context.form["payload"],
        problem=problem,
    )


def run_now(context: PageContext, may: MayManage) -> Response:
    payload_text = context.form["payload"]
    payload = payload_text.encode("utf-8", "surrogatepass") if payload_text.strip() else None
    try:
        run = context.management.automations.start_run(may, context.parameters["automation"], payload)
    except Invalid as error:
        return _run_form(context, may, status=422, problem=str(error))
    except Conflict as error:
        return _automation_page(context, may, status=409, problem=error.reason)
    return context.redirect("f", may.factory.name, "runs", run_id(run.id), flash="automation-run-now")


# Enabling, disabling and deleting


def enable(context: PageContext, may: MayManage) -> Response:
    return _set_enabled(context, may, enabled=True)


def disable(context: PageContext, may: MayManage) -> Response:
    return _set_enabled(context, may, enabled=False)


def _set_enabled(context: PageContext, may: MayManage, *, enabled: bool) -> Response:
    automation = context.management.automations.set_enabled(may, context.parameters["automation"], enabled)
    return redirect_to_automation(context, automation, "automation-enabled" if enabled else "automation-disabled")


def confirm_deletion(context: PageContext, may: MayManage) -> Response:
    refuse_if_defined_by_files(may)
    automation = context.management.automations.get(may, context.parameters["automation"])
    selected = selected_webhooks(automation.selected_webhook_uids(), all_webhooks(context, may))
    return context.page("automation-delete.html", may=may, automation=automation, selected=selected)


def delete(context: PageContext, may: MayManage) -> Response:
    context.management.automations.delete(may, context.parameters["automation"])
    return context.redirect("f", may.factory.name, "automations", flash="automation-deleted")


def selected_webhooks(
    uids: Sequence[str] | frozenset[WebhookUid], webhooks_by_uid: WebhooksByUid
) -> list[SelectedWebhook]:
    """The webhooks with these uids, by name. Uids of webhooks that do not exist come last."""
    selected = []
    for uid in uids:
        webhook = webhooks_by_uid.get(WebhookUid(uid))
        name, state = (webhook.name, webhook.state.value) if webhook is not None else (None, "unknown")
        selected.append(SelectedWebhook(uid=uid, name=name, state=state))
    return sorted(selected, key=lambda webhook: (webhook.name is None, webhook.name or "", webhook.uid))


def all_webhooks(context: PageContext, may: MayView) -> WebhooksByUid:
    """The factory's webhooks, including deleted webhooks."""
    return {webhook.uid: webhook for webhook in context.management.webhooks.all(may, with_deleted=True)}


def existing_webhooks(webhooks_by_uid: WebhooksByUid) -> list[Webhook]:
    """The webhooks that are not deleted, by name."""
    webhooks = (webhook for webhook in webhooks_by_uid.values() if webhook.state is not WebhookState.DELETED)
    return sorted(webhooks, key=lambda webhook: webhook.name)


def filter_text(conditions: DeliveryFilter) -> str:
    return filter_editor.format_filter(conditions.payload.source) if conditions.payload is not None else ""


def refuse_if_defined_by_files(may: MayManage) -> None:
    if may.factory.defined_by_files:
        raise Conflict(
            f"Definition files define factory {may.factory.name!r}. Edit automations/<name>/automation.md and run "
            "`hookmill apply`. You can still enable and disable automations here."
        )


def redirect_to_automation(context: PageContext, automation: Automation, flash: str, **query: str) -> Response:
    assert context.factory is not None, "the page is about a factory"
    return context.redirect("f", context.factory.name, "automations", automation.id, flash=flash, **query)


_LIST_PATH: Final = "/f/{factory}/automations"
_AUTOMATION_PATH: Final = "/f/{factory}/automations/{automation}"
PAGES: Final = (
    Page("GET", _LIST_PATH, all_automations, require_viewer),
    Page("GET", _AUTOMATION_PATH, automation_page, require_viewer),
    Page("GET", f"{_AUTOMATION_PATH}/runs", runs, require_viewer, is_background=True),
    Page("POST", f"{_AUTOMATION_PATH}/runs", replay, require_manager),
    Page("GET", f"{_AUTOMATION_PATH}/run", run_form, require_manager),
    Page("POST", f"{_AUTOMATION_PATH}/run", run_now, require_manager),
    Page("POST", f"{_AUTOMATION_PATH}/enable", enable, require_manager),
    Page("POST", f"{_AUTOMATION_PATH}/disable", disable, require_manager),
    Page("GET", f"{_AUTOMATION_PATH}/delete", confirm_deletion, require_manager),
    Page("POST", f"{_AUTOMATION_PATH}/delete", delete, require_manager),
)
