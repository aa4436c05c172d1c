"""The page for editing an automation, with the filter editor. Invalid input is shown again, never lost."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from starlette.responses import Response

from hookmill.domain.automation import Automation, AutomationSpec, TriggerList
from hookmill.domain.errors import Changed, Conflict, Fault, Invalid, LimitReached
from hookmill.domain.filters import OPERATORS
from hookmill.domain.ids import WebhookUid
from hookmill.domain.json_pointer import steps_of
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.results import ResultKind, json_of_text
from hookmill.domain.run import PACKAGE_RUNNER
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_policy import NO_POLICY, Priority, RunPolicy
from hookmill.domain.spec import read
from hookmill.domain.webhook import WebhookState
from hookmill.web.dashboard import filter_editor, pages
from hookmill.web.dashboard.access import require_manager
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.automations import (
    SelectedWebhook,
    WebhooksByUid,
    all_webhooks,
    existing_webhooks,
    filter_text,
    redirect_to_automation,
    refuse_if_defined_by_files,
    selected_webhooks,
)
from hookmill.web.dashboard.filter_editor import CannotToggle, ParsedTriggers, Sample
from hookmill.web.dashboard.page_context import PageContext, SubmittedForm
from hookmill.web.dashboard.spec_form import blank, json_of, number_or_text, texts_of

ADD_SCHEDULE: Final = "add-schedule"
"""The value of the button that adds a row for a schedule."""
ADD_FIELD: Final = "add-field"
"""The value of the button that adds a row for a field."""

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


START_RULES: Final = ("/concurrency", "/debounce", "/priority", "/max_running")
"""The fields of the policy about the start of runs."""
FAILURE_RULES: Final = ("/retry", "/pause_after_failures")
REPOSITORY: Final = "/workspace/repository"


_CONTROLS: Final = {
    pointer: text for pointer, text in blank(RunOptions).items() if pointer not in ("/fields", "/secrets", "/results")
}
"""The initial texts of the controls that have the name of their JSON pointer."""
SCHEDULE_COLUMNS: Final = ("name", "cron", "timezone", "catch_up")
FIELD_COLUMNS: Final = ("name", "pointer", "max_characters")
Row = dict[str, str]
"""The texts of a schedule or of a field, by column."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """The fields of the form, as typed."""

    name: str = ""
    prompt: str = ""
    runner: str = ""
    enabled: bool = True
    """Only for a new automation: editing does not change it."""
    has_trigger_list: bool = False
    """Whether the form has a JSON list of triggers, instead of webhooks and a filter for one trigger."""
    webhook_uids: list[str] = field(default_factory=list)
    filter: str = ""
    events: str = ""
    """The event types, one on each line."""
    triggers: str = ""
    """The JSON list of triggers."""
    delivery_id: str = ""
    """The delivery on which the draft is tested."""
    version: str = ""
    """The version of the automation that the form was loaded with."""
    texts: dict[str, str] = field(default_factory=_CONTROLS.copy)
    """The run policy and the workspace, by pointer. Without a repository, runs get no workspace."""
    schedules: list[Row] = field(default_factory=list)
    """The rows of the form. They are empty if the form has a JSON list of triggers."""
    fields: list[Row] = field(default_factory=list)
    secrets: str = ""
    """The secrets, separated by spaces or line breaks."""
    results: str = ""
    """The results, one on each line: `KIND=DESTINATION`, `KIND=DESTINATION=CONTEXT` or JSON."""

    def parsed_triggers(self) -> ParsedTriggers:
        if self.has_trigger_list:
            return filter_editor.read_triggers(self.triggers)
        return filter_editor.read_filter(self.filter, self.webhook_uids, self.events)

    def as_json(self) -> dict[str, Any]:
        """The JSON of the automation. A blank field is None. Raises `Invalid` if a text has none."""
        texts = self.texts
        if not texts[REPOSITORY]:
            texts = {pointer: text for pointer, text in texts.items() if not pointer.startswith("/workspace")}
        return {
            **json_of(RunOptions, texts),
            "name": self.name,
            "prompt": self.prompt,
            "runner": self.runner or None,
            "triggers": self._triggers_json(self.parsed_triggers()),
            "fields": self._fields_json(),
            "secrets": self.secrets.split() or None,
            "results": [_result_json(number, line) for number, line in enumerate(self.results.split("\n")) if line]
            or None,
        }

    def _triggers_json(self, parsed: ParsedTriggers) -> list[Any]:
        """All triggers of the automation. Without webhooks, only its schedules start it."""
        has_parsed = self.has_trigger_list or bool(self.webhook_uids)
        triggers: list[Any] = TriggerList(triggers=parsed.triggers).as_json()["triggers"] if has_parsed else []
        optional = ("timezone", "catch_up")
        return triggers + [
            {
                "provider": "schedule",
                "event": "cron_fired",
                "schedule": row | {name: row[name] or None for name in optional},
            }
            for row in self.schedules
        ]

    def _fields_json(self) -> dict[str, Any] | None:
        fields: dict[str, Any] = {}
        for row in self.fields:
            if row["name"] in fields:
                raise Invalid(f"Two fields are named {row['name']!r}. Rename one.", pointer="/fields")
            maximum = number_or_text(row["max_characters"]) if row["max_characters"] else None
            fields[row["name"]] = {"pointer": row["pointer"], "max_characters": maximum}
        return fields or None

    def selected_uids(self, parsed: ParsedTriggers) -> list[str]:
        """The uids of the webhooks that any trigger selects."""
        if self.has_trigger_list:
            return list(dict.fromkeys(uid for each in parsed.filters for uid in each.webhook_ids))
        return self.webhook_uids


def _result_json(number: int, line: str) -> Any:
    """The JSON of one line of the results. Raises `Invalid` if it has none."""
    source: Any = None
    if line.startswith("{"):
        with suppress(ValueError, RecursionError):
            source = json.loads(line)
    else:
        source = json_of_text(line)
    if source is None:
        raise Invalid(
            "Write KIND=DESTINATION, such as github_comment=github, or JSON as in the API.",
            pointer=f"/results/{number}",
        )
    return source


def draft_of(automation: Automation, *, as_trigger_list: bool) -> Draft:
    """The initial form. Several webhook triggers are edited as a JSON list."""
    has_trigger_list = as_trigger_list or len(automation.filters) > 1
    only_filter = automation.filters[0] if automation.filters and not has_trigger_list else None
    return Draft(
        name=automation.name,
        prompt=_with_lf_line_breaks(automation.prompt),
        runner=automation.runner,
        enabled=automation.enabled,
        has_trigger_list=has_trigger_list,
        webhook_uids=list(only_filter.webhook_ids) if only_filter is not None else [],
        filter=filter_text(only_filter) if only_filter is not None else "",
        events="\n".join(only_filter.event) if only_filter is not None else "",
        triggers=filter_editor.format_filter(automation.spec.as_json().get("triggers", [])) if has_trigger_list else "",
        version=str(automation.version),
        texts={pointer: text for pointer, text in texts_of(automation.spec).items() if pointer in _CONTROLS},
        schedules=[
            {name: str(getattr(schedule, name)) for name in SCHEDULE_COLUMNS}
            for schedule in automation.schedules
            if not has_trigger_list
        ],
        fields=[
            {"name": name, "pointer": source.pointer, "max_characters": str(source.max_characters)}
            for name, source in automation.run_fields.items()
        ],
        secrets=" ".join(automation.secrets),
        results="\n".join(result.as_text() for result in automation.results),
    )


def new(context: PageContext, may: MayManage) -> Response:
    refuse_if_defined_by_files(may)
    existing = existing_webhooks(all_webhooks(context, may))
    sample = filter_editor.load_sample(context.management, may, context.query.get("delivery", ""))
    requested_uids = {context.query.get("webhook", ""), sample.delivery.webhook_uid if sample is not None else ""}
    selected_uids = [webhook.uid for webhook in existing if webhook.uid in requested_uids or len(existing) == 1]
    draft = Draft(
        runner=context.management.config.default_runner,
        webhook_uids=list(selected_uids),
        delivery_id=context.query.get("delivery", ""),
    )
    return _editor_page(context, may, None, draft)


def create(context: PageContext, may: MayManage) -> Response:
    refuse_if_defined_by_files(may)
    draft = _submitted_draft(context)
    if _is_preview(context):
        return _preview(context, may, None, draft)
    problems = _trigger_problems(draft)
    if not problems:
        try:
            spec = read(AutomationSpec, {**draft.as_json(), "enabled": draft.enabled})
            automation = context.management.automations.create(may, spec)
            flash = "automation-created-unfiltered" if automation.unfiltered_webhook_uids() else "automation-created"
            if not automation.filters:
                flash = "automation-created-scheduled"
            if not automation.enabled:
                flash = "automation-created-disabled"
            return redirect_to_automation(context, automation, flash, tested_delivery=draft.delivery_id)
        except (Invalid, Conflict) as error:
            problems = _problems_by_field(error, draft)
    return _editor_page(context, may, None, draft, problems=problems, status=422)


def edit(context: PageContext, may: MayManage) -> Response:
    refuse_if_defined_by_files(may)
    automation = context.management.automations.get(may, context.parameters["automation"])
    draft = draft_of(automation, as_trigger_list=context.query.get("triggers") == "list")
    draft.delivery_id = context.query.get("delivery", "")
    return _editor_page(context, may, automation, draft)


def change(context: PageContext, may: MayManage) -> Response:
    refuse_if_defined_by_files(may)
    automation = context.management.automations.get(may, context.parameters["automation"])
    draft = _submitted_draft(context)
    if _is_preview(context):
        return _preview(context, may, automation, draft)
    problems = _trigger_problems(draft)
    if not problems:
        try:
            flash = _save(context, may, automation.id, draft)
            tested_delivery = draft.delivery_id if flash == "automation-changed" else ""
            return redirect_to_automation(context, automation, flash, tested_delivery=tested_delivery)
        except Changed as error:
            draft.version = str(context.management.automations.get(may, automation.id).version)
            return _editor_page(context, may, automation, draft, problems={"": str(error)}, status=409)
        except (Invalid, Conflict) as error:
            problems = _problems_by_field(error, draft)
    return _editor_page(context, may, automation, draft, problems=problems, status=422)


def _save(context: PageContext, may: MayManage, automation_id: str, draft: Draft) -> str:
    """Save the changes as the next version, and return the key of the flash message.

    Raises `Changed` if another version was saved since the form was loaded.
    """
    automations = context.management.automations
    with context.management.one_transaction(may):
        current = automations.get(may, automation_id)
        if draft.version != str(current.version):
            raise Changed(
                f"Version {current.version} of this automation was saved while you were editing. Your changes are "
                "not saved. Compare the versions, then save again to overwrite it."
            )
        # Unchanged fields stay as they are, even if the form can't express them.
        before = draft_of(current, as_trigger_list=draft.has_trigger_list).as_json()
        changes = {name: value for name, value in draft.as_json().items() if value != before[name]}
        current.refuse_unreadable(changes)
        spec = read(AutomationSpec, current.spec.as_json() | changes)
        new_version = automations.redefine(may, automation_id, spec)
    return "automation-changed" if new_version.version != current.version else "automation-unchanged"


def _is_preview(context: PageContext) -> bool:
    """Whether the form was submitted to test its filter or to change the form, and not to save it."""
    clicked_value = context.form["add"] or context.form["add_event"] or context.form["choose"] or context.form["pick"]
    return context.is_htmx or context.form["do"] in ("check", ADD_SCHEDULE, ADD_FIELD) or bool(clicked_value)


def _submitted_draft(context: PageContext) -> Draft:
    form = context.form
    return Draft(
        name=form["name"],
        prompt=_with_lf_line_breaks(form["prompt"]),
        runner=form["runner"],
        enabled=form.is_checked("enabled"),
        has_trigger_list=form.is_checked("triggers"),
        webhook_uids=list(dict.fromkeys(form.all("webhook"))),
        filter=_with_lf_line_breaks(form["filter"]),
        events=_with_lf_line_breaks(form["events"]),
        triggers=_with_lf_line_breaks(form["triggers"]),
        delivery_id=form["pick"] or form["delivery"],
        version=form["version"],
        texts={pointer: _with_lf_line_breaks(form[pointer]) or text for pointer, text in _CONTROLS.items()},
        schedules=_submitted_rows(form, "schedule", SCHEDULE_COLUMNS),
        fields=_submitted_rows(form, "field", FIELD_COLUMNS),
        secrets=form["secrets"],
        results="\n".join(filter_editor.lines_in(form["results"])),
    )


def _submitted_rows(form: SubmittedForm, table: str, columns: Sequence[str]) -> list[Row]:
    """The rows of a table of controls. A row without a text in its first two columns is blank."""
    texts = zip_longest(*(form.all(f"{table}_{column}") for column in columns), fillvalue="")
    rows = (dict(zip(columns, map(str.strip, row), strict=True)) for row in texts)
    return [row for row in rows if row[columns[0]] or row[columns[1]]]


def _with_lf_line_breaks(field_text: str) -> str:
    """The text with LF line breaks. Browsers send CRLF."""
    return field_text.replace("\r\n", "\n").replace("\r", "\n")


def _trigger_problems(draft: Draft) -> dict[str, str]:
    """The problems of the triggers, by field of the form. The editor also shows each error in the texts."""
    problems = {}
    if not draft.parsed_triggers().is_usable:
        problems["filter"] = "The filter has errors." if not draft.has_trigger_list else "The triggers have errors."
    if draft.has_trigger_list or draft.webhook_uids:
        return problems
    if not draft.schedules:
        problems["webhooks"] = "Select at least one webhook, or add a schedule. They start this automation."
    elif draft.filter.strip() or draft.events.strip():
        problems["webhooks"] = "Select a webhook, or remove the event types and the payload filter."
    return problems


def _problems_by_field(error: Invalid | Conflict, draft: Draft) -> dict[str, str]:
    """The error texts, by the form's field that each is about. The field "" is the whole form."""
    if isinstance(error, LimitReached):
        return {"": str(error)}
    faults = error.faults if isinstance(error, Invalid) else ()
    problems: dict[str, str] = {}
    for fault in faults or [Fault("", str(error))]:
        name, text = _problem_of(fault, draft)
        problems[name] = f"{problems[name]}\n{text}" if name in problems else text
    return problems


def _problem_of(fault: Fault, draft: Draft) -> tuple[str, str]:
    """The form's field that the fault is about, and its text."""
    pointer, text = fault.pointer, fault.message
    steps = steps_of(pointer)
    match steps[:1]:
        case ["triggers"] if not draft.has_trigger_list:
            if "schedule" in steps:
                # The pointer counts all triggers from 0. If webhooks are selected, their trigger is number 0.
                number = int(steps[1]) + (0 if draft.webhook_uids else 1)
                return "schedules", f"Schedule {number}: {text}"
            return "webhooks" if "webhook_ids" in steps else "filter", text
        case ["results"] if len(steps) > 1:
            return "results", f"Line {int(steps[1]) + 1}: {text}"
        case ["name" | "prompt" | "runner" | "fields" | "secrets" | "workspace" | "results" as name]:
            return name, text
        case []:
            return "name", text
    return (_control_of(pointer) if pointer.startswith((*START_RULES, *FAILURE_RULES)) else "filter"), text


def _control_of(pointer: str) -> str:
    """The control of the run policy at this pointer, or at the list or the object that has it."""
    while pointer not in _CONTROLS:
        within = [control for control in _CONTROLS if control.startswith(f"{pointer}/")]
        pointer = within[0] if within else pointer.rpartition("/")[0]
    return pointer


def _preview(context: PageContext, may: MayManage, automation: Automation | None, draft: Draft) -> Response:
    """The form as it was submitted, with the change of the clicked button, and with the results of its filter."""
    if draft.has_trigger_list:
        return _editor_page(context, may, automation, draft)
    notice = ""
    uid_to_select = context.form["choose"]
    if context.form["add"]:
        sample = filter_editor.load_sample(context.management, may, draft.delivery_id)
        try:
            if sample is None:
                raise CannotToggle("The payload of this delivery is no longer stored. Select another delivery.")
            draft.filter = filter_editor.toggle_field(draft.filter, sample.body, context.form["add"])
            # Without a selected webhook, a click on a field also selects the webhook of the delivery.
            if not draft.webhook_uids:
                uid_to_select = sample.delivery.webhook_uid
        except CannotToggle as error:
            notice = str(error)
    if context.form["add_event"]:
        draft.events = filter_editor.toggle_event(draft.events, context.form["add_event"])
    newly_selected_webhook = _selectable_webhook(uid_to_select, draft, all_webhooks(context, may))
    if newly_selected_webhook is not None:
        draft.webhook_uids.append(newly_selected_webhook.uid)
    return _editor_page(context, may, automation, draft, notice=notice, newly_selected_webhook=newly_selected_webhook)


def _selectable_webhook(uid: str, draft: Draft, webhooks_by_uid: WebhooksByUid) -> SelectedWebhook | None:
    """The webhook with this uid, unless it is already selected, or deleted."""
    webhook = webhooks_by_uid.get(WebhookUid(uid))
    if webhook is None or webhook.state is WebhookState.DELETED or uid in draft.webhook_uids:
        return None
    return SelectedWebhook(uid=webhook.uid, name=webhook.name, state=webhook.state)


def _editor_page(
    context: PageContext,
    may: MayManage,
    automation: Automation | None,
    draft: Draft,
    *,
    problems: Mapping[str, str] | None = None,
    notice: str = "",
    newly_selected_webhook: SelectedWebhook | None = None,
    status: int = 200,
) -> Response:
    """The page, or for htmx only the results of the filter."""
    webhooks_by_uid = all_webhooks(context, may)
    parsed = draft.parsed_triggers()
    selected_uids = [uid for uid in draft.selected_uids(parsed) if WebhookUid(uid) in webhooks_by_uid]
    # If the draft has no delivery to test on, one may have arrived since the last request.
    refreshes_samples = bool(context.form["changed"] or context.form["pick"] or not draft.delivery_id)
    sample_choices: Sequence[filter_editor.SampleChoice] = ()
    if refreshes_samples or not context.is_htmx:
        sample_choices = filter_editor.sample_choices(context.management, may, selected_uids, draft.delivery_id)
    sample = _sample_to_test(context, may, draft, sample_choices, webhooks_by_uid)
    tree = filter_editor.tree(sample.body, parsed) if sample is not None else None
    values: dict[str, Any] = {
        "draft": draft,
        "parsed": parsed,
        "sample": sample,
        "tree": tree,
        "sample_choices": sample_choices,
        "has_selected_webhooks": bool(selected_uids),
        "outcome": filter_editor.evaluate_draft(
            context.management, may, parsed, sample, webhooks_by_uid, _run_policy(draft)
        ),
        "automation": automation,
        "notice": notice,
        "newly_selected_webhook": newly_selected_webhook,
        "unselected_webhook": _selectable_webhook(sample.delivery.webhook_uid, draft, webhooks_by_uid)
        if sample and not draft.has_trigger_list
        else None,
        "has_added_field": bool(context.form["add"]),
        "has_added_event": bool(context.form["add_event"]),
        "is_event_chosen": sample is not None and sample.delivery.event in filter_editor.lines_in(draft.events),
        "refreshes_samples": refreshes_samples,
        "fields_max": filter_editor.FIELDS_MAX,
        "operators": OPERATORS.values(),
    }
    if context.is_htmx:
        return context.page("parts/filter-outcome.html", is_part=True, **values)
    runners = list(context.management.config.runner_names)
    usable_repositories = context.management.config.repositories_for(may)
    own_repository = draft.texts[REPOSITORY]
    repositories = sorted({*usable_repositories, *([own_repository] if own_repository else [])})
    return context.page(
        "automation-editor.html",
        status=status,
        may=may,
        is_part=False,
        problems=problems or {},
        webhook_choices=_webhook_choices(draft.webhook_uids, webhooks_by_uid),
        runners=runners if not draft.runner or draft.runner in runners else [*runners, draft.runner],
        configured_runners=runners,
        package_runner=PACKAGE_RUNNER,
        priorities=list(Priority),
        has_start_rules=_has(draft, problems, START_RULES),
        has_failure_rules=_has(draft, problems, FAILURE_RULES),
        schedules=[*draft.schedules, dict.fromkeys(SCHEDULE_COLUMNS, "")],
        add_schedule=ADD_SCHEDULE,
        fields=[*draft.fields, dict.fromkeys(FIELD_COLUMNS, "")],
        add_field=ADD_FIELD,
        is_adding_field=context.form["do"] == ADD_FIELD,
        repositories=repositories,
        usable_repositories=usable_repositories,
        result_kinds=[kind.value for kind in ResultKind],
        destinations=context.management.config.destinations_for(may),
        **values,
    )


def _has(draft: Draft, problems: Mapping[str, str] | None, rules: tuple[str, ...]) -> bool:
    """Whether some of these fields of the policy differ from their defaults, or have a problem."""
    changed = [pointer for pointer, text in draft.texts.items() if text != _CONTROLS[pointer]]
    return any(pointer.startswith(rules) for pointer in (*changed, *(problems or ())))


def _run_policy(draft: Draft) -> RunPolicy:
    """The policy, or `NO_POLICY` if a field is invalid. The page shows the error when the member saves the form."""
    try:
        return read(RunPolicy, json_of(RunPolicy, draft.texts))
    except Invalid:
        return NO_POLICY


def _sample_to_test(
    context: PageContext,
    may: MayView,
    draft: Draft,
    sample_choices: Sequence[filter_editor.SampleChoice],
    webhooks_by_uid: WebhooksByUid,
) -> Sample | None:
    """The delivery to test the draft on: the selected one, or else the newest, to which it sets `draft.delivery_id`.

    Deliveries of deleted webhooks are used only if there is no other delivery.
    """
    sample = filter_editor.load_sample(context.management, may, draft.delivery_id) if draft.delivery_id else None
    if sample is None and sample_choices:
        ids_of_existing_webhooks = (
            choice.id
            for choice in sample_choices
            if webhooks_by_uid[choice.delivery.webhook_uid].state is not WebhookState.DELETED
        )
        draft.delivery_id = next(ids_of_existing_webhooks, sample_choices[0].id)
        sample = filter_editor.load_sample(context.management, may, draft.delivery_id)
    return sample


def _webhook_choices(
    selected_uids: Sequence[str], webhooks_by_uid: WebhooksByUid
) -> list[tuple[SelectedWebhook, bool]]:
    """The webhooks to select from, each with whether it is selected. Selected webhooks are listed even if deleted."""
    existing = [
        (SelectedWebhook(uid=webhook.uid, name=webhook.name, state=webhook.state), webhook.uid in selected_uids)
        for webhook in existing_webhooks(webhooks_by_uid)
    ]
    existing_uids = {webhook.uid for webhook, _ in existing}
    return [
        *existing,
        *(
            (deleted, True)
            for deleted in selected_webhooks(
                [uid for uid in selected_uids if uid not in existing_uids], webhooks_by_uid
            )
        ),
    ]


PAGES: Final = (
    Page("GET", "/f/{factory}/automations/new", new, require_manager),
    Page("POST", "/f/{factory}/automations/new", create, require_manager),
    Page("GET", "/f/{factory}/automations/{automation}/edit", edit, require_manager),
    Page("POST", "/f/{factory}/automations/{automation}/edit", change, require_manager),
)
