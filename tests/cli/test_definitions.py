"""`hookmill validate`, `plan`, `apply` and `export`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookmill import app
from hookmill.settings import read_settings
from tests.cli.conftest import Hookmill, LogWriter
from tests.definitions.conftest import write

SOURCE = {"webhooks/source.yaml": "secretName: TOKEN\n"}
NEW = "wh_" + "0" * 27

Wrote = Callable[[dict[str, str]], Path]


@pytest.fixture
def files(tmp_path: Path, log: LogWriter) -> Wrote:
    """Writes definitions into the folder `ops`. The secret `TOKEN` is there, and a factory without webhooks."""
    settings = read_settings()
    store = app.open_store(settings)
    management = app.build_management(settings, store)
    management.secrets.create(management.access.operator("default"), "TOKEN", "the-token")
    store.close()
    write(tmp_path / "ops", {})
    return lambda contents: write(tmp_path / "ops", contents)


def triage(uid: str, payload: str = "") -> dict[str, str]:
    chosen = f"{{webhook_ids: [{uid}]{payload}}}"
    trigger = f"triggers: [{{provider: webhook, event: received, filter: {chosen}}}]"
    return {"automations/triage/automation.md": f"---\n{trigger}\n---\nLook.\n"}


# Exit codes


def test_0_is_nothing_to_do_2_is_changes_and_1_is_an_error(files: Wrote, hookmill: Hookmill):
    files(SOURCE)
    hookmill("plan", "ops", exit_code=2)
    hookmill("apply", "ops", exit_code=2)
    hookmill("plan", "ops", exit_code=0)
    hookmill("apply", "ops", exit_code=0)
    files({"webhooks/source.yaml": "secretName: NOWHERE\n"})
    hookmill("plan", "ops", exit_code=1)
    hookmill("apply", "ops", exit_code=1)


@pytest.mark.parametrize("command", ["plan", "apply", "validate", "export"])
@pytest.mark.parametrize("arguments", [[], ["ops", "--colour"], ["ops", "beside"]])
def test_wrong_usage_does_not_look_like_changes(hookmill: Hookmill, command: str, arguments: list[str]):
    assert "Usage: " in hookmill(command, *arguments, exit_code=1).err


@pytest.mark.parametrize("command", ["plan", "apply", "export"])
def test_unusable_settings_do_not_look_like_changes(
    files: Wrote, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch, command: str
):
    monkeypatch.setenv("HOOKMILL_PORT", "none")

    assert "HOOKMILL_PORT" in hookmill(command, "ops", exit_code=1).err


@pytest.mark.parametrize("command", ["plan", "apply", "validate"])
def test_a_folder_that_is_not_there_is_an_error(files: Wrote, hookmill: Hookmill, command: str):
    assert hookmill(command, "nowhere", exit_code=1).err == "There is no folder nowhere.\n"


def test_a_folder_without_definitions_is_reported_without_a_line(hookmill: Hookmill, tmp_path: Path):
    (tmp_path / "empty").mkdir()

    said = (
        "There is neither a folder webhooks nor a folder automations in empty. "
        "Give the path of the folder that contains them."
    )
    assert hookmill("validate", "empty", exit_code=1).err == f"{said}\n1 problem.\n"
    assert hookmill("validate", "empty", "--json", exit_code=1).json == {
        "problems": [{"file": ".", "line": None, "column": None, "message": said}]
    }


def test_taking_a_factory_over_is_a_change_and_then_it_is_none(webhook: Any, automation: Any, hookmill: Hookmill):
    hookmill("export", "ops")

    planned, applied = hookmill("plan", "ops", exit_code=2), hookmill("apply", "ops", exit_code=2)

    for printed in (planned, applied):
        assert printed.out.startswith(
            "~ factory default: defined by files from now on\n"
            "0 to create, 0 to change, 0 to remove, 2 unchanged; afterwards only files can change the definitions.\n"
        )
    assert hookmill("apply", "ops", exit_code=0).out.startswith(
        "Nothing to do: all webhooks and automations match the files (2).\n"
    )


# What is printed


def test_a_plan_is_a_diff_and_lists_the_uids(files: Wrote, hookmill: Hookmill):
    files(SOURCE | {"webhooks/later.yaml": "authMode: url_token\nsecretName: TOKEN\nenabled: false\n"})
    hookmill("apply", "ops", exit_code=2)
    files({"webhooks/source.yaml": "secretName: TOKEN\ndeliveryIdHeader: X-Id\n", **triage(NEW)})

    printed = hookmill("plan", "ops", exit_code=2)

    lines = printed.out.splitlines()
    assert lines[:3] == [
        "~ webhook source: deliveryIdHeader none → X-Id",
        "+ automation triage: runner package, 1 trigger",
        "1 to create, 1 to change, 0 to remove, 1 unchanged.",
    ]
    assert [line.split()[0] for line in lines[5:]] == ["later", "source"]
    assert all("wh_" in line and line.endswith(("{token}", line.split()[1])) for line in lines[5:])
    assert printed.err == (
        f"Warning: automations/triage/automation.md:2:72: {NEW} is not a webhook of factory 'default', "
        "so it starts no runs.\n"
    )


def test_an_apply_says_what_it_did(files: Wrote, hookmill: Hookmill):
    files(SOURCE)

    lines = hookmill("apply", "ops", exit_code=2).out.splitlines()

    assert lines[:4] == [
        "~ factory default: defined by files from now on",
        "+ webhook source: token, secret TOKEN",
        "1 to create, 0 to change, 0 to remove, 0 unchanged; afterwards only files can change the definitions.",
        "From now on, only files can change the definitions of factory default.",
    ]
    assert lines[6].startswith("source   wh_")


def test_nothing_to_do_is_said(files: Wrote, hookmill: Hookmill):
    files(SOURCE)
    hookmill("apply", "ops", exit_code=2)

    assert hookmill("apply", "ops").out.startswith("Nothing to do: all webhooks and automations match the files (1).\n")


def test_no_output_holds_a_secret(files: Wrote, hookmill: Hookmill):
    files(SOURCE | {"webhooks/form.yaml": "authMode: url_token\nsecretName: TOKEN\n"})

    printed = [
        hookmill("plan", "ops", exit_code=2),
        hookmill("apply", "ops", exit_code=2),
        hookmill("export", "elsewhere"),
    ]

    assert all("the-token" not in each.out + each.err for each in printed)


def test_problems_are_printed_with_their_places_on_standard_error(files: Wrote, hookmill: Hookmill):
    files({"webhooks/a.yaml": "secretName: TOKEN\nauthmode: token\n", "webhooks/b.yaml": "<<<<<<< HEAD\n"})

    for command, so in (("plan", " Nothing was changed."), ("apply", " Nothing was changed."), ("validate", "")):
        printed = hookmill(command, "ops", exit_code=1)
        assert printed.out == ""
        assert printed.err == (
            "webhooks/a.yaml:2:1: Unknown key 'authmode'. Did you mean authMode?\n"
            "webhooks/b.yaml:1:1: A merge is unresolved here. Choose one side, "
            "and remove the lines <<<<<<<, ======= and >>>>>>>.\n"
            f"2 problems.{so}\n"
        )


def test_names_cannot_take_over_the_terminal(files: Wrote, hookmill: Hookmill):
    files({"webhooks/a.yaml": 'name: "a\u202eb[red]"\nsecretName: TOKEN\n'})

    assert "+ webhook a\\u202eb[red]: token" in hookmill("plan", "ops", exit_code=2).out


def test_a_filter_that_matches_nothing_stored_is_warned_of(files: Wrote, hookmill: Hookmill, log: LogWriter):
    files(SOURCE)
    uid = hookmill("apply", "ops", "--json", exit_code=2).json["webhooks"][0]["uid"]
    log.add_delivery(uid, body=b'{"action": "opened"}')
    files(triage(uid, ", payload: {action: [open]}"))

    for command in ("plan", "apply"):
        assert "would not have matched the one delivery stored" in hookmill(command, "ops", exit_code=2).err


# JSON


def test_a_plan_in_json(files: Wrote, hookmill: Hookmill):
    files(SOURCE | triage(NEW))

    planned = hookmill("plan", "ops", "--json", exit_code=2).json

    webhook, automation = planned["steps"]
    assert {key: planned[key] for key in ("factory", "applied", "changes", "takes_over", "needs_consent")} == {
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
    assert automation["changes"][1]["after"][0]["filter"] == {"webhook_ids": [NEW]}
    assert [(warning["line"], warning["column"]) for warning in planned["warnings"]] == [(2, 72)]


def test_problems_in_json(files: Wrote, hookmill: Hookmill):
    files({"webhooks/a.yaml": "secretName: TOKEN\nauthmode: token\n"})

    for command in ("plan", "apply", "validate"):
        assert hookmill(command, "ops", "--json", exit_code=1).json == {
            "problems": [
                {
                    "file": "webhooks/a.yaml",
                    "line": 2,
                    "column": 1,
                    "message": "Unknown key 'authmode'. Did you mean authMode?",
                }
            ]
        }


# Consent


def test_deleting_a_webhook_needs_its_own_option(files: Wrote, hookmill: Hookmill, tmp_path: Path):
    files(SOURCE)
    hookmill("apply", "ops", exit_code=2)
    (tmp_path / "ops" / "webhooks" / "source.yaml").unlink()

    planned, applied = hookmill("plan", "ops", exit_code=1), hookmill("apply", "ops", exit_code=1)
    hookmill("plan", "ops", "--allow-deletions", exit_code=2)
    hookmill("apply", "ops", "--allow-deletions", exit_code=2)

    assert planned.out.startswith("- webhook source (wh_")
    for printed in (planned, applied):
        assert (
            "Factory 'default' would lose webhook 'source': senders get 404, and the URL can't be restored. "
            "If the files are for another factory, use --factory NAME."
        ) in printed.err
        assert "apply ops --allow-deletions" in printed.err
    assert hookmill("webhook", "list", "--json").json == {"webhooks": []}


# Checking offline


def test_files_are_checked_without_an_installation(hookmill: Hookmill, tmp_path: Path):
    write(tmp_path / "ops", SOURCE | triage(NEW))

    assert hookmill("validate", "ops").out == (
        "ops has 1 webhook and 1 automation, and no problem that can be detected without the factory.\n"
    )
    assert hookmill("validate", "ops", "--json").json == {
        "webhook_count": 1,
        "automation_count": 1,
        "problems": [],
    }
    assert not (tmp_path / "data").exists()


def test_files_that_use_more_than_the_contracts_operators_are_named(hookmill: Hookmill, tmp_path: Path):
    payload = ", payload: {a: {$prefix: x}, b: {$any: [[1], {c: {$gt: 5}}]}, d: {not_in: [1]}}"
    write(tmp_path / "ops", SOURCE | triage(NEW, payload))
    write(tmp_path / "plain", triage(NEW, ", payload: {gt: [5], a: {prefix: {exists: true}}}"))

    refused = hookmill("validate", "ops", "--contract-only", exit_code=1)
    listed = hookmill("validate", "ops", "--contract-only", "--json", exit_code=1).json["problems"]

    said = "This operator is not one of the contract's, which are in, not_in, exists."
    lines = refused.err.splitlines()
    assert [line.partition(": /")[2] for line in lines[:-1]] == [
        f"{at}: {said}" for at in ("a/$prefix", "b/$any", "b/$any/1/c/$gt")
    ]
    assert lines[-1] == "3 problems."
    assert {(each["file"], each["line"]) for each in listed} == {("automations/triage/automation.md", 2)}
    assert len({each["column"] for each in listed}) == 3
    hookmill("validate", "ops", exit_code=0)
    hookmill("validate", "plain", "--contract-only", exit_code=0)


def test_files_with_event_types_are_named_as_beyond_the_contract(hookmill: Hookmill, tmp_path: Path):
    write(tmp_path / "ops", SOURCE | triage(NEW, ", event: [push], payload: {a: [1]}"))

    refused = hookmill("validate", "ops", "--contract-only", exit_code=1).err.splitlines()

    assert refused[0].endswith("The contract has no event types in filters. Use a condition on the payload instead.")
    assert refused[1:] == ["1 problem."]
    hookmill("validate", "ops", exit_code=0)


# The way back


def test_an_export_says_what_the_first_apply_does_until_it_is_done(webhook: Any, hookmill: Hookmill):
    by_hand = hookmill("export", "ops").out
    hookmill("apply", "ops", exit_code=2)
    by_files = hookmill("export", "again").out

    assert by_hand.startswith("Wrote 1 file to ops. They contain names of secrets, never values.")
    assert "After the first apply" in by_hand
    assert by_files == "Wrote 1 file to again. They contain names of secrets, never values.\n"


def test_an_export_in_json(webhook: Any, hookmill: Hookmill):
    assert hookmill("export", "ops", "--json").json == {"folder": "ops", "files": ["webhooks/source.yaml"]}


def test_an_export_overwrites_nothing(webhook: Any, hookmill: Hookmill):
    hookmill("export", "ops")

    assert "already exists. Nothing was written." in hookmill("export", "ops", exit_code=1).err


def test_an_unknown_factory_is_an_error(files: Wrote, hookmill: Hookmill):
    for command in ("plan", "apply", "export"):
        assert "No factory is named 'nope'." in hookmill(command, "ops", "--factory", "nope", exit_code=1).err


def test_contract_only_refuses_run_policies(hookmill: Hookmill, tmp_path: Path):
    folder = tmp_path / "policies" / "automations" / "triage"
    folder.mkdir(parents=True)
    trigger = "  - {provider: webhook, event: received, filter: {webhook_ids: [wh_x]}}"
    (folder / "automation.md").write_text(f"---\npriority: high\ntriggers:\n{trigger}\n---\nLook.\n")

    hookmill("validate", str(tmp_path / "policies"))
    refused = hookmill("validate", str(tmp_path / "policies"), "--contract-only", exit_code=1).err

    assert "2:11: The contract has no run policies. Remove this key." in refused


def test_files_with_schedules_are_named_as_beyond_the_contract(hookmill: Hookmill, tmp_path: Path):
    folder = tmp_path / "scheduled" / "automations" / "a"
    folder.mkdir(parents=True)
    trigger = "  - {provider: schedule, event: cron_fired, schedule: {name: nightly, cron: '@daily'}}"
    (folder / "automation.md").write_text(f"---\ntriggers:\n{trigger}\n---\nLook.\n")

    hookmill("validate", str(tmp_path / "scheduled"))
    refused = hookmill("validate", str(tmp_path / "scheduled"), "--contract-only", exit_code=1).err

    assert "3:5: The contract has no schedules. Remove this trigger." in refused
