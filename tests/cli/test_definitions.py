"""`hookmill validate`, `plan`, `apply` and `export`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hookmill import app
from hookmill.settings import read_settings
from tests.definitions.conftest import write

SOURCE = {"webhooks/source.yaml": "secretName: TOKEN\n"}
UNKNOWN_UID = "wh_" + "0" * 27

WriteFiles = Callable[[dict[str, str]], Path]


@pytest.fixture
def write_files(tmp_path, log):
    """Writes definition files to the folder `ops`. The factory has no webhooks, and the team has the secret `TOKEN`."""
    settings = read_settings()
    store = app.open_store(settings)
    management = app.build_management(settings, store)
    management.secrets.create(management.access.operator("default"), "TOKEN", "the-token")
    store.close()
    write(tmp_path / "ops", {})
    return lambda contents: write(tmp_path / "ops", contents)


def triage_files(uid: str, payload: str = "") -> dict[str, str]:
    filter_ = f"{{webhook_ids: [{uid}]{payload}}}"
    triggers = f"triggers: [{{provider: webhook, event: received, filter: {filter_}}}]"
    return {"automations/triage/automation.md": f"---\n{triggers}\n---\nLook.\n"}


# Exit codes


def test_exit_code_tells_errors_and_planned_changes(write_files, hookmill):
    write_files(SOURCE)
    hookmill("plan", "ops", exit_code=2)
    hookmill("apply", "ops")
    hookmill("plan", "ops", exit_code=0)
    hookmill("apply", "ops", exit_code=0)
    write_files({"webhooks/source.yaml": "secretName: NOWHERE\n"})
    hookmill("plan", "ops", exit_code=1)
    hookmill("apply", "ops", exit_code=1)


@pytest.mark.parametrize("command", ["plan", "apply", "validate", "export"])
@pytest.mark.parametrize("arguments", [[], ["ops", "--colour"], ["ops", "another"]])
def test_exit_code_of_wrong_usage_differs_from_that_of_changes(hookmill, command, arguments):
    assert "Usage: " in hookmill(command, *arguments, exit_code=1).err


@pytest.mark.parametrize("command", ["plan", "apply", "export"])
def test_exit_code_of_invalid_settings_differs_from_that_of_changes(write_files, hookmill, monkeypatch, command):
    monkeypatch.setenv("HOOKMILL_PORT", "none")

    assert "HOOKMILL_PORT" in hookmill(command, "ops", exit_code=1).err


@pytest.mark.parametrize("command", ["plan", "apply", "validate"])
def test_missing_folder_is_an_error(write_files, hookmill, command):
    assert hookmill(command, "nowhere", exit_code=1).err == "There is no folder nowhere.\n"


def test_folder_without_definitions_is_a_problem_without_a_line(hookmill, tmp_path):
    (tmp_path / "empty").mkdir()

    message = (
        "There is neither a folder webhooks nor a folder automations in empty. "
        "Give the path of the folder that contains them."
    )
    assert hookmill("validate", "empty", exit_code=1).err == f"{message}\n1 problem.\n"
    assert hookmill("validate", "empty", "--json", exit_code=1).json == {
        "problems": [{"file": ".", "line": None, "column": None, "message": message}]
    }


def test_apply_of_an_export_only_changes_who_defines_the_factory(webhook, automation, hookmill):
    hookmill("export", "ops")

    planned, applied = hookmill("plan", "ops", exit_code=2), hookmill("apply", "ops")

    for result in (planned, applied):
        assert result.out.startswith(
            "~ factory default: defined by files from now on\n"
            "0 to create, 0 to change, 0 to remove, 2 unchanged; afterwards only files can change the definitions.\n"
        )
    assert hookmill("apply", "ops", exit_code=0).out.startswith(
        "Nothing to do: all webhooks and automations match the files (2).\n"
    )


# Output


def test_plan_prints_a_diff_and_the_uids(write_files, hookmill):
    write_files(SOURCE | {"webhooks/later.yaml": "authMode: url_token\nsecretName: TOKEN\nenabled: false\n"})
    hookmill("apply", "ops")
    write_files({"webhooks/source.yaml": "secretName: TOKEN\ndeliveryIdHeader: X-Id\n", **triage_files(UNKNOWN_UID)})

    result = hookmill("plan", "ops", exit_code=2)

    lines = result.out.splitlines()
    assert lines[:3] == [
        "~ webhook source: deliveryIdHeader none → X-Id",
        "+ automation triage: runner package, 1 trigger",
        "1 to create, 1 to change, 0 to remove, 1 unchanged.",
    ]
    assert [line.split()[0] for line in lines[5:]] == ["later", "source"]
    assert all("wh_" in line and line.endswith(("{token}", line.split()[1])) for line in lines[5:])
    assert result.err == (
        f"Warning: automations/triage/automation.md:2:72: {UNKNOWN_UID} is not a webhook of factory 'default', "
        "so it starts no runs.\n"
    )


def test_apply_prints_the_changes(write_files, hookmill):
    write_files(SOURCE)

    lines = hookmill("apply", "ops").out.splitlines()

    assert lines[:4] == [
        "~ factory default: defined by files from now on",
        "+ webhook source: authMode token, secretName TOKEN",
        "1 to create, 0 to change, 0 to remove, 0 unchanged; afterwards only files can change the definitions.",
        "From now on, only files can change the definitions of factory default.",
    ]
    assert lines[6].startswith("source   wh_")


def test_no_output_contains_a_secret(write_files, hookmill):
    write_files(SOURCE | {"webhooks/form.yaml": "authMode: url_token\nsecretName: TOKEN\n"})

    results = [
        hookmill("plan", "ops", exit_code=2),
        hookmill("apply", "ops"),
        hookmill("export", "elsewhere"),
    ]

    assert all("the-token" not in result.out + result.err for result in results)


def test_problems_are_printed_with_locations_on_standard_error(write_files, hookmill):
    write_files({"webhooks/a.yaml": "secretName: TOKEN\nauthmode: token\n", "webhooks/b.yaml": "<<<<<<< HEAD\n"})

    for command, outcome in (("plan", " Nothing was changed."), ("apply", " Nothing was changed."), ("validate", "")):
        result = hookmill(command, "ops", exit_code=1)
        assert result.out == ""
        assert result.err == (
            "webhooks/a.yaml:2:1: Unknown key 'authmode'. Did you mean authMode?\n"
            "webhooks/b.yaml:1:1: A merge is unresolved here. Choose one side, "
            "and remove the lines <<<<<<<, ======= and >>>>>>>.\n"
            f"2 problems.{outcome}\n"
        )


def test_control_characters_in_names_are_escaped(write_files, hookmill):
    write_files({"webhooks/a.yaml": 'name: "a\u202eb[red]"\nsecretName: TOKEN\n'})

    assert "+ webhook a\\u202eb[red]: authMode token" in hookmill("plan", "ops", exit_code=2).out


def test_filter_that_matches_no_stored_delivery_causes_a_warning(write_files, hookmill, log):
    write_files(SOURCE)
    uid = hookmill("apply", "ops", "--json").json["webhooks"][0]["uid"]
    log.add_delivery(uid, body=b'{"action": "opened"}')
    write_files(triage_files(uid, ", payload: {action: [open]}"))

    for command, exit_code in (("plan", 2), ("apply", 0)):
        assert "would not have matched the one delivery stored" in hookmill(command, "ops", exit_code=exit_code).err


# JSON


def test_plan_in_json(write_files, hookmill):
    write_files(SOURCE | triage_files(UNKNOWN_UID))

    plan = hookmill("plan", "ops", "--json", exit_code=2).json

    webhook, automation = plan["steps"]
    assert {key: plan[key] for key in ("factory", "applied", "changes", "takes_over", "needs_consent")} == {
        "factory": "default",
        "applied": False,
        "changes": True,
        "takes_over": True,
        "needs_consent": None,
    }
    assert webhook == {
        "act": "create",
        "kind": "webhook",
        "name": "source",
        "id": None,
        "file": "webhooks/source.yaml",
        "changes": [
            {"key": "authMode", "before": None, "after": "token", "concerns_senders": False},
            {"key": "secretName", "before": None, "after": "TOKEN", "concerns_senders": False},
            {"key": "enabled", "before": None, "after": True, "concerns_senders": False},
        ],
    }
    assert automation["changes"][1]["after"][0]["filter"] == {"webhook_ids": [UNKNOWN_UID]}
    assert [(warning["line"], warning["column"]) for warning in plan["warnings"]] == [(2, 72)]


# Consent


def test_deletion_of_a_webhook_requires_an_option(write_files, hookmill, tmp_path):
    write_files(SOURCE)
    hookmill("apply", "ops")
    (tmp_path / "ops" / "webhooks" / "source.yaml").unlink()

    planned, applied = hookmill("plan", "ops", exit_code=1), hookmill("apply", "ops", exit_code=1)
    hookmill("plan", "ops", "--allow-deletions", exit_code=2)
    hookmill("apply", "ops", "--allow-deletions")

    assert planned.out.startswith("- webhook source (wh_")
    for result in (planned, applied):
        assert (
            "Factory 'default' would lose webhook 'source': senders get 404, and the URL can't be restored. "
            "If the files are for another factory, use --factory NAME."
        ) in result.err
        assert "apply ops --allow-deletions" in result.err
    assert hookmill("webhook", "list", "--json").json == {"items": []}


# Validation without an installation


def test_files_are_validated_without_an_installation(hookmill, tmp_path):
    write(tmp_path / "ops", SOURCE | triage_files(UNKNOWN_UID))

    assert hookmill("validate", "ops").out == (
        "ops has 1 webhook and 1 automation, and no problem that can be detected without the factory.\n"
    )
    assert hookmill("validate", "ops", "--json").json == {
        "webhook_count": 1,
        "automation_count": 1,
        "problems": [],
        "warnings": [],
    }
    assert not (tmp_path / "data").exists()


# Exports


def test_export_explains_the_first_apply_only_before_it(webhook, hookmill):
    before = hookmill("export", "ops").out
    hookmill("apply", "ops")
    after = hookmill("export", "again").out

    assert before.startswith("Wrote 1 file to ops, with names of secrets, but no values.")
    assert "After the first apply" in before
    assert after == "Wrote 1 file to again, with names of secrets, but no values.\n"


def test_export_in_json(webhook, hookmill):
    assert hookmill("export", "ops", "--json").json == {"folder": "ops", "files": ["webhooks/source.yaml"]}


def test_export_does_not_overwrite_files(webhook, hookmill):
    hookmill("export", "ops")

    assert "already exists. Nothing was written." in hookmill("export", "ops", exit_code=1).err


def test_unknown_factory_is_an_error(write_files, hookmill):
    for command in ("plan", "apply", "export"):
        assert "No factory is named 'nope'." in hookmill(command, "ops", "--factory", "nope", exit_code=1).err


NIGHTLY = "{{provider: schedule, event: cron_fired, schedule: {{name: nightly, cron: '@daily'{}}}}}"
RECEIVED = "{{provider: webhook, event: received, filter: {{webhook_ids: [wh_x]{}}}}}"
NOT_AN_OPERATOR = "This operator is not one of the contract's, which are in, not_in, exists."


@pytest.mark.parametrize(
    ("keys", "trigger", "problems"),
    [
        ("", RECEIVED.format(", payload: {gt: [5], a: {prefix: {exists: true}}}"), []),
        (
            "",
            RECEIVED.format(", payload: {a: {$prefix: x}, b: {$any: [[1], {c: {$gt: 5}}]}, d: {not_in: [1]}}"),
            [f"/{pointer}: {NOT_AN_OPERATOR}" for pointer in ("a/$prefix", "b/$any", "b/$any/1/c/$gt")],
        ),
        (
            "",
            RECEIVED.format(", event: [push], payload: {a: [1]}"),
            ["The contract has no event types in filters. Use a condition on the payload instead."],
        ),
        ("priority: high\n", RECEIVED.format(""), [":2:11: The contract has no run policies. Remove this key."]),
        ("fields: {pr: /pr}\n", RECEIVED.format(""), [":2:9: The contract has no run options. Remove this key."]),
        ("secrets: [TOKEN]\n", NIGHTLY.format(""), []),
        (
            "",
            NIGHTLY.format(", timezone: Europe/Berlin"),
            ["Other implementations have schedules without this key. Remove it."],
        ),
    ],
)
def test_contract_only_refuses_extensions(hookmill, tmp_path, keys, trigger, problems):
    path = "automations/triage/automation.md"
    write(tmp_path / "ops", {path: f"---\n{keys}triggers:\n  - {trigger}\n---\nLook.\n"})
    hookmill("validate", "ops")

    lines = hookmill("validate", "ops", "--contract-only", exit_code=int(bool(problems))).err.splitlines()
    in_json = hookmill("validate", "ops", "--contract-only", "--json", exit_code=int(bool(problems))).json

    assert [line.endswith(problem) for line, problem in zip(lines[:-1], problems, strict=True)] == [True] * len(
        problems
    )
    places = {(problem["file"], problem["line"], problem["column"]) for problem in in_json["problems"]}
    assert (len(places), {file for file, _, _ in places} <= {path}) == (len(problems), True)
