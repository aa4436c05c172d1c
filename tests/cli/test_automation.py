"""`hookmill automation`."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Hookmill, LogWriter

UNKNOWN = "wh_" + "0" * 27


def test_creation_prints_the_trigger_as_the_contract_writes_it(automation: Any, webhook: Any):
    assert automation["name"] == "triage"
    assert automation["prompt"] == "Look."
    assert automation["enabled"] is True
    assert automation["runner"] == "package"
    assert automation["warnings"] == []
    assert automation["triggers"] == [
        {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [webhook["uid"]]}}
    ]


def test_a_prompt_may_come_from_a_file(webhook: Any, hookmill: Hookmill, tmp_path: Path):
    (tmp_path / "prompt.md").write_text("Grüße,\nund los.\n")

    made = hookmill("automation", "create", "a", "--prompt-file", "prompt.md", "--webhook", "source", "--json").json

    assert made["prompt"] == "Grüße,\nund los.\n"


def test_a_prompt_may_come_from_standard_input(webhook: Any, hookmill: Hookmill):
    made = hookmill(
        "automation", "create", "a", "--prompt-file", "-", "--webhook", "source", "--json", stdin=b"Go."
    ).json

    assert made["prompt"] == "Go."


def test_a_filter_is_kept_as_it_was_given(webhook: Any, hookmill: Hookmill):
    made = hookmill(
        "automation",
        "create",
        "a",
        "--prompt",
        "x",
        "--webhook",
        "source",
        "--filter",
        '{"n": [1, 2.5, null]}',
        "--json",
    ).json

    assert made["triggers"][0]["filter"]["payload"] == {"n": [1, 2.5, None]}


def test_several_webhooks_may_be_selected_by_name_and_uid(webhook: Any, hookmill: Hookmill):
    other = hookmill("webhook", "create", "other", "--json").json

    made = hookmill(
        "automation", "create", "a", "--prompt", "x", "--webhook", "source", "--webhook", other["uid"], "--json"
    ).json

    assert made["triggers"][0]["filter"]["webhook_ids"] == [webhook["uid"], other["uid"]]


def test_an_unknown_uid_is_a_warning_on_standard_error(webhook: Any, hookmill: Hookmill):
    printed = hookmill("automation", "create", "a", "--prompt", "x", "--webhook", UNKNOWN)

    assert "Automation a (aut_" in printed.out
    assert printed.err.startswith(f"Warning: {UNKNOWN} is not a webhook of factory 'default'")


def test_a_deleted_webhook_is_a_warning_in_json(automation: Any, webhook: Any, hookmill: Hookmill):
    hookmill("webhook", "delete", "source", "--yes")

    shown = hookmill("automation", "show", "triage", "--json").json

    assert shown["warnings"] == [f"'source' ({webhook['uid']}) is deleted, so it starts no runs."]


def test_an_unknown_name_is_refused(webhook: Any, hookmill: Hookmill):
    assert (
        "no webhook 'nope'"
        in hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "nope", exit_code=1).err
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--prompt", "a", "--prompt-file", "b", "--webhook", "w"], "exactly one of --prompt, --prompt-file"),
        (["--webhook", "w"], "exactly one of --prompt, --prompt-file"),
        (["--prompt", "a"], "--webhook"),
        (["--prompt", "a", "--webhook", "w", "--filter", "{}", "--filter-file", "f"], "at most one of --filter"),
    ],
)
def test_contradicting_options_are_wrong_usage(hookmill: Hookmill, options: list[str], said: str):
    assert said in hookmill("automation", "create", "a", *options, exit_code=2).err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "The payload filter is not JSON: Expecting property name enclosed in double quotes at line 1, column 2."),
        ("null", "The payload filter is null."),
        ('{"a": {"in": []}}', "/a/in: An empty array matches no value."),
        ('{"a": 1, "b": 2}', "/b: Write the values as an array"),
        ("[" * 100_000, "nested too deep"),
        (f'{{"a": [{"9" * 5000}]}}', "too many digits"),
    ],
    ids=["no JSON", "null", "an empty set", "every problem", "too deep", "too long a number"],
)
def test_a_filter_that_cannot_be_used_is_refused_with_the_place(
    webhook: Any, hookmill: Hookmill, given: str, said: str
):
    command = ("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", given)

    assert said in hookmill(*command, exit_code=1).err


def test_a_file_that_is_missing_is_named(webhook: Any, hookmill: Hookmill):
    printed = hookmill("automation", "create", "a", "--prompt-file", "nope.md", "--webhook", "source", exit_code=1)

    assert printed.err == "The prompt file nope.md can't be read: No such file or directory.\n"


def test_a_prompt_that_is_no_text_is_refused(webhook: Any, hookmill: Hookmill, tmp_path: Path):
    (tmp_path / "prompt.md").write_bytes(b"abc\xff")

    printed = hookmill("automation", "create", "a", "--prompt-file", "prompt.md", "--webhook", "source", exit_code=1)

    assert printed.err == "The prompt file prompt.md is not UTF-8: byte 4 can't be read.\n"


def test_an_unknown_runner_is_refused_with_those_that_are_configured(webhook: Any, hookmill: Hookmill):
    command = ("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--runner", "agent")

    assert "No runner is named 'agent'. The operator configured: package." in hookmill(*command, exit_code=1).err


def test_one_can_be_created_disabled_and_enabled_later(webhook: Any, hookmill: Hookmill):
    created = hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--disabled", "--json").json
    enabled = hookmill("automation", "enable", "a", "--json").json

    assert created["enabled"] is False
    assert enabled["enabled"] is True


def test_a_change_is_the_next_version_and_leaves_alone_what_is_not_given(automation: Any, hookmill: Hookmill):
    changed = hookmill("automation", "change", "triage", "--name", "sort", "--prompt", "Look twice.", "--json").json

    assert (changed["name"], changed["prompt"], changed["version"]) == ("sort", "Look twice.", 2)
    assert [changed[kept] for kept in ("automation_id", "triggers", "runner", "enabled")] == [
        automation[kept] for kept in ("automation_id", "triggers", "runner", "enabled")
    ]


def test_a_change_says_which_version_is_next(automation: Any, hookmill: Hookmill):
    unchanged = hookmill("automation", "change", "triage", "--runner", "package").out
    changed = hookmill("automation", "change", "triage", "--prompt", "Look twice.").out

    assert unchanged == f"Automation triage ({automation['automation_id']}) is now at version 1.\n"
    assert changed == f"Automation triage ({automation['automation_id']}) is now at version 2.\n"


def test_a_new_filter_keeps_the_webhooks_and_new_webhooks_keep_the_filter(
    automation: Any, webhook: Any, hookmill: Hookmill
):
    other = hookmill("webhook", "create", "other", "--json").json

    filtered = hookmill("automation", "change", "triage", "--filter", '{"n": [1]}', "--json").json
    moved = hookmill("automation", "change", "triage", "--webhook", "other", "--json").json
    opened = hookmill("automation", "change", "triage", "--no-filter", "--json").json

    assert [changed["triggers"][0]["filter"] for changed in (filtered, moved, opened)] == [
        {"webhook_ids": [webhook["uid"]], "payload": {"n": [1]}},
        {"webhook_ids": [other["uid"]], "payload": {"n": [1]}},
        {"webhook_ids": [other["uid"]]},
    ]


def test_event_types_are_given_changed_shown_and_taken_away(webhook: Any, hookmill: Hookmill):
    create = ("automation", "create", "typed", "--prompt", "x", "--webhook", "source")
    made = hookmill(*create, "--event", "push", "--event", "Push Hook", "--filter", '{"n": [1]}', "--json").json
    shown = hookmill("automation", "show", "typed").out
    plain = hookmill("automation", "change", "typed", "--no-filter", "--json").json
    fewer = hookmill("automation", "change", "typed", "--event", "ping", "--json").json
    warned = hookmill("automation", "show", "typed").err
    any_event = hookmill("automation", "change", "typed", "--any-event", "--json").json

    uids = [webhook["uid"]]
    assert [each["triggers"][0]["filter"] for each in (made, plain, fewer, any_event)] == [
        {"webhook_ids": uids, "event": ["push", "Push Hook"], "payload": {"n": [1]}},
        {"webhook_ids": uids, "event": ["push", "Push Hook"]},
        {"webhook_ids": uids, "event": ["ping"]},
        {"webhook_ids": uids},
    ]
    assert "  events    push, Push Hook\n" in shown
    assert "have no event type. Every trigger that selects it requires one" in warned
    assert any_event["warnings"] == []


def test_several_triggers_are_given_as_show_prints_them(automation: Any, hookmill: Hookmill, tmp_path: Path):
    two = automation["triggers"] * 2
    (tmp_path / "triggers.json").write_text(json.dumps(two))

    changed = hookmill("automation", "change", "triage", "--triggers-file", "triggers.json", "--json").json
    created = hookmill(
        "automation", "create", "a", "--prompt", "x", "--triggers-file", "-", "--json", stdin=json.dumps(two).encode()
    ).json

    assert changed["triggers"] == created["triggers"] == two


def test_one_of_several_triggers_is_not_guessed(automation: Any, hookmill: Hookmill, tmp_path: Path):
    (tmp_path / "triggers.json").write_text(json.dumps(automation["triggers"] * 2))
    hookmill("automation", "change", "triage", "--triggers-file", "triggers.json")

    printed = hookmill("automation", "change", "triage", "--no-filter", exit_code=1)

    assert printed.err.startswith("Automation 'triage' has 2 triggers, but these options change a single trigger.")
    assert "--triggers-file FILE" in printed.err


def test_a_change_that_is_refused_changes_nothing(automation: Any, hookmill: Hookmill):
    hookmill("automation", "change", "triage", "--prompt", "New.", "--webhook", "nope", exit_code=1)

    assert hookmill("automation", "show", "triage", "--json").json["version"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give at least one change"),
        (["--prompt", "a", "--prompt-file", "b"], "--prompt, --prompt-file"),
        (["--filter", "{}", "--no-filter"], "--filter, --filter-file, --no-filter, --triggers-file"),
        (["--webhook", "w", "--triggers-file", "f"], "--webhook, --triggers-file"),
    ],
)
def test_a_change_that_contradicts_itself_is_wrong_usage(hookmill: Hookmill, options: list[str], said: str):
    assert said in hookmill("automation", "change", "a", *options, exit_code=2).err


def test_the_list_says_what_became_of_the_selected_webhooks(automation: Any, hookmill: Hookmill):
    hookmill("webhook", "disable", "source")

    header, row = hookmill("automation", "list").out.splitlines()

    assert header.split() == ["NAME", "STATE", "RUNNER", "STARTED", "BY"]
    assert row.split() == ["triage", "enabled", "package", "source", "(disabled)"]


def test_the_list_as_json(automation: Any, hookmill: Hookmill):
    (listed,) = hookmill("automation", "list", "--json").json["automations"]

    assert listed["automation_id"] == automation["automation_id"]


def test_a_deleted_automation_is_gone(automation: Any, hookmill: Hookmill):
    deleted = hookmill("automation", "delete", "triage", "--json").json

    assert deleted["deleted"] is True
    assert hookmill("automation", "list", "--json").json == {"automations": []}
    assert "no automation 'triage'" in hookmill("automation", "show", "triage", exit_code=1).err


def test_a_prompt_cannot_take_over_the_terminal(webhook: Any, hookmill: Hookmill):
    hookmill("automation", "create", "a", "--prompt", "one\ntwo\x1b[31m[bold]", "--webhook", "source")

    assert "one\ntwo\\u001b[31m[bold]\n" in hookmill("automation", "show", "a").out


def test_filter_with_a_fraction_is_shown_exactly(automation: Any, hookmill: Hookmill):
    exact = '{"price": [0.10, 9007199254740993]}'

    hookmill("automation", "change", "triage", "--filter", exact)

    for command in ("show triage", "show triage --json", "list --json"):
        assert '{"price": [0.1, 9007199254740993]}' in hookmill("automation", *command.split()).out


def test_unreadable_trigger_is_reported_and_kept(automation: Any, log: LogWriter, hookmill: Hookmill):
    of_a_later_version = {"provider": "schedule", "event": "cron_fired", "filter": {"cron": "0 9 * * 1"}}
    stored = json.dumps([*automation["triggers"], of_a_later_version])
    with closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute("UPDATE automation_versions SET triggers = ?", (stored,))

    shown = hookmill("automation", "show", "triage")
    hookmill("automation", "change", "triage", "--prompt", "Another.")
    described = hookmill("automation", "show", "triage", "--json").json
    refused = hookmill("automation", "change", "triage", "--no-filter", exit_code=1)

    assert "Trigger     can't be read: {" in shown.out
    assert "Warning: A trigger that can't be read starts no runs" in shown.err
    assert described["triggers"] == [*automation["triggers"], of_a_later_version]
    assert "has triggers that can't be read" in refused.err


def test_filter_of_an_automation_without_a_readable_trigger_is_not_tested(
    automation: Any, log: LogWriter, hookmill: Hookmill
):
    with closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute("UPDATE automation_versions SET triggers = '[{}]'")

    refused = hookmill("filter", "test", "--automation", "triage", "--body", "-", stdin=b"{}", exit_code=1)

    assert refused.err == "Automation 'triage' has no readable trigger. `hookmill automation show` says why.\n"


# Run policies


POLICY = (
    "--concurrency-key",
    "/pull_request/number",
    "--when-busy",
    "replace",
    "--debounce",
    "30",
    "--priority",
    "low",
    "--max-running",
    "4",
    "--pause-after-failures",
    "3",
)


def created_with_policy(hookmill: Hookmill) -> Any:
    return hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", *POLICY, "--json").json


def test_a_policy_is_created_and_shown(webhook: Any, hookmill: Hookmill):
    created = created_with_policy(hookmill)
    shown = hookmill("automation", "show", "a").out

    assert created["concurrency"] == {"key": ["/pull_request/number"], "limit": 1, "when_busy": "replace"}
    assert created["debounce"] == {"seconds": 30, "max_seconds": 300}
    assert created["priority"] == "low"
    assert (created["max_running"], created["pause_after_failures"]) == (4, 3)
    assert "at most 4 runs at the same time" in shown
    assert "disabled after 3 failed runs in a row" in shown
    assert "at most 1 active run for each /pull_request/number; a new run replaces the oldest" in shown
    assert "starts 30 s after the newest delivery, at most 300 s after the first" in shown


def test_an_automation_without_a_policy_says_nothing_of_it(automation: Any, hookmill: Hookmill):
    assert (automation["concurrency"], automation["debounce"], automation["priority"]) == (None, None, "normal")
    assert "Concurrency" not in hookmill("automation", "show", "triage").out


def test_a_change_of_a_policy_keeps_what_is_left_out(webhook: Any, hookmill: Hookmill):
    created_with_policy(hookmill)

    changed = hookmill("automation", "change", "a", "--concurrency", "3", "--debounce-max", "60", "--json").json
    renamed = hookmill("automation", "change", "a", "--name", "b", "--json").json

    assert changed["concurrency"] == {"key": ["/pull_request/number"], "limit": 3, "when_busy": "replace"}
    assert changed["debounce"] == {"seconds": 30, "max_seconds": 60}
    assert renamed["concurrency"] == changed["concurrency"]
    assert (changed["version"], renamed["version"]) == (2, 3)


def test_a_policy_is_removed(webhook: Any, hookmill: Hookmill):
    created_with_policy(hookmill)

    changed = hookmill(
        "automation",
        "change",
        "a",
        "--no-concurrency",
        "--no-debounce",
        "--no-max-running",
        "--no-pause-after-failures",
        "--priority",
        "normal",
        "--json",
    ).json

    assert (changed["concurrency"], changed["debounce"], changed["priority"]) == (None, None, "normal")
    assert (changed["max_running"], changed["pause_after_failures"]) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "error"),
    [
        (("--concurrency", "0"), 1, "limit must be a whole number from 1 to 1,000"),
        (("--concurrency-key", "number"), 1, "A key must be a JSON pointer"),
        (("--debounce", "9", "--debounce-max", "3"), 1, "max_seconds must not be less than seconds"),
        (("--debounce-max", "3"), 1, "seconds must be a whole number from 1 to 86,400"),
        (("--no-concurrency", "--concurrency", "2"), 2, "one of --concurrency, --no-concurrency"),
    ],
)
def test_an_unusable_policy_is_refused(
    automation: Any, hookmill: Hookmill, arguments: tuple[str, ...], exit_code: int, error: str
):
    refused = hookmill("automation", "change", "triage", *arguments, exit_code=exit_code)

    assert error in " ".join(refused.err.split())


# Schedules


def scheduled(hookmill: Hookmill, *options: str) -> Any:
    return hookmill("automation", "create", "report", "--prompt", "Look.", *options, "--json").json


def test_schedules_have_names_times_and_options(log: LogWriter, hookmill: Hookmill):
    made = scheduled(
        hookmill,
        *("--schedule", "nightly=0 3 * * *", "--schedule", "often=@every 1h30m"),
        *("--timezone", "Europe/Berlin", "--catch-up", "none"),
    )

    options = {"timezone": "Europe/Berlin", "catch_up": "none"}
    assert [trigger["schedule"] for trigger in made["triggers"]] == [
        {"name": "nightly", "cron": "0 3 * * *"} | options,
        {"name": "often", "cron": "@every 1h30m"} | options,
    ]
    assert [schedule["name"] for schedule in made["next_times"]] == ["nightly", "often"]
    assert all(schedule["next_at"] for schedule in made["next_times"])


def test_schedules_are_shown_with_their_next_time(webhook: Any, hookmill: Hookmill):
    scheduled(hookmill, "--webhook", "source", "--schedule", "yearly=0 0 1 1 *", "--catch-up", "none")

    shown = hookmill("automation", "show", "report").out
    _, row = hookmill("automation", "list").out.splitlines()

    assert re.search(
        r"Schedule +yearly: 0 0 1 1 \* \(UTC, skips missed times\); next 2\d{3}-01-01 00:00:00 UTC\n", shown
    )
    assert row.split() == ["report", "enabled", "package", "source,", "schedule", "yearly"]
    hookmill("automation", "disable", "report")
    assert "skips missed times)\n" in hookmill("automation", "show", "report").out


def test_a_change_replaces_and_removes_schedules_and_keeps_the_webhooks(webhook: Any, hookmill: Hookmill):
    scheduled(hookmill, "--webhook", "source", "--schedule", "a=@daily", "--schedule", "b=@daily")

    def change(*options: str) -> list[str]:
        triggers = hookmill("automation", "change", "report", *options, "--json").json["triggers"]
        return [trigger.get("schedule", {}).get("name", "webhook") for trigger in triggers]

    assert change("--prompt", "New.") == ["webhook", "a", "b"]
    assert change("--event", "push") == ["webhook", "a", "b"]
    assert change("--schedule", "c=@hourly") == ["webhook", "c"]
    assert change("--no-schedule") == ["webhook"]


def test_a_webhook_is_added_to_schedules(webhook: Any, hookmill: Hookmill):
    scheduled(hookmill, "--schedule", "a=@daily")

    changed = hookmill("automation", "change", "report", "--webhook", "source", "--event", "push", "--json").json
    refused = hookmill("automation", "change", "report", "--no-schedule", exit_code=0)

    assert [trigger["provider"] for trigger in changed["triggers"]] == ["webhook", "schedule"]
    assert changed["triggers"][0]["filter"] == {"webhook_ids": [webhook["uid"]], "event": ["push"]}
    assert "is now at version 3" in refused.out


def test_the_last_schedule_without_a_webhook_stays(log: LogWriter, hookmill: Hookmill):
    scheduled(hookmill, "--schedule", "a=@daily")

    assert (
        "needs a list of one or more triggers"
        in hookmill("automation", "change", "report", "--no-schedule", exit_code=1).err
    )
    refused = hookmill("automation", "change", "report", "--event", "push", exit_code=1)
    assert refused.err == "Automation 'report' has no webhook trigger. Add one with --webhook.\n"


@pytest.mark.parametrize(
    ("options", "said", "exit_code"),
    [
        (["--schedule", "nightly"], "Write NAME=CRON", 2),
        (["--schedule", "nightly=@reboot"], "'@reboot' is not a schedule.", 1),
        (["--schedule", "a=@daily", "--timezone", "Mars"], "timezone must be an IANA name", 1),
        (["--schedule", "a=@daily", "--schedule", "a=@hourly"], "another schedule of the automation is named 'a'", 1),
        (["--schedule", "a=@daily", "--triggers-file", "f"], "--schedule, --triggers-file", 2),
        (["--schedule", "a=@daily", "--event", "push"], "--event needs --webhook", 2),
        (["--schedule", "a=@daily", "--filter", "{}"], "--filter needs --webhook", 2),
        (["--timezone", "UTC", "--webhook", "source"], "--timezone and --catch-up need --schedule", 2),
    ],
)
def test_unusable_schedules_are_refused(
    log: LogWriter, hookmill: Hookmill, options: list[str], said: str, exit_code: int
):
    assert said in hookmill("automation", "create", "report", "--prompt", "x", *options, exit_code=exit_code).err


# Runs by hand


def test_a_run_by_hand_is_queued_and_shown(log: LogWriter, hookmill: Hookmill):
    scheduled(hookmill, "--schedule", "a=@daily")

    printed = hookmill("automation", "run", "report").out
    [run] = hookmill("run", "list", "--json").json["runs"]

    assert printed.startswith(f"Run {run['run_id']} of report is queued. To see its state: ")
    assert (run["started_by"], run["delivery_id"], run["webhook_uid"]) == ("person", None, None)
    assert f"Started by  {run['person']}, by hand\n" in hookmill("run", "show", run["run_id"]).out
    assert "report (by hand)" in hookmill("run", "list").out
    assert json.loads(hookmill("run", "export").out)["run_id"] == run["run_id"]


def test_a_run_by_hand_takes_a_payload_from_a_file_or_a_pipe(
    log: LogWriter, hookmill: Hookmill, tmp_path: Path, data_dir: Path
):
    scheduled(hookmill, "--schedule", "a=@daily")
    (tmp_path / "order.json").write_bytes(b'{"n":  1.0}\n')

    hookmill("automation", "run", "report", "--payload", "order.json", "--json")
    hookmill("automation", "run", "report", "--payload", "-", stdin=b"[1]")
    refused = hookmill("automation", "run", "report", "--payload", "-", stdin=b"{", exit_code=1)

    with closing(sqlite3.connect(data_dir / "hookmill.db")) as database:
        assert {body for (body,) in database.execute("SELECT body FROM payloads")} == {b'{"n":  1.0}\n', b"[1]"}
    assert refused.err.startswith("The payload is not JSON")


def test_a_disabled_automation_is_not_run(log: LogWriter, hookmill: Hookmill):
    scheduled(hookmill, "--schedule", "a=@daily", "--disabled")

    assert "is disabled. Enable it first." in hookmill("automation", "run", "report", exit_code=1).err
