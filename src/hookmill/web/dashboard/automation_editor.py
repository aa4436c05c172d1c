"""The page for editing an automation, with the filter editor. Invalid input is shown again, never lost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, Self

from starlette.responses import Response

from hookmill.domain.automation import SCHEDULE_EVENT, SCHEDULE_PROVIDER, Automation
from hookmill.domain.errors import Changed, Conflict, Invalid, LimitReached
from hookmill.domain.filters import OPERATORS
from hookmill.domain.ids import WebhookUid
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import PACKAGE_RUNNER
from hookmill.domain.run_policy import NO_POLICY, Priority, RunPolicy, WhenBusy, policy_from_json
from hookmill.domain.schedule import CatchUp
from hookmill.domain.webhook import WebhookState
from hookmill.web.dashboard import filter_editor, pages
from hookmill.web.dashboard.access import managing
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.automations import (
    SelectedWebhook,
    WebhooksByUid,
    all_webhooks,
    existing_webhooks,
    filter_text,
    refuse_if_defined_by_files,
    selected_webhooks,
    to_automation,
)
from hookmill.web.dashboard.filter_editor import CannotAdd, ParsedTriggers, Sample
from hookmill.web.dashboard.page_context import PageContext

ADD_SCHEDULE: Final = "add-schedule"
"""The button that adds a row for a schedule."""

pages.FLASH_MESSAGES.update(
    {
        "automation-created": "Automation created. New matching events start runs.",
        "automation-created-unfiltered": "Automation created. It has no filter, so every event starts a run.",
        "automation-created-scheduled": "Automation created. Its schedules start runs.",
        "automation-created-disabled": "Automation created. It is disabled, so nothing starts it yet.",
        "automation-changed": "Automation saved. Runs in progress keep the previous version.",
        "automation-unchanged": "No changes to save.",
    }
)


@dataclass(slots=True, kw_only=True)
class PolicyDraft:
    """The fields of the run policy, as typed. The fields of a retry have the names that they have in JSON."""

    concurrency_limit: str = ""
    concurrency_key: str = ""
    """The JSON pointers, one on each line."""
    when_busy: str = WhenBusy.QUEUE.value
    debounce_seconds: str = ""
    debounce_max_seconds: str = ""
    priority: str = Priority.NORMAL.value
    max_running: str = ""
    attempts: str = ""
    backoff_seconds: str = ""
    max_backoff_seconds: str = ""
    exit_codes: str = ""
    pause_after_failures: str = ""

    @classmethod
    def of(cls, policy: RunPolicy) -> Self:
        concurrency, debounce, retry = policy.concurrency, policy.debounce, policy.retry
        return cls(
            concurrency_limit=str(concurrency.limit) if concurrency is not None else "",
            concurrency_key="\n".join(concurrency.key_pointers) if concurrency is not None else "",
            when_busy=concurrency.when_busy.value if concurrency is not None else WhenBusy.QUEUE.value,
            debounce_seconds=str(debounce.seconds) if debounce is not None else "",
            debounce_max_seconds=str(debounce.max_seconds) if debounce is not None else "",
            priority=policy.priority.value,
            max_running=_as_field_text(policy.max_running),
            attempts=_as_field_text(retry.attempts if retry is not None else None),
            backoff_seconds=_as_field_text(retry.backoff_seconds if retry is not None else None),
            max_backoff_seconds=_as_field_text(retry.max_backoff_seconds if retry is not None else None),
            exit_codes=", ".join(map(str, retry.exit_codes)) if retry is not None else "",
            pause_after_failures=_as_field_text(policy.pause_after_failures),
        )

    def as_json(self) -> dict[str, Any]:
        """The JSON fields of the policy. A text that is not a number stays a text, and is refused later."""
        pointers = filter_editor.lines_in(self.concurrency_key)
        concurrency: dict[str, Any] | None = None
        if self.concurrency_limit or pointers:
            limit = {"limit": _number(self.concurrency_limit)} if self.concurrency_limit else {}
            concurrency = {"key": pointers, "when_busy": self.when_busy, **limit}
        debounce: dict[str, Any] | None = None
        if self.debounce_seconds or self.debounce_max_seconds:
            debounce = {"seconds": _number(self.debounce_seconds)}
            if self.debounce_max_seconds:
                debounce["max_seconds"] = _number(self.debounce_max_seconds)
        retry: dict[str, Any] = {
            name: _number(typed)
            for name in ("attempts", "backoff_seconds", "max_backoff_seconds")
            if (typed := getattr(self, name))
        }
        if self.exit_codes:
            retry["exit_codes"] = [_number(code.strip()) for code in self.exit_codes.split(",")]
        return {
            "concurrency": concurrency,
            "debounce": debounce,
            "priority": self.priority,
            "max_running": _number(self.max_running) if self.max_running else None,
            "retry": retry or None,
            "pause_after_failures": _number(self.pause_after_failures) if self.pause_after_failures else None,
        }

    @property
    def parsed(self) -> RunPolicy:
        """The policy, or no policy if the fields are unusable. Saving them then shows the problem."""
        try:
            return policy_from_json(self.as_json())
        except Invalid:
            return NO_POLICY

    @property
    def has_start_rules(self) -> bool:
        default = PolicyDraft()
        return any(getattr(self, name) != getattr(default, name) for name in _START_FIELDS)

    @property
    def has_failure_rules(self) -> bool:
        return bool(self.attempts or self.backoff_seconds or self.exit_codes or self.pause_after_failures)


_START_FIELDS: Final = (
    "concurrency_limit",
    "concurrency_key",
    "when_busy",
    "debounce_seconds",
    "debounce_max_seconds",
    "priority",
    "max_running",
)


def _as_field_text(number: int | None) -> str:
    return str(number) if number is not None else ""


@dataclass(slots=True, kw_only=True)
class ScheduleDraft:
    """One row of the form's schedules, as typed."""

    name: str = ""
    cron: str = ""
    timezone: str = ""
    catch_up: str = CatchUp.ONCE.value

    @property
    def is_blank(self) -> bool:
        return not (self.name or self.cron)

    def as_json(self) -> dict[str, str]:
        """The trigger's schedule. An empty time zone is UTC."""
        timezone = {"timezone": self.timezone} if self.timezone else {}
        return {"name": self.name, "cron": self.cron, "catch_up": self.catch_up, **timezone}


def _number(typed: str) -> int | str:
    return int(typed) if typed.isascii() and typed.isdigit() and len(typed) < 10 else typed


@dataclass(slots=True, kw_only=True)
class Draft:
    """The fields of the form, as typed."""

    name: str = ""
    prompt: str = ""
    runner: str = ""
    enabled: bool = True
    is_list: bool = False
    """Whether the form has a JSON list of triggers, instead of webhooks and a filter for one trigger."""
    webhooks: list[str] = field(default_factory=list)
    filter: str = ""
    events: str = ""
    """The event types, one on each line."""
    triggers: str = ""
    delivery: str = ""
    version: str = ""
    policy: PolicyDraft = field(default_factory=PolicyDraft)
    schedules: list[ScheduleDraft] = field(default_factory=list)
    """Without those in a JSON list of triggers."""

    def parsed_triggers(self) -> ParsedTriggers:
        if self.is_list:
            return filter_editor.read_triggers(self.triggers)
        return filter_editor.read_filter(self.filter, self.webhooks, self.events)

    def triggers_json(self, parsed: ParsedTriggers) -> list[Any]:
        """All triggers of the automation. Without webhooks, only its schedules start it."""
        if self.is_list:
            return [
                *(trigger.as_json() for trigger in parsed.triggers),
                *(schedule.as_json() for schedule in parsed.schedules),
            ]
        deliveries = [trigger.as_json() for trigger in parsed.triggers] if self.webhooks else []
        schedules = [
            {"provider": SCHEDULE_PROVIDER, "event": SCHEDULE_EVENT, "schedule": schedule.as_json()}
            for schedule in self.schedules
        ]
        return [*deliveries, *schedules]

    def selected_webhooks(self, parsed: ParsedTriggers) -> list[str]:
        if self.is_list:
            return list(dict.fromkeys(uid for trigger in parsed.triggers for uid in trigger.webhook_ids))
        return self.webhooks


def draft_of(automation: Automation, *, as_list: bool) -> Draft:
    """The initial form. An automation with several webhook triggers is edited as a list."""
    is_list = as_list or len(automation.triggers) > 1 or bool(automation.unreadable_triggers)
    only = automation.triggers[0] if automation.triggers and not is_list else None
    return Draft(
        name=automation.name,
        prompt=automation.prompt,
        runner=automation.runner,
        enabled=automation.enabled,
        is_list=is_list,
        webhooks=list(only.webhook_ids) if only is not None else [],
        filter=filter_text(only) if only is not None else "",
        events="\n".join(only.event_types) if only is not None else "",
        triggers=filter_editor.format_filter([trigger.as_json() for trigger in automation.all_triggers])
        if is_list
        else "",
        version=str(automation.version),
        policy=PolicyDraft.of(automation.policy),
        schedules=[
            ScheduleDraft(
                name=schedule.name,
                cron=schedule.cron,
                timezone=schedule.timezone,
                catch_up=schedule.catch_up.value,
            )
            for schedule in automation.schedules
            if not is_list
        ],
    )


def new(context: PageContext, may: MayManage) -> Response:
    refuse_if_defined_by_files(may)
    existing = existing_webhooks(all_webhooks(context, may))
    picked = filter_editor.sample(context.management, may, context.query.get("delivery", ""))
    chosen = {context.query.get("webhook", ""), picked.delivery.webhook_uid if picked is not None else ""}
    webhooks = [webhook.uid for webhook in existing if webhook.uid in chosen or len(existing) == 1]
    draft = Draft(
        runner=context.management.config.default_runner,
        webhooks=list(webhooks),
        delivery=context.query.get("delivery", ""),
    )
    return _editor(context, may, None, draft)


def create(context: PageContext, may: MayManage) -> Response:
    refuse_if_defined_by_files(may)
    draft = _draft_sent(context)
    if _is_preview(context):
        return _preview(context, may, None, draft)
    parsed = draft.parsed_triggers()
    problems = _problems_of_triggers(draft, parsed)
    if not problems:
        try:
            automation = context.management.automations.create(
                may,
                draft.name,
                prompt=draft.prompt,
                triggers=draft.triggers_json(parsed),
                runner=draft.runner,
                enabled=draft.enabled,
                policy=draft.policy.as_json(),
            )
            flash = "automation-created-unfiltered" if automation.unfiltered_webhook_uids() else "automation-created"
            if not automation.triggers:
                flash = "automation-created-scheduled"
            if not automation.enabled:
                flash = "automation-created-disabled"
            return to_automation(context, automation, flash, tested_delivery=draft.delivery)
        except (Invalid, Conflict) as error:
            problems = _problems_in(error, draft)
    return _editor(context, may, None, draft, problems=problems, status=422)


def edit(context: PageContext, may: MayManage) -> Response:
    refuse_if_defined_by_files(may)
    automation = context.management.automations.get(may, context.parameters["automation"])
    draft = draft_of(automation, as_list=context.query.get("triggers") == "list")
    draft.delivery = context.query.get("delivery", "")
    return _editor(context, may, automation, draft)


def change(context: PageContext, may: MayManage) -> Response:
    refuse_if_defined_by_files(may)
    automation = context.management.automations.get(may, context.parameters["automation"])
    draft = _draft_sent(context)
    if _is_preview(context):
        return _preview(context, may, automation, draft)
    parsed = draft.parsed_triggers()
    problems = _problems_of_triggers(draft, parsed)
    if not problems:
        try:
            flash = _save(context, may, automation.id, draft, parsed)
            tested_delivery = draft.delivery if flash == "automation-changed" else ""
            return to_automation(context, automation, flash, tested_delivery=tested_delivery)
        except Changed as error:
            draft.version = str(context.management.automations.get(may, automation.id).version)
            return _editor(context, may, automation, draft, problems={"": str(error)}, status=409)
        except (Invalid, Conflict) as error:
            problems = _problems_in(error, draft)
    return _editor(context, may, automation, draft, problems=problems, status=422)


def _save(context: PageContext, may: MayManage, named: str, draft: Draft, parsed: ParsedTriggers) -> str:
    """Save the changes as the next version. Raises `Changed` if another version was saved since the form was loaded."""
    automations = context.management.automations
    with context.management.one_transaction(may):
        before = automations.get(may, named)
        if draft.version != str(before.version):
            raise Changed(
                f"Version {before.version} of this automation was saved while you were editing. Your changes are "
                "not saved. Compare the versions, then save again to overwrite it."
            )
        after = automations.change(
            may,
            named,
            new_name=draft.name,
            # Unchanged fields stay, even if their values would no longer be accepted.
            prompt=draft.prompt if draft.prompt != _with_plain_breaks(before.prompt) else None,
            runner=draft.runner if draft.runner != before.runner else None,
            triggers=draft.triggers_json(parsed),
            policy=draft.policy.as_json(),
        )
    return "automation-changed" if after.version != before.version else "automation-unchanged"


def _is_preview(context: PageContext) -> bool:
    """Whether the form was sent only to test its filter."""
    is_test = context.form["add"] or context.form["add_event"] or context.form["choose"] or context.form["pick"]
    return context.is_htmx or context.form["do"] in ("check", ADD_SCHEDULE) or bool(is_test)


def _draft_sent(context: PageContext) -> Draft:
    sent = context.form
    return Draft(
        name=sent["name"],
        prompt=_with_plain_breaks(sent["prompt"]),
        runner=sent["runner"],
        enabled=sent.is_checked("enabled"),
        is_list=sent.is_checked("triggers"),
        webhooks=list(dict.fromkeys(sent.all("webhook"))),
        filter=_with_plain_breaks(sent["filter"]),
        events=_with_plain_breaks(sent["events"]),
        triggers=_with_plain_breaks(sent["triggers"]),
        delivery=sent["pick"] or sent["delivery"],
        version=sent["version"],
        policy=PolicyDraft(
            concurrency_limit=sent["limit"].strip(),
            concurrency_key=_with_plain_breaks(sent["key"]),
            when_busy=sent["when_busy"] or WhenBusy.QUEUE.value,
            debounce_seconds=sent["seconds"].strip(),
            debounce_max_seconds=sent["max_seconds"].strip(),
            priority=sent["priority"] or Priority.NORMAL.value,
            **{name: sent[name].strip() for name in _POLICY_NUMBERS},
        ),
        schedules=[schedule for schedule in _schedules_sent(context) if not schedule.is_blank],
    )


def _schedules_sent(context: PageContext) -> Iterator[ScheduleDraft]:
    sent = context.form
    columns = (sent.all(f"schedule_{name}") for name in ("name", "cron", "timezone", "catch_up"))
    for name, cron, timezone, catch_up in zip_longest(*columns, fillvalue=""):
        yield ScheduleDraft(
            name=name.strip(), cron=cron.strip(), timezone=timezone.strip(), catch_up=catch_up or CatchUp.ONCE.value
        )


_POLICY_NUMBERS: Final = (
    "max_running",
    "attempts",
    "backoff_seconds",
    "max_backoff_seconds",
    "exit_codes",
    "pause_after_failures",
)


def _with_plain_breaks(typed: str) -> str:
    """The text with LF line breaks. Browsers send CRLF."""
    return typed.replace("\r\n", "\n").replace("\r", "\n")


def _problems_of_triggers(draft: Draft, parsed: ParsedTriggers) -> dict[str, str]:
    """Problems of the triggers by field. The editor also shows each problem of the text in detail."""
    problems = {}
    if not parsed.is_usable:
        problems["filter"] = "The filter has errors." if not draft.is_list else "The triggers have errors."
    if draft.is_list or draft.webhooks:
        return problems
    if not draft.schedules:
        problems["webhooks"] = "Select at least one webhook, or add a schedule. They start this automation."
    elif draft.filter.strip() or draft.events.strip():
        problems["webhooks"] = "Select a webhook, or remove the event types and the payload filter."
    return problems


def _problems_in(error: Invalid | Conflict, draft: Draft) -> dict[str, str]:
    """The error by the field of the form that it belongs to. The empty field is the whole form."""
    if isinstance(error, LimitReached):
        return {"": str(error)}
    pointer = next((fault.pointer for fault in error.faults), "") if isinstance(error, Invalid) else ""
    if "/schedule" in pointer and not draft.is_list:
        number = int(pointer.split("/")[2]) + (0 if draft.webhooks else 1)
        return {"schedules": f"Schedule {number}: {str(error).removeprefix(f'{pointer}: ')}"}
    if pointer.startswith("/triggers") and not draft.is_list:
        return {"webhooks" if pointer.endswith("/webhook_ids") else "filter": str(error)}
    return {_FIELDS.get(pointer, "filter"): str(error)}


_FIELDS: Final = {
    "": "name",
    "/prompt": "prompt",
    "/runner": "runner",
    "/concurrency/limit": "limit",
    "/concurrency/key": "key",
    "/concurrency/when_busy": "limit",
    "/debounce/seconds": "seconds",
    "/debounce/max_seconds": "max_seconds",
    "/priority": "priority",
    "/max_running": "max_running",
    "/retry": "attempts",
    "/retry/attempts": "attempts",
    "/retry/backoff_seconds": "backoff_seconds",
    "/retry/max_backoff_seconds": "max_backoff_seconds",
    "/retry/exit_codes": "exit_codes",
    "/pause_after_failures": "pause_after_failures",
}
"""The form's fields by the pointers of errors. An error without a pointer is about the name."""


def _preview(context: PageContext, may: MayManage, automation: Automation | None, draft: Draft) -> Response:
    """The form as it was sent, with the results of its filter."""
    if draft.is_list:
        return _editor(context, may, automation, draft)
    notice = ""
    chosen = context.form["choose"]
    if context.form["add"]:
        picked = filter_editor.sample(context.management, may, draft.delivery)
        try:
            if picked is None:
                raise CannotAdd("The payload of this delivery is no longer stored. Select another delivery.")
            draft.filter = filter_editor.with_field(draft.filter, picked.body, context.form["add"])
            # A clicked field implies that the delivery's webhook is selected.
            if not draft.webhooks:
                chosen = picked.delivery.webhook_uid
        except CannotAdd as error:
            notice = str(error)
    if context.form["add_event"]:
        draft.events = filter_editor.with_event(draft.events, context.form["add_event"])
    newly_selected = _choosable(chosen, draft, all_webhooks(context, may))
    if newly_selected is not None:
        draft.webhooks.append(newly_selected.uid)
    return _editor(context, may, automation, draft, notice=notice, newly_selected=newly_selected)


def _choosable(uid: str, draft: Draft, by_uid: WebhooksByUid) -> SelectedWebhook | None:
    """The webhook with this uid, unless it is already selected, or deleted."""
    webhook = by_uid.get(WebhookUid(uid))
    if webhook is None or webhook.state is WebhookState.DELETED or uid in draft.webhooks:
        return None
    return SelectedWebhook(uid=webhook.uid, name=webhook.name, state=webhook.state)


def _editor(
    context: PageContext,
    may: MayManage,
    automation: Automation | None,
    draft: Draft,
    *,
    problems: Mapping[str, str] | None = None,
    notice: str = "",
    newly_selected: SelectedWebhook | None = None,
    status: int = 200,
) -> Response:
    """The page, or for htmx only the results of the filter."""
    by_uid = all_webhooks(context, may)
    parsed = draft.parsed_triggers()
    wanted = [uid for uid in draft.selected_webhooks(parsed) if WebhookUid(uid) in by_uid]
    # If there was no delivery to test, one may have arrived.
    refreshes_samples = bool(context.form["changed"] or context.form["pick"] or not draft.delivery)
    sample_choices: Sequence[filter_editor.SampleChoice] = ()
    if refreshes_samples or not context.is_htmx:
        sample_choices = filter_editor.sample_choices(context.management, may, wanted, draft.delivery)
    picked = _picked(context, may, draft, sample_choices, by_uid)
    tree = filter_editor.tree(picked.body, parsed) if picked is not None else None
    values: dict[str, Any] = {
        "draft": draft,
        "parsed": parsed,
        "sample": picked,
        "tree": tree,
        "sample_choices": sample_choices,
        "has_chosen": bool(wanted),
        "outcome": filter_editor.outcome(context.management, may, parsed, picked, by_uid, draft.policy.parsed),
        "automation": automation,
        "notice": notice,
        "newly_selected": newly_selected,
        "not_chosen": _choosable(picked.delivery.webhook_uid, draft, by_uid) if picked and not draft.is_list else None,
        "adds": bool(context.form["add"]),
        "adds_event": bool(context.form["add_event"]),
        "is_event_chosen": picked is not None and picked.delivery.event in filter_editor.lines_in(draft.events),
        "refreshes_samples": refreshes_samples,
        "fields_max": filter_editor.FIELDS_MAX,
        "operators": OPERATORS.values(),
    }
    if context.is_htmx:
        return context.page("parts/filter-outcome.html", is_part=True, **values)
    runners = list(context.management.config.runner_names)
    return context.page(
        "automation-editor.html",
        status=status,
        may=may,
        is_part=False,
        problems=problems or {},
        choices=_choices(draft.webhooks, by_uid),
        runners=runners if not draft.runner or draft.runner in runners else [*runners, draft.runner],
        configured=runners,
        package_runner=PACKAGE_RUNNER,
        priorities=list(Priority),
        schedules=[*draft.schedules, ScheduleDraft()],
        add_schedule=ADD_SCHEDULE,
        **values,
    )


def _picked(
    context: PageContext,
    may: MayView,
    draft: Draft,
    sample_choices: Sequence[filter_editor.SampleChoice],
    by_uid: WebhooksByUid,
) -> Sample | None:
    """The delivery to test the draft on: the selected one, or else the newest, preferably of a webhook that is not
    deleted."""
    picked = filter_editor.sample(context.management, may, draft.delivery) if draft.delivery else None
    if picked is None and sample_choices:
        live = (
            choice.id
            for choice in sample_choices
            if by_uid[choice.delivery.webhook_uid].state is not WebhookState.DELETED
        )
        draft.delivery = next(live, sample_choices[0].id)
        picked = filter_editor.sample(context.management, may, draft.delivery)
    return picked


def _choices(chosen: Sequence[str], by_uid: WebhooksByUid) -> list[tuple[SelectedWebhook, bool]]:
    """The webhooks to select from. Selected webhooks stay in the list, even if they are deleted."""
    live = [
        (SelectedWebhook(uid=webhook.uid, name=webhook.name, state=webhook.state), webhook.uid in chosen)
        for webhook in existing_webhooks(by_uid)
    ]
    offered = {webhook.uid for webhook, _ in live}
    return [
        *live,
        *((missing, True) for missing in selected_webhooks([uid for uid in chosen if uid not in offered], by_uid)),
    ]


PAGES: Final = (
    Page("GET", "/f/{factory}/automations/new", new, managing),
    Page("POST", "/f/{factory}/automations/new", create, managing),
    Page("GET", "/f/{factory}/automations/{automation}/edit", edit, managing),
    Page("POST", "/f/{factory}/automations/{automation}/edit", change, managing),
)
