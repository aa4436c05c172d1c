"""Automations: the list, one of them, switching and deleting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from hookmill.domain.automation import Automation, Trigger
from hookmill.domain.errors import Conflict
from hookmill.domain.ids import AutomationId, WebhookUid
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import Run
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.web.dashboard import filter_editor, pages
from hookmill.web.dashboard.access import managing, viewing
from hookmill.web.dashboard.door import Page
from hookmill.web.dashboard.visit import Visit

RUNS_LOOKED_AT: Final = 100
"""How many of the factory's newest runs are searched for those of an automation."""

pages.SAID.update(
    {
        "automation-enabled": "The automation is enabled. Matching deliveries start a run of it.",
        "automation-disabled": "The automation is disabled. Nothing starts it; runs under way go on.",
        "automation-deleted": "The automation is deleted. It starts nothing any more; its runs stay.",
    }
)

Known = Mapping[WebhookUid, Webhook]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """A webhook as an automation names it: by its uid, which may be nobody's."""

    uid: str
    name: str | None
    state: str

    @property
    def is_alive(self) -> bool:
        return self.state == WebhookState.ENABLED


def all_automations(visit: Visit, may: MayView) -> Response:
    every = visit.management.automations.all(may)
    known = known_webhooks(visit, may)
    last_runs: dict[AutomationId, Run] = {}
    for run in visit.management.runs.newest(may, limit=RUNS_LOOKED_AT):
        last_runs.setdefault(run.automation_id, run)
    rows = [(each, selected_webhooks(each.selected_webhooks(), known), last_runs.get(each.id)) for each in every]
    return visit.page(
        "automations.html", may=may, rows=rows, webhooks=live_webhooks(known), runs_looked_at=RUNS_LOOKED_AT
    )


def one(visit: Visit, may: MayView) -> Response:
    automation = visit.management.automations.get(may, visit.parameters["automation"])
    known = known_webhooks(visit, may)
    runs = visit.management.runs.newest(may, limit=RUNS_LOOKED_AT)
    return visit.page(
        "automation.html",
        may=may,
        automation=automation,
        triggers=[(selected_webhooks(each.webhook_ids, known), filter_text(each)) for each in automation.triggers],
        warnings=visit.management.automations.warnings(may, automation),
        has_runner=automation.runner in visit.management.house.runner_names,
        runs=[run for run in runs if run.automation_id == automation.id][:20],
        runs_looked_at=RUNS_LOOKED_AT,
    )


# Switching and deleting


def enable(visit: Visit, may: MayManage) -> Response:
    return _switch(visit, may, enabled=True)


def disable(visit: Visit, may: MayManage) -> Response:
    return _switch(visit, may, enabled=False)


def _switch(visit: Visit, may: MayManage, *, enabled: bool) -> Response:
    automation = visit.management.automations.set_enabled(may, visit.parameters["automation"], enabled)
    return to_automation(visit, automation, "automation-enabled" if enabled else "automation-disabled")


def confirm_deletion(visit: Visit, may: MayManage) -> Response:
    refuse_where_files_rule(may)
    automation = visit.management.automations.get(may, visit.parameters["automation"])
    selected = selected_webhooks(automation.selected_webhooks(), known_webhooks(visit, may))
    return visit.page("automation-delete.html", may=may, automation=automation, selected=selected)


def delete(visit: Visit, may: MayManage) -> Response:
    visit.management.automations.delete(may, visit.parameters["automation"])
    return visit.go("f", may.factory.name, "automations", said="automation-deleted")


def selected_webhooks(uids: Sequence[str] | frozenset[WebhookUid], known: Known) -> list[Selected]:
    found = []
    for uid in uids:
        webhook = known.get(WebhookUid(uid))
        name, state = (webhook.name, webhook.state.value) if webhook is not None else (None, "unknown")
        found.append(Selected(uid=uid, name=name, state=state))
    return sorted(found, key=lambda each: (each.name is None, each.name or "", each.uid))


def known_webhooks(visit: Visit, may: MayView) -> Known:
    return {each.uid: each for each in visit.management.webhooks.all(may, with_deleted=True)}


def live_webhooks(known: Known) -> list[Webhook]:
    living = (each for each in known.values() if each.state is not WebhookState.DELETED)
    return sorted(living, key=lambda each: each.name)


def filter_text(trigger: Trigger) -> str:
    return filter_editor.written(trigger.payload.source) if trigger.payload is not None else ""


def refuse_where_files_rule(may: MayManage) -> None:
    if may.factory.defined_by_files:
        raise Conflict(
            f"Factory {may.factory.name!r} is defined by files: write automations/<name>/automation.md there, and run "
            "`hookmill apply`. Enabling and disabling work here too."
        )


def to_automation(visit: Visit, automation: Automation, said: str) -> Response:
    assert visit.factory is not None, "the page is about a factory"
    return visit.go("f", visit.factory.name, "automations", automation.id, said=said)


_ALL: Final = "/f/{factory}/automations"
_ONE: Final = "/f/{factory}/automations/{automation}"
PAGES: Final = (
    Page("GET", _ALL, all_automations, viewing),
    Page("GET", _ONE, one, viewing),
    Page("POST", f"{_ONE}/enable", enable, managing),
    Page("POST", f"{_ONE}/disable", disable, managing),
    Page("GET", f"{_ONE}/delete", confirm_deletion, managing),
    Page("POST", f"{_ONE}/delete", delete, managing),
)
