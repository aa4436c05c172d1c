"""The options of automations in the editor: what is filled in is stored, shown again, kept and removed."""

import html
import re
from collections.abc import Mapping
from typing import Any

import pytest

from hookmill.domain.permission import Role
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_policy import RunPolicy
from hookmill.web.dashboard.automation_editor import START_RULES
from hookmill.web.dashboard.spec_form import blank
from tests.dashboard.client import Elements, text_of

FORM = {
    "name": "sort",
    "prompt": "Go.",
    "runner": "package",
    "enabled": "yes",
    "do": "save",
    "schedule_catch_up": "once",
}
NIGHTLY = {"schedule_name": "nightly", "schedule_cron": "0 3 * * *", "schedule_catch_up": "once"}
Fields = dict[str, str | list[str]]
REFS = {"ref": {"pointer": "/head/sha"}, "base": {"pointer": "/base/ref"}}
OPTIONS: dict[str, tuple[Fields, Any, str]] = {
    "concurrency": (
        {"/concurrency/limit": "2", "/concurrency/key": "/number\n/b", "/concurrency/when_busy": "replace"},
        {"concurrency": {"key": ["/number", "/b"], "limit": 2, "when_busy": "replace"}},
        "at most 2 active runs for each /number and /b; a new run replaces",
    ),
    "debounce": (
        {"/debounce/seconds": "30"},
        {"debounce": {"seconds": 30}},
        "at most 300 s after the first",
    ),
    "retry": (
        {
            "/retry/attempts": "3",
            "/retry/exit_codes": "75, 111",
            "/retry/backoff_seconds": "5",
            "/retry/max_backoff_seconds": "9",
        },
        {"retry": {"attempts": 3, "backoff_seconds": 5, "max_backoff_seconds": 9, "exit_codes": [75, 111]}},
        "3 attempts",
    ),
    "limits": (
        {"/priority": "high", "/max_running": "4", "/pause_after_failures": "5"},
        {"priority": "high", "max_running": 4, "pause_after_failures": 5},
        "disabled after 5 failed runs in a row",
    ),
    "fields": (
        {"field_name": ["pr", "title"], "field_pointer": ["/n", "/t"], "field_max_characters": ["200", "500"]},
        {"fields": {"pr": {"pointer": "/n", "max_characters": 200}, "title": {"pointer": "/t", "max_characters": 500}}},
        "title",
    ),
    "workspace": (
        {
            "/workspace/repository": "app",
            "/workspace/ref/pointer": "/head/sha",
            "/workspace/base/pointer": "/base/ref",
            "/workspace/depth": "0",
        },
        {"workspace": {"repository": "app", **REFS, "depth": 0}},
        "with the whole history",
    ),
}
"""What is filled in, what is stored, and what the page of the automation says."""


def pairs(*forms: Mapping[str, str | list[str]]) -> list[tuple[str, str]]:
    merged = {name: value for form in forms for name, value in form.items()}
    return [(name, each) for name, value in merged.items() for each in (value if isinstance(value, list) else [value])]


def values_on(page: bytes, names: Fields) -> dict[str, str | list[str]]:
    """What a browser would send of the fields with these names, in the order of the page."""
    texts = re.findall(r'<textarea[^>]* name="([^"]+)"[^>]*>([^<]*)</textarea>', page.decode())
    values: dict[str, Any] = {name: [html.unescape(text)] for name, text in texts if name in names}
    name: str | None = None
    for element in Elements(page).all:
        name = element.attributes.get("name", name if element.tag == "option" else None)
        is_value = element.tag == "input" or (element.tag == "option" and "selected" in element.attributes)
        if is_value and name in names:
            values.setdefault(name, []).append(element.attributes.get("value", ""))
    return values


@pytest.mark.parametrize(("filled", "stored", "text"), OPTIONS.values(), ids=OPTIONS)
def test_option_is_stored_shown_kept_and_removed(dashboard, filled, stored, text, manager):
    def options() -> Any:
        [automation] = dashboard.management.automations.all(dashboard.world.may)
        fields = automation.spec.as_json()
        return {name: fields[name] for name in RunOptions.__struct_fields__ if name in fields}

    created = manager.post("/f/default/automations/new", pairs(FORM, NIGHTLY, filled))
    [automation] = dashboard.management.automations.all(dashboard.world.may)
    path = f"/f/default/automations/{automation.id}"
    first = options()
    shown, editor = manager.get(path).body, manager.get(f"{path}/edit").body
    values = values_on(editor, filled)
    kept_form = pairs(FORM, NIGHTLY, values, {"version": "1", "prompt": "Something else."})
    kept = (manager.post(f"{path}/edit", kept_form).status, options())
    removed = (manager.post(f"{path}/edit", pairs(FORM, NIGHTLY, {"version": "2"})).status, options())

    assert (created.status, first) == (303, stored)
    assert text in text_of(shown)
    for name, value in filled.items():
        written = value if isinstance(value, list) else [value]
        assert [each.strip() for each in values[name] if each] == written
    assert kept == (303, stored)
    assert removed == (303, {})


@pytest.mark.parametrize(
    ("filled", "problems"),
    [
        (
            {"/concurrency/limit": "0", "/retry/attempts": "3", "/retry/exit_codes": "75, x"},
            {
                "/concurrency/limit": "limit must be a whole number from 1 to 1,000",
                "/retry/exit_codes": "Each item of exit_codes must be a whole number from 1 to 255",
            },
        ),
        (
            {"field_name": "PR", "field_pointer": "/t"},
            {"fields": "The name 'PR' in fields must be the name of a field"},
        ),
        (
            {"/workspace/repository": "app", "/workspace/ref": "-x"},
            {"workspace": "The ref of the workspace has a part between slashes"},
        ),
        (
            {"/workspace/repository": "app", "/workspace/base": "main", "/workspace/base/pointer": "/b"},
            {"workspace": "Fill in one of the two fields for base, and not both."},
        ),
        (
            {"schedule_name": "nightly", "schedule_cron": "0 3 * *"},
            {"schedules": "Schedule 1: cron must be a text with five fields"},
        ),
        (
            {"schedule_name": "", "schedule_cron": ""},
            {"webhooks": "Select at least one webhook, or add a schedule."},
        ),
        (
            {"filter": '{"a": [1]}'},
            {"webhooks": "Select a webhook, or remove the event types and the payload filter."},
        ),
        (
            {"results": "github_comment=github\nnothing"},
            {"results": "Line 2: Write KIND=DESTINATION, such as github_comment=github"},
        ),
    ],
)
def test_unusable_option_is_shown_with_its_problem(dashboard, filled, problems, manager):
    answer = manager.post("/f/default/automations/new", pairs(FORM, NIGHTLY, filled))

    shown = dict(re.findall(r'<p class="problem" id="([^"]+)-problem">([^<]*)', answer.body.decode()))
    assert answer.status == 422
    assert sorted(shown) == sorted(problems)
    for control, problem in problems.items():
        assert html.unescape(shown[control]).startswith(problem)


def test_workspace_without_a_repository_is_none(dashboard, manager):
    both = {"/workspace/ref": "main", "/workspace/ref/pointer": "/ref"}

    answer = manager.post("/f/default/automations/new", pairs(FORM, NIGHTLY, both))

    [automation] = dashboard.management.automations.all(dashboard.world.may)
    assert (answer.status, automation.workspace) == (303, None)


def test_schedules_are_stored_shown_and_removed(dashboard, manager):
    schedules: Fields = {
        "schedule_name": ["nightly", "often"],
        "schedule_cron": ["0 3 * * *", "@every 30m"],
        "schedule_timezone": ["Europe/Berlin", "UTC"],
        "schedule_catch_up": ["once", "none"],
    }

    created = manager.post("/f/default/automations/new", pairs(FORM, schedules))
    [automation] = dashboard.management.automations.all(dashboard.world.may)
    path = f"/f/default/automations/{automation.id}"
    shown, listed = text_of(manager.get(path).body), text_of(manager.get("/f/default/automations").body)
    values = values_on(manager.get(f"{path}/edit").body, schedules)
    second = {name: value[1] for name, value in schedules.items()}
    saved = manager.post(f"{path}/edit", pairs(FORM, second, {"version": "1"}))
    [changed] = dashboard.management.automations.all(dashboard.world.may)

    assert (created.status, saved.status) == (303, 303)
    assert [schedule.as_json() for schedule in automation.schedules] == [
        {"name": "nightly", "cron": "0 3 * * *", "timezone": "Europe/Berlin"},
        {"name": "often", "cron": "@every 30m", "catch_up": "none"},
    ]
    assert "0 3 * * * (Europe/Berlin); next 2" in shown
    assert "@every 30m (UTC, skips missed times); next 2" in shown
    assert "Schedule nightly, next 2" in listed
    assert "often, next 2" in listed
    assert {name: value[:2] for name, value in values.items()} == schedules
    assert [schedule.name for schedule in changed.schedules] == ["often"]


@pytest.mark.parametrize(
    ("button", "name"), [("Add another schedule", "schedule_name"), ("Add another field", "field_name")]
)
def test_button_adds_an_empty_row_and_keeps_the_others(dashboard, button, name, manager):
    path, filled = "/f/default/automations/new", FORM | NIGHTLY | {"field_name": "pr", "field_pointer": "/n"}
    before = manager.post(path, filled | {"do": "check"}).body
    match = re.search(rf'<button name="do" value="([^"]+)"[^>]*>{button}</button>', before.decode())
    assert match is not None

    after = values_on(manager.post(path, filled | {"do": match[1]}).body, {name: ""})[name]

    assert after == [filled[name], ""]
    assert dashboard.management.automations.all(dashboard.world.may) == []


@pytest.mark.parametrize("control", [each for each in blank(RunPolicy) if not each.endswith(("when_busy", "priority"))])
def test_filled_in_control_of_the_policy_is_not_collapsed(dashboard, control):
    manager = dashboard.member("manager@example.com", roles={"default": Role.MANAGER})

    answer = manager.post("/f/default/automations/new", pairs(FORM, NIGHTLY, {control: "x", "do": "check"}))

    title = "When runs start" if control.startswith(START_RULES) else "When runs fail"
    assert f'<details class="card" open><summary>{title}</summary>' in answer.body.decode()
    assert f'name="{control}"' in answer.body.decode()
