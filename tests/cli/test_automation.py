"""`hookmill automation`."""

import json
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from hookmill.app import log
from hookmill.app.runner_problems import _log_problems
from hookmill.settings import read_settings
from hookmill.store.database import open_database
from tests.cli.conftest import Hookmill
from tests.support.triggers import received

UNKNOWN_UID = "wh_" + "0" * 27


def test_create_prints_the_trigger_in_the_format_of_the_contract(automation, webhook):
    assert automation["name"] == "triage"
    assert automation["prompt"] == "Look."
    assert automation["enabled"] is True
    assert automation["runner"] == "package"
    assert automation["warnings"] == []
    assert automation["triggers"] == [received(webhook["uid"])]


def test_prompt_is_read_from_a_file(webhook, hookmill, tmp_path):
    (tmp_path / "prompt.md").write_text("Grüße,\nund los.\n")

    created = hookmill("automation", "create", "a", "--prompt-file", "prompt.md", "--webhook", "source", "--json").json

    assert created["prompt"] == "Grüße,\nund los.\n"


def test_webhooks_are_selected_by_name_and_by_uid(webhook, hookmill):
    other = hookmill("webhook", "create", "other", "--json").json

    created = hookmill(
        "automation", "create", "a", "--prompt", "x", "--webhook", "source", "--webhook", other["uid"], "--json"
    ).json

    assert created["triggers"][0]["filter"]["webhook_ids"] == [webhook["uid"], other["uid"]]


def test_unknown_uid_causes_a_warning_on_standard_error(webhook, hookmill):
    result = hookmill("automation", "create", "a", "--prompt", "x", "--webhook", UNKNOWN_UID)

    assert "Automation a (aut_" in result.out
    assert result.err.startswith(f"Warning: {UNKNOWN_UID} is not a webhook of factory 'default'")


def test_runner_that_is_no_longer_configured_causes_a_warning(webhook, data_dir, hookmill, monkeypatch, capsysbinary):
    monkeypatch.setenv("HOOKMILL_RUNNERS", '{"agent": {"argv": ["true"]}}')
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--runner", "agent")
    monkeypatch.delenv("HOOKMILL_RUNNERS")

    shown = hookmill("automation", "show", "a").err
    listed = hookmill("automation", "list").out
    (in_json,) = hookmill("automation", "list", "--json").json["items"]
    settings = read_settings()
    log.configure(settings)
    with open_database(settings.store_url()) as database:
        _log_problems(settings, database)

    assert shown.startswith("Warning: The runner 'agent' is no longer configured, so its runs fail.")
    assert "agent (missing)" in listed
    assert in_json["warnings"] == [shown.removeprefix("Warning: ").strip()]
    assert (
        "their runner is not in the settings, so their runs fail: 'a' of factory 'default' (agent)"
        in capsysbinary.readouterr().err.decode()
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--prompt", "a", "--prompt-file", "b", "--webhook", "w"], "exactly one of --prompt, --prompt-file"),
        (["--webhook", "w"], "exactly one of --prompt, --prompt-file"),
        (["--prompt", "a"], "--webhook"),
        (["--prompt", "a", "--webhook", "w", "--filter", "{}", "--filter-file", "f"], "at most one of --filter"),
    ],
)
def test_create_refuses_contradicting_options(hookmill, options, problem):
    assert problem in hookmill("automation", "create", "a", *options, exit_code=2).err


@pytest.mark.parametrize(
    ("filter_json", "problem"),
    [
        ("{", "The payload filter is not JSON: Expecting property name enclosed in double quotes at line 1, column 2."),
        ("null", "The payload filter is null."),
        ('{"a": {"b": {}}}', "/a/b: An empty object contains no condition."),
        ('{"a": 1, "b": 2}', "/b: Write the values as an array"),
        ("[" * 100_000, "nested too deep"),
    ],
    ids=["no JSON", "null", "empty object", "two problems", "nested too deep"],
)
def test_invalid_filter_is_refused_with_the_location_of_the_problem(webhook, hookmill, filter_json, problem):
    command = ("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", filter_json)

    assert problem in hookmill(*command, exit_code=1).err


def test_prompt_file_that_is_not_utf_8_is_refused(webhook, hookmill, tmp_path):
    (tmp_path / "prompt.md").write_bytes(b"abc\xff")

    result = hookmill("automation", "create", "a", "--prompt-file", "prompt.md", "--webhook", "source", exit_code=1)

    assert result.err == "The prompt file prompt.md is not UTF-8: byte 4 can't be read.\n"


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (("--runner", "agent"), "No runner is named 'agent'. The operator configured: package."),
        (("--workspace", "shop"), "may not use a repository 'shop'. The operator allowed: none."),
        (("--result", "slack=team"), "may not use a destination 'team'. The operator allowed: none."),
    ],
)
def test_unknown_name_in_the_settings_is_refused_with_the_known_ones_and_their_file(
    webhook, hookmill, tmp_path, monkeypatch, option, problem
):
    monkeypatch.chdir(tmp_path)
    command = ("automation", "create", "a", "--prompt", "x", "--webhook", "source", *option)

    without_file = hookmill(*command, exit_code=1).err
    (tmp_path / "hookmill.toml").touch()
    with_file = hookmill(*command, exit_code=1).err

    assert problem in with_file
    assert without_file.startswith(with_file)
    assert f"there is no hookmill.toml in {tmp_path}." in without_file


def test_automation_is_created_disabled_and_enabled_later(webhook, hookmill):
    created = hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--disabled", "--json").json
    enabled = hookmill("automation", "enable", "a", "--json").json

    assert created["enabled"] is False
    assert enabled["enabled"] is True


def test_change_creates_a_version_and_keeps_the_other_fields(automation, hookmill):
    changed = hookmill("automation", "change", "triage", "--name", "sort", "--prompt", "Look twice.", "--json").json

    assert (changed["name"], changed["prompt"], changed["version"]) == ("sort", "Look twice.", 2)
    assert [changed[field] for field in ("automation_id", "triggers", "runner", "enabled")] == [
        automation[field] for field in ("automation_id", "triggers", "runner", "enabled")
    ]


def test_filter_and_webhooks_are_changed_separately(automation, webhook, hookmill):
    other = hookmill("webhook", "create", "other", "--json").json

    with_filter = hookmill("automation", "change", "triage", "--filter", '{"n": [1]}', "--json").json
    with_other_webhook = hookmill("automation", "change", "triage", "--webhook", "other", "--json").json
    without_filter = hookmill("automation", "change", "triage", "--no-filter", "--json").json

    assert [changed["triggers"][0]["filter"] for changed in (with_filter, with_other_webhook, without_filter)] == [
        {"webhook_ids": [webhook["uid"]], "payload": {"n": [1]}},
        {"webhook_ids": [other["uid"]], "payload": {"n": [1]}},
        {"webhook_ids": [other["uid"]]},
    ]


def test_event_types_are_set_shown_changed_and_removed(webhook, hookmill):
    create = ("automation", "create", "typed", "--prompt", "x", "--webhook", "source")
    created = hookmill(*create, "--event", "push", "--event", "Push Hook", "--filter", '{"n": [1]}', "--json").json
    output = hookmill("automation", "show", "typed").out
    without_filter = hookmill("automation", "change", "typed", "--no-filter", "--json").json
    with_one_event = hookmill("automation", "change", "typed", "--event", "ping", "--json").json
    warnings = hookmill("automation", "show", "typed").err
    with_any_event = hookmill("automation", "change", "typed", "--any-event", "--json").json

    uids = [webhook["uid"]]
    assert [
        automation["triggers"][0]["filter"] for automation in (created, without_filter, with_one_event, with_any_event)
    ] == [
        {"webhook_ids": uids, "event": ["push", "Push Hook"], "payload": {"n": [1]}},
        {"webhook_ids": uids, "event": ["push", "Push Hook"]},
        {"webhook_ids": uids, "event": ["ping"]},
        {"webhook_ids": uids},
    ]
    assert "  events    push, Push Hook\n" in output
    assert "have no event type. Every trigger that selects it requires one" in warnings
    assert with_any_event["warnings"] == []


def test_triggers_file_has_the_format_that_show_prints(automation, hookmill, tmp_path):
    triggers = automation["triggers"] * 2
    (tmp_path / "triggers.json").write_text(json.dumps(triggers))

    changed = hookmill("automation", "change", "triage", "--triggers-file", "triggers.json", "--json").json
    created = hookmill(
        "automation",
        "create",
        "a",
        "--prompt",
        "x",
        "--triggers-file",
        "-",
        "--json",
        stdin=json.dumps(triggers).encode(),
    ).json

    assert changed["triggers"] == created["triggers"] == triggers


def test_options_for_one_trigger_are_refused_if_there_are_several(automation, hookmill, tmp_path):
    (tmp_path / "triggers.json").write_text(json.dumps(automation["triggers"] * 2))
    hookmill("automation", "change", "triage", "--triggers-file", "triggers.json")

    result = hookmill("automation", "change", "triage", "--no-filter", exit_code=1)

    assert result.err.startswith("Automation 'triage' has 2 triggers, but these options change a single trigger.")
    assert "--triggers-file FILE" in result.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "give at least one change"),
        (["--prompt", "a", "--prompt-file", "b"], "--prompt, --prompt-file"),
        (["--filter", "{}", "--no-filter"], "--filter, --filter-file, --no-filter, --triggers-file"),
        (["--webhook", "w", "--triggers-file", "f"], "--webhook, --triggers-file"),
    ],
)
def test_change_refuses_contradicting_options(hookmill, options, problem):
    assert problem in hookmill("automation", "change", "a", *options, exit_code=2).err


def test_creation_without_any_trigger_names_all_options_for_triggers(hookmill):
    error = hookmill("automation", "create", "a", "--prompt", "Go.", exit_code=2).err

    assert "give at least one of --webhook, --schedule, --triggers-file" in error


def test_list_shows_the_state_of_the_selected_webhooks(automation, hookmill):
    hookmill("webhook", "disable", "source")

    header, row = hookmill("automation", "list").out.splitlines()

    assert header.split() == ["NAME", "STATE", "RUNNER", "STARTED", "BY"]
    assert row.split() == ["triage", "enabled", "package", "source", "(disabled)"]


def test_deleted_automation_is_no_longer_listed_or_shown(automation, hookmill):
    deleted = hookmill("automation", "delete", "triage", "--json").json

    assert deleted["deleted"] is True
    assert hookmill("automation", "list", "--json").json == {"items": []}
    assert "no automation 'triage'" in hookmill("automation", "show", "triage", exit_code=1).err


def test_control_characters_in_a_prompt_are_escaped(webhook, hookmill):
    hookmill("automation", "create", "a", "--prompt", "one\ntwo\x1b[31m[bold]", "--webhook", "source")

    assert "one\ntwo\\u001b[31m[bold]\n" in hookmill("automation", "show", "a").out


def test_filter_numbers_are_shown_exactly(automation, hookmill):
    filter_json = '{"price": [0.10, 9007199254740993]}'

    hookmill("automation", "change", "triage", "--filter", filter_json)

    for command in ("show triage", "show triage --json", "list --json"):
        assert '{"price": [0.1, 9007199254740993]}' in hookmill("automation", *command.split()).out


def test_unreadable_triggers_are_reported_and_not_changed(automation, log, hookmill):
    log.execute("UPDATE automation_versions SET triggers = '[{}]'")

    shown = hookmill("automation", "show", "triage")
    changes = (("--prompt", "Another."), ("--no-filter",), ("--schedule", "daily=@daily"))
    refused = [hookmill("automation", "change", "triage", *change, exit_code=1).err for change in changes]

    assert "Warning: No run starts, because its stored triggers can't be read" in shown.err
    assert all("can't be read" in error for error in refused)


def test_filter_test_is_refused_without_a_readable_trigger(automation, log, hookmill):
    log.execute("UPDATE automation_versions SET triggers = '[{}]'")

    refused = hookmill("filter", "test", "--automation", "triage", "--body", "-", stdin=b"{}", exit_code=1)

    assert refused.err == "Automation 'triage' has no readable trigger. `hookmill automation show` says why.\n"


# Run policies and run options


WORKSPACE = {"repository": "app", "ref": None, "base": None, "depth": 1}


@pytest.fixture
def repositories_and_destinations(monkeypatch):
    monkeypatch.setenv("HOOKMILL_REPOSITORIES", '{"app": {"url": "https://git.example.com/app.git"}}')
    github = {"kind": "github", "secret_from": "GITHUB_TOKEN", "repositories": ["acme/*"]}
    team = {"kind": "slack", "secret_from": "SLACK_URL", "factories": ["default"]}
    other = {"kind": "slack", "secret_from": "SLACK_URL", "factories": []}
    monkeypatch.setenv("HOOKMILL_DESTINATIONS", json.dumps({"github": github, "team": team, "other": other}))


@pytest.mark.usefixtures("repositories_and_destinations")
@pytest.mark.parametrize(
    ("options", "created", "text", "change", "changed", "removal", "removed"),
    [
        (
            "--concurrency-key /pr --when-busy replace",
            {"concurrency": {"key": ["/pr"], "limit": 1, "when_busy": "replace"}},
            "at most 1 active run for each /pr; a new run replaces the oldest",
            "--concurrency 3",
            {"concurrency": {"key": ["/pr"], "limit": 3, "when_busy": "replace"}},
            "--no-concurrency",
            None,
        ),
        (
            "--debounce 30",
            {"debounce": {"seconds": 30, "max_seconds": 300}},
            "starts 30 s after the newest delivery, at most 300 s after the first",
            "--debounce-max 60",
            {"debounce": {"seconds": 30, "max_seconds": 60}},
            "--no-debounce",
            None,
        ),
        (
            "--priority low",
            {"priority": "low"},
            "low",
            "--priority high",
            {"priority": "high"},
            "--priority normal",
            "",
        ),
        (
            "--max-running 4 --pause-after-failures 3",
            {"max_running": 4, "pause_after_failures": 3},
            "at most 4 runs at the same time",
            "--pause-after-failures 5",
            {"max_running": 4, "pause_after_failures": 5},
            "--no-max-running --no-pause-after-failures",
            None,
        ),
        (
            "--result github_comment=github --result github_status=github=ci/review",
            {
                "results": [
                    {"kind": "github_comment", "destination": "github"},
                    {"kind": "github_status", "destination": "github", "context": "ci/review"},
                ]
            },
            "github_status to github, context ci/review",
            "--result slack=team",
            {"results": [{"kind": "slack", "destination": "team"}]},
            "--no-results",
            [],
        ),
        (
            "--field pr=/number --field title=/title --field-max title=500",
            {
                "fields": {
                    "pr": {"pointer": "/number", "max_characters": 200},
                    "title": {"pointer": "/title", "max_characters": 500},
                }
            },
            "title: /title, strings up to 500 characters",
            "--field action=/action",
            {"fields": {"action": {"pointer": "/action", "max_characters": 200}}},
            "--no-fields",
            {},
        ),
        (
            "--workspace app --workspace-ref-from /sha --workspace-depth full --workspace-base-from /base",
            {"workspace": WORKSPACE | {"ref": {"pointer": "/sha"}, "base": {"pointer": "/base"}, "depth": 0}},
            "the ref at /sha in the payload, compared with the ref at /base in the payload, with the whole history",
            "--workspace app --workspace-ref main --workspace-depth 5 --workspace-base v1",
            {"workspace": WORKSPACE | {"ref": "main", "base": "v1", "depth": 5}},
            "--no-workspace",
            None,
        ),
    ],
)
def test_option_is_created_shown_changed_kept_and_removed(
    webhook, hookmill, options, created, text, change, changed, removal, removed
):
    def run(command: str, arguments: str) -> dict[str, Any]:
        automation = hookmill("automation", command, "a", *arguments.split(), "--json").json
        return {name: automation[name] for name in (*created, "version")}

    first = run("create", f"--prompt x --webhook source {options}")
    shown = hookmill("automation", "show", "a").out
    second = run("change", change)
    third = run("change", "--prompt y")
    last = run("change", removal)
    audited = hookmill("audit", "list", "--limit", "1", "--json").json["items"][0]

    assert first == created | {"version": 1}
    assert text in " ".join(shown.split())
    assert (second, third) == (changed | {"version": 2}, changed | {"version": 3})
    assert last == dict.fromkeys(created, "normal" if removed == "" else removed) | {"version": 4}
    assert audited["details"]["changed"] == list(created)


@pytest.mark.usefixtures("repositories_and_destinations")
@pytest.mark.parametrize(
    ("arguments", "exit_code", "problem"),
    [
        ("--concurrency 0", 1, "limit must be a whole number from 1 to 1,000"),
        ("--no-concurrency --concurrency 2", 2, "one of --concurrency, --no-concurrency"),
        ("--field pr", 2, "Write NAME=POINTER"),
        ("--field pr=/a --field pr=/b", 2, "its name is a duplicate"),
        ("--field-max pr=5", 2, "is not NAME=N"),
        ("--field pr=/a --field-max pr=many", 2, "is not NAME=N"),
        ("--field pr=/a --no-fields", 2, "one of --field, --no-fields"),
        ("--workspace other", 1, "The operator allowed: app."),
        ("--workspace app --workspace-ref a --workspace-ref-from /a", 2, "at most one of"),
        ("--workspace app --workspace-base a --workspace-base-from /a", 2, "at most one of"),
        ("--workspace app --no-workspace", 2, "at most one of"),
        ("--workspace-ref main", 2, "need --workspace"),
        ("--workspace-base main", 2, "need --workspace"),
        ("--result slack", 2, "Write KIND=DESTINATION"),
        ("--result slack=other", 1, "may not use a destination 'other'. The operator allowed: github, team."),
    ],
)
def test_invalid_option_is_refused(automation, hookmill, arguments, exit_code, problem):
    error = hookmill("automation", "change", "triage", *arguments.split(), exit_code=exit_code).err

    assert problem in " ".join(error.replace("│", " ").split())


# Schedules


def create_report(hookmill: Hookmill, *options: str) -> Any:
    return hookmill("automation", "create", "report", "--prompt", "Look.", *options, "--json").json


def test_schedules_are_created_with_names_crons_and_options(log, hookmill):
    created = create_report(
        hookmill,
        *("--schedule", "nightly=0 3 * * *", "--schedule", "often=@every 1h30m"),
        *("--timezone", "Europe/Berlin", "--catch-up", "none"),
    )

    options = {"timezone": "Europe/Berlin", "catch_up": "none"}
    assert [trigger["schedule"] for trigger in created["triggers"]] == [
        {"name": "nightly", "cron": "0 3 * * *"} | options,
        {"name": "often", "cron": "@every 1h30m"} | options,
    ]
    assert [schedule["name"] for schedule in created["next_times"]] == ["nightly", "often"]
    assert all(schedule["next_at"] for schedule in created["next_times"])


def test_schedules_are_shown_with_their_next_times(webhook, hookmill):
    create_report(hookmill, "--webhook", "source", "--schedule", "yearly=0 0 1 1 *", "--catch-up", "none")

    output = hookmill("automation", "show", "report").out
    _, row = hookmill("automation", "list").out.splitlines()

    assert re.search(
        r"Schedule +yearly: 0 0 1 1 \* \(UTC, skips missed times\); next 2\d{3}-01-01 00:00:00 UTC\n", output
    )
    assert row.split() == ["report", "enabled", "package", "source,", "schedule", "yearly"]
    hookmill("automation", "disable", "report")
    assert "skips missed times)\n" in hookmill("automation", "show", "report").out


def test_schedules_are_replaced_and_removed_without_the_webhooks(webhook, hookmill):
    create_report(hookmill, "--webhook", "source", "--schedule", "a=@daily", "--schedule", "b=@daily")

    def change(*options: str) -> list[str]:
        triggers = hookmill("automation", "change", "report", *options, "--json").json["triggers"]
        return [trigger.get("schedule", {}).get("name", "webhook") for trigger in triggers]

    assert change("--prompt", "New.") == ["webhook", "a", "b"]
    assert change("--event", "push") == ["webhook", "a", "b"]
    assert change("--schedule", "c=@hourly") == ["webhook", "c"]
    assert change("--no-schedule") == ["webhook"]


def test_webhook_is_added_to_an_automation_with_schedules(webhook, hookmill):
    create_report(hookmill, "--schedule", "a=@daily")

    changed = hookmill("automation", "change", "report", "--webhook", "source", "--event", "push", "--json").json
    output = hookmill("automation", "change", "report", "--no-schedule").out

    assert [trigger["provider"] for trigger in changed["triggers"]] == ["webhook", "schedule"]
    assert changed["triggers"][0]["filter"] == {"webhook_ids": [webhook["uid"]], "event": ["push"]}
    assert "is now at version 3" in output


def test_last_schedule_is_not_removed_without_a_webhook(log, hookmill):
    create_report(hookmill, "--schedule", "a=@daily")

    assert (
        "triggers must be a list of 1 to 20 triggers"
        in hookmill("automation", "change", "report", "--no-schedule", exit_code=1).err
    )
    result = hookmill("automation", "change", "report", "--event", "push", exit_code=1)
    assert result.err == "Automation 'report' has no webhook trigger. Add one with --webhook.\n"


@pytest.mark.parametrize(
    ("options", "problem", "exit_code"),
    [
        (["--schedule", "nightly"], "Write NAME=CRON", 2),
        (["--schedule", "a=@daily", "--timezone", "Mars"], "timezone must be an IANA name", 1),
        (["--schedule", "a=@daily", "--triggers-file", "f"], "--schedule, --triggers-file", 2),
        (["--schedule", "a=@daily", "--event", "push"], "--event needs --webhook", 2),
        (["--schedule", "a=@daily", "--filter", "{}"], "--filter needs --webhook", 2),
        (["--timezone", "UTC", "--webhook", "source"], "--timezone and --catch-up need --schedule", 2),
    ],
)
def test_invalid_schedules_are_refused(log, hookmill, options, problem, exit_code):
    assert problem in hookmill("automation", "create", "report", "--prompt", "x", *options, exit_code=exit_code).err


# Runs that are started by hand


def test_run_that_is_started_by_hand_is_queued_and_shown(log, hookmill):
    create_report(hookmill, "--schedule", "a=@daily")

    output = hookmill("automation", "run", "report").out
    [run] = hookmill("run", "list", "--json").json["items"]

    assert output.startswith(f"Run {run['run_id']} of report is queued. To see its state: ")
    assert (run["started_by"], run["delivery_id"], run["webhook_uid"]) == ("person", None, None)
    assert f"Started by  {run['person']}, by hand\n" in hookmill("run", "show", run["run_id"]).out
    assert "report (by hand)" in hookmill("run", "list").out
    assert json.loads(hookmill("run", "export").out)["run_id"] == run["run_id"]


def test_payload_of_a_run_is_read_from_a_file_or_standard_input(log, hookmill, tmp_path, data_dir):
    create_report(hookmill, "--schedule", "a=@daily")
    (tmp_path / "order.json").write_bytes(b'{"n":  1.0}\n')

    hookmill("automation", "run", "report", "--payload", "order.json", "--json")
    hookmill("automation", "run", "report", "--payload", "-", stdin=b"[1]")
    result = hookmill("automation", "run", "report", "--payload", "-", stdin=b"{", exit_code=1)

    with closing(sqlite3.connect(data_dir / "hookmill.db")) as database:
        assert {body for (body,) in database.execute("SELECT body FROM payloads")} == {b'{"n":  1.0}\n', b"[1]"}
    assert result.err.startswith("The payload is not JSON")
