"""`hookmill secret`."""

import pytest

CHOSEN_VALUE = "a-chosen-value"


@pytest.fixture
def shared_secret(log, hookmill):
    """The team secret SHARED with `CHOSEN_VALUE`, and the webhook `orders` that uses it."""
    hookmill("secret", "create", "SHARED", "--from-stdin", stdin=CHOSEN_VALUE.encode())
    hookmill("webhook", "create", "orders", "--secret-name", "SHARED")


def test_generated_value_is_printed_once(log, hookmill):
    output = hookmill("secret", "create", "STRIPE").out
    (value,) = [line.split()[1] for line in output.splitlines() if line.startswith("Value")]

    assert len(value) >= 43
    assert "Save it now: it is not shown again.\n" in output
    assert "webhook create NAME --secret-name STRIPE\n" in output
    assert output.endswith("Or write in a definition file: secretName: STRIPE\n")
    for command in (["show", "STRIPE"], ["show", "STRIPE", "--json"], ["list"], ["list", "--json"]):
        assert value not in hookmill("secret", *command).out


@pytest.mark.parametrize("command", [["create", "NEW"], ["replace", "OLD"]])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_chosen_value_is_never_printed(log, hookmill, command, as_json):
    hookmill("secret", "create", "OLD")

    result = hookmill("secret", *command, "--from-stdin", *as_json, stdin=f"{CHOSEN_VALUE}\n".encode())

    assert CHOSEN_VALUE not in result.out + result.err


def test_show_in_json_has_every_field_but_the_value(shared_secret, hookmill):
    secret = hookmill("secret", "show", "SHARED", "--json").json

    assert secret.pop("created_at") == secret.pop("changed_at")
    assert secret == {
        "name": "SHARED",
        "has_value": True,
        "used_by": ["orders"],
        "used_elsewhere": False,
        "for_runs": False,
        "created_here": True,
        "used_by_automations": [],
        "not_synced": [],
    }


def test_list_names_the_webhooks_that_use_each_secret(shared_secret, hookmill):
    hookmill("factory", "create", "payments")
    hookmill("webhook", "create", "p", "--secret-name", "SHARED", "--factory", "payments")
    hookmill("secret", "create", "UNUSED")
    hookmill("webhook", "create", "repo", "--mode", "signature", "--scheme", "github")

    header, *rows = hookmill("secret", "list").out.splitlines()

    assert header.split("  ")[0] == "NAME"
    assert [(row.split()[0], row.rpartition("  ")[2]) for row in rows] == [
        ("SHARED", "orders, webhooks of other factories"),
        ("UNUSED", "nothing"),
        ("WEBHOOK_REPO_SECRET", "repo"),
    ]
    assert "no value yet" in rows[2]


def test_replace_names_the_webhooks_that_need_a_sync(shared_secret, hookmill):
    output = hookmill("secret", "replace", "SHARED").out
    (command,) = [line for line in output.splitlines() if "webhook sync" in line]
    webhook = hookmill("webhook", "show", "orders", "--json").json
    hookmill(*command.partition("#")[0].split()[-3:])

    assert command.endswith("# orders")
    assert webhook["secret_is_current"] is False
    assert hookmill("webhook", "show", "orders", "--json").json["secret_is_current"] is True


def test_replace_warns_of_webhooks_in_other_factories(shared_secret, hookmill):
    hookmill("factory", "create", "payments")

    output = hookmill("secret", "replace", "SHARED", "--factory", "payments").out

    assert "Webhooks of other factories use it too" in output


def test_refused_deletion_names_all_webhooks_that_use_the_secret(shared_secret, hookmill):
    hookmill("webhook", "create", "returns", "--secret-name", "SHARED")

    result = hookmill("secret", "delete", "SHARED", exit_code=1)

    assert result.err == "Team secret SHARED is used by 'orders', 'returns'. Delete these webhooks first.\n"


def test_create_names_the_files_if_files_define_the_factory(shared_secret, hookmill):
    hookmill("export", "ops")
    hookmill("apply", "ops")

    output = hookmill("secret", "create", "STRIPE").out

    assert output.endswith("To use it, write in a webhook's file: secretName: STRIPE\n")
    assert "webhook create" not in output


def test_secret_for_runs_is_for_no_webhook(log, hookmill):
    created = hookmill("secret", "create", "GH_TOKEN", "--for-runs", "--from-stdin", stdin=CHOSEN_VALUE.encode()).out
    shown = hookmill("secret", "show", "GH_TOKEN").out
    refused = hookmill("webhook", "create", "by run", "--secret-name", "GH_TOKEN", exit_code=1).err
    too_short = hookmill("secret", "create", "A", "--for-runs", "--from-stdin", stdin=b"1234567", exit_code=1).err

    assert "automation change AUTOMATION --secret GH_TOKEN\n" in created
    assert "runs" in next(line for line in shown.splitlines() if line.startswith("For"))
    assert "is for runs" in refused
    assert "at least 8 characters" in too_short


def test_secret_for_runs_of_another_factory_is_listed_as_such(log, hookmill):
    hookmill("factory", "create", "other")
    hookmill("secret", "create", "GH_TOKEN", "--for-runs")

    [listed] = hookmill("secret", "list", "--factory", "other").out.splitlines()[1:]
    shown = hookmill("secret", "show", "GH_TOKEN", "--factory", "other").out

    assert listed.split()[:5] == ["GH_TOKEN", "runs", "of", "another", "factory"]
    assert "runs of another factory" in shown


def test_automation_gets_no_secret_with_a_runner_that_starts_no_command(automation, hookmill):
    hookmill("secret", "create", "GH_TOKEN", "--for-runs")

    refused = hookmill("automation", "change", "triage", "--secret", "GH_TOKEN", exit_code=1).err
    removed = hookmill("automation", "change", "triage", "--no-secrets", "--json").json

    assert "'package' can't get secrets: it starts no command" in refused
    assert (removed["secrets"], removed["version"]) == ([], 1)


def test_supplied_secret_that_could_be_guessed_causes_a_warning(webhook, hookmill):
    warning = "Warning: the secret has fewer than 16 characters"

    refused = hookmill("webhook", "rotate", "source", "--secret-from-stdin", stdin=b"x", exit_code=1).err
    assert "fewer than 4 characters" in refused
    for command in (("webhook", "rotate", "source", "--secret-from-stdin"), ("secret", "create", "A", "--from-stdin")):
        assert hookmill(*command, stdin=b"four").err.startswith(warning)
    assert warning not in hookmill("secret", "replace", "A", "--from-stdin", stdin=b"sixteen letters!").err
    assert warning not in hookmill("secret", "create", "B").err
