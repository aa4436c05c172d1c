"""`hookmill delivery`."""

import json
import shlex
import subprocess
import sys

import pytest

from hookmill.domain.delivery import IdentityKind, Label
from hookmill.domain.run import RunState
from tests.cli.conftest import START_US
from tests.cli.terminal import terminal_output

ESCAPE_SEQUENCE = "\x1b]0;owned\x07[bold]x[/bold]"


def test_list_shows_deliveries_with_their_labels_newest_first(webhook, log, hookmill):
    older = log.add_delivery(webhook["uid"], body=b"[1,2]")
    newer = log.add_delivery(webhook["uid"], Label.REJECTED_INVALID_JSON, body=b"{", at=START_US + 1_000_000)

    assert hookmill("delivery", "list").out.splitlines() == [
        "RECEIVED (UTC)       DELIVERY                              LABEL                    SIZE  WEBHOOK",
        f"2026-11-21 09:12:37  {newer}  Rejected (invalid JSON)     1  source",
        f"2026-11-21 09:12:36  {older}  Accepted                    5  source",
    ]


def test_event_type_is_listed_shown_exported_and_usable_as_a_filter(webhook, log, hookmill):
    pushed = log.add_delivery(webhook["uid"], event="push")
    tagged = log.add_delivery(webhook["uid"], Label.DUPLICATE, event="Tag Push Hook", at=START_US + 1_000_000)
    plain = log.add_delivery(webhook["uid"], at=START_US + 2_000_000)

    header, *rows = hookmill("delivery", "list").out.splitlines()
    filtered = hookmill("delivery", "list", "--event", "Tag Push Hook", "--json").json
    exported = hookmill("delivery", "export").json_lines

    assert header.split() == ["RECEIVED", "(UTC)", "DELIVERY", "LABEL", "EVENT", "SIZE", "WEBHOOK"]
    assert [row.split()[3:-2] for row in rows] == [
        ["Accepted"],
        ["Duplicate", "Tag", "Push", "Hook"],
        ["Accepted", "push"],
    ]
    assert [row["delivery_id"] for row in filtered["items"]] == [tagged]
    assert filtered["dropped_attempts"] == []
    assert [(row["delivery_id"], row["event"], row["event_signed"]) for row in exported] == [
        (pushed, "push", False),
        (tagged, "Tag Push Hook", False),
        (plain, None, None),
    ]
    assert "Event     push (not signed)\n" in hookmill("delivery", "show", pushed).out
    assert "Event " not in hookmill("delivery", "show", plain).out
    assert hookmill("delivery", "list", "--event", "pus").out == "The log has no deliveries that match.\n"


def test_list_in_json_has_every_field(webhook, log, hookmill):
    first = log.add_delivery(webhook["uid"], identity="evt_1", identity_kind=IdentityKind.SENDER)
    second = log.add_delivery(
        webhook["uid"], Label.DUPLICATE, at=START_US + 1, identity_kind=IdentityKind.SENDER, duplicate_of=first
    )

    page = hookmill("delivery", "list", "--json").json

    assert page["items"] == [
        {
            "delivery_id": second,
            "webhook_uid": webhook["uid"],
            "label": "Duplicate",
            "size": 2,
            "received_at": "2026-11-21T09:12:36.000001Z",
            "identity_kind": "sender",
            "identity": None,
            "duplicate_of": first,
            "event": None,
            "event_signed": None,
            "reason": None,
            "client": None,
            "traceparent": None,
        },
        {
            "delivery_id": first,
            "webhook_uid": webhook["uid"],
            "label": "Accepted",
            "size": 2,
            "received_at": "2026-11-21T09:12:36.000000Z",
            "identity_kind": "sender",
            "identity": "evt_1",
            "duplicate_of": None,
            "event": None,
            "event_signed": None,
            "reason": None,
            "client": None,
            "traceparent": None,
        },
    ]


@pytest.mark.parametrize(
    "options",
    [
        ("--label", "rejected_auth"),
        ("--label", "Rejected (auth)"),
        ("--label", "REJECTED (AUTH)"),
        ("--webhook", "other"),
        ("--identity", "evt_2"),
        ("--event", "Push Hook"),
        ("--since", "2026-11-21 09:13:36", "--until", "2026-11-21T09:14:36Z"),
    ],
)
def test_list_is_filtered_and_the_command_for_the_next_page_keeps_the_filter(webhook, log, hookmill, options):
    other = hookmill("webhook", "create", "other", "--json").json
    log.add_delivery(webhook["uid"], identity="evt_1", identity_kind=IdentityKind.SENDER)
    wanted = [
        log.add_delivery(
            other["uid"],
            Label.REJECTED_AUTH if options[0] == "--label" else Label.DUPLICATE,
            at=START_US + 60_000_000 + number,
            identity="evt_2",
            identity_kind=IdentityKind.PROVIDER,
            event="Push Hook",
        )
        for number in range(3)
    ]
    log.add_delivery(webhook["uid"], at=START_US + 120_000_000)

    first = hookmill("delivery", "list", *options, "--limit", "2", "--json").json["items"]
    command = hookmill("delivery", "list", *options, "--limit", "2").out.splitlines()[-1]
    second = hookmill("delivery", "list", *shlex.split(command.partition("delivery list ")[2]), "--json").json["items"]

    assert [row["delivery_id"] for row in first + second] == wanted[::-1]


def test_dropped_attempts_are_filtered_by_time_range(webhook, log, hookmill):
    log.add_dropped_attempts(webhook["uid"], "rate_limited", {2: 4, 4: 10, 6: 1})
    time_range = ("--since", "2026-11-21 09:04:30", "--until", "2026-11-21 09:06")

    (dropped,) = hookmill("delivery", "list", *time_range, "--json").json["dropped_attempts"]

    assert dropped["count"] == 10


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--since", "yesterday"], "Invalid value for --since: 'yesterday' is not a time."),
        (["--until", "soon"], "Invalid value for --until: 'soon' is not a time."),
        (["--since", "2h", "--until", "3h"], "--since must be before --until"),
    ],
)
def test_invalid_time_range_is_wrong_usage(hookmill, options, problem):
    assert problem in hookmill("delivery", "list", *options, exit_code=2).err


def test_empty_list_says_how_to_send_a_sample(webhook, hookmill):
    assert "send WEBHOOK" in hookmill("delivery", "list").out


def test_dropped_attempts_are_counted_below_the_list(webhook, log, hookmill):
    log.add_delivery(webhook["uid"])
    log.add_dropped_attempts(webhook["uid"], "rate_limited", {2: 4, 3: 10, 9: 1})
    log.add_dropped_attempts(webhook["uid"], "failed_authentications", {3: 7000})

    assert hookmill("delivery", "list").out.splitlines()[3:] == [
        "Dropped without an entry (UTC):",
        "  1 dropped between 2026-11-21 09:09 and 09:10: over the rate limit (source)",
        "  7,000 dropped between 2026-11-21 09:03 and 09:04: over the rate limit for failed authentications (source)",
        "  14 dropped between 2026-11-21 09:02 and 09:04: over the rate limit (source)",
        "To accept more, raise the setting deliveries_per_minute. What was dropped is lost unless the sender retries, "
        "which GitHub does not.",
    ]


def test_show_names_the_webhook_label_identity_and_runs(automation, webhook, log, hookmill):
    delivery = log.add_delivery(webhook["uid"], identity="evt_1", identity_kind=IdentityKind.DELIVERY_ID_HEADER)
    run = log.add_run(delivery, automation["automation_id"], RunState.SUCCEEDED, attempt=1)

    output = hookmill("delivery", "show", delivery).out

    assert f"Webhook   source ({webhook['uid']})\n" in output
    assert "Label     Accepted\n" in output
    assert "Identity  evt_1 (from the webhook's own delivery id header)\n" in output
    assert f"{run}  succeeded  triage\n" in output
    assert "triage: Would trigger\n" in output


def test_show_explains_each_condition_of_a_filter(webhook, log, hookmill):
    filter_json = '{"action": ["opened"], "repo": {"private": [false]}, "gone": {"x": ["y"]}}'
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", filter_json)
    delivery = log.add_delivery(webhook["uid"], body=b'{"action": "opened", "repo": {"private": true}}')

    output = hookmill("delivery", "show", delivery).out

    assert "It started no runs: no enabled automation matched.\n" in output
    assert output.splitlines()[-7:] == [
        "a: Would not trigger",
        "  Webhook check: passed",
        "  Payload check: failed",
        "  HELD  FIELD          CONDITION      FOUND",
        '  yes   /action        in ["opened"]  "opened"',
        "  no    /repo/private  in [false]     true",
        '  no    /gone/x        in ["y"]       no object at /gone',
    ]


def test_show_in_json_explains_each_automation(automation, webhook, log, hookmill):
    hookmill(
        "automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", '{"n": [1]}', "--disabled"
    )
    delivery = log.add_delivery(webhook["uid"], body=b'{"n": 2}')
    run = log.add_run(delivery, automation["automation_id"])

    shown = hookmill("delivery", "show", delivery, "--json").json

    assert [row["run_id"] for row in shown["runs"]] == [run]
    assert [
        (evaluation["automation"], evaluation["enabled"], evaluation["would_trigger"])
        for evaluation in shown["automations"]
    ] == [
        ("a", False, False),
        ("triage", True, True),
    ]
    (trigger,) = shown["automations"][0]["triggers"]
    assert (trigger["webhook_check"], trigger["payload_check"]) == (True, False)
    assert [
        (condition["pointer"], condition["operator"], condition["found"], condition["held"])
        for condition in trigger["conditions"]
    ] == [("/n", "in", "2", False)]


def test_disabled_automation_would_not_trigger(automation, webhook, log, hookmill):
    hookmill("automation", "disable", "triage")
    delivery = log.add_delivery(webhook["uid"])

    assert "triage: Would not trigger: it is disabled\n" in hookmill("delivery", "show", delivery).out


def test_replay_prints_the_started_runs(automation, webhook, log, hookmill):
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source")
    delivery = log.add_delivery(webhook["uid"])

    first, _, *rows = hookmill("delivery", "replay", delivery).out.splitlines()

    assert first == "Started 2 runs:"
    assert sorted(row.split("  ", 3)[3] for row in rows) == ["a (replay 1)", "triage (replay 1)"]


def test_replay_starts_only_the_run_of_the_chosen_automation(automation, webhook, log, hookmill):
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source")
    delivery = log.add_delivery(webhook["uid"])

    (run,) = hookmill("delivery", "replay", delivery, "--automation", "triage", "--json").json["runs"]

    assert (run["automation"], run["delivery_id"], run["replay"]) == ("triage", delivery, 1)


def test_replay_that_starts_no_run_prints_a_command_that_says_why(webhook, log, hookmill):
    hookmill("webhook", "create", "other")
    hookmill("automation", "create", "elsewhere", "--prompt", "x", "--webhook", "other")
    delivery = log.add_delivery(webhook["uid"])

    error = hookmill("delivery", "replay", delivery, exit_code=1).err
    command = error.strip().partition("To see why: hookmill ")[2]

    assert "Nothing was started." in error
    assert hookmill(*command.split()).out.endswith(
        "No automation selects this webhook now:\n\nelsewhere: Would not trigger. Webhook check: failed\n"
    )


def test_show_has_the_reason_of_a_rejection_and_the_original_delivery(webhook, log, hookmill):
    original = log.add_delivery(webhook["uid"])
    duplicate = log.add_delivery(webhook["uid"], Label.DUPLICATE, duplicate_of=original)
    rejected = log.add_delivery(webhook["uid"], Label.REJECTED_INVALID_JSON, reason="the body is empty")

    assert f"Duplicate of  {original}\n" in hookmill("delivery", "show", duplicate).out
    assert "Reason    the body is empty\n" in hookmill("delivery", "show", rejected).out


def test_control_characters_from_senders_are_escaped(automation, webhook, log, hookmill):
    body = '{"\u009b2J": "\u202e\\u001b[31m[red]"}'.encode()
    filter_json = '{"\u009b2J": ["x"], "\\u001b": ["y"]}'
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", filter_json)
    delivery = log.add_delivery(
        webhook["uid"], body=body, identity=ESCAPE_SEQUENCE, identity_kind=IdentityKind.SENDER, event=ESCAPE_SEQUENCE
    )

    for output in (
        hookmill("delivery", "list").out,
        hookmill("delivery", "show", delivery).out,
        hookmill("delivery", "show", delivery, "--json").out,
        hookmill("delivery", "list", "--json").out,
    ):
        assert output.replace("\n", "").isprintable()
    assert "\\u001b]0;owned\\u0007[bold]x[/bold] (from" in hookmill("delivery", "show", delivery).out


def test_payload_is_printed_byte_for_byte(webhook, log, hookmill):
    body = b'\r\n{"a" : "\\ud83d\xc2\x9b", "n": 1e400}\r\n\t '
    delivery = log.add_delivery(webhook["uid"], body=body)

    assert hookmill("delivery", "payload", delivery).out_bytes == body


def test_payload_is_written_to_a_file_byte_for_byte(webhook, log, hookmill, tmp_path):
    delivery = log.add_delivery(webhook["uid"], body=b"[1]\n")

    result = hookmill("delivery", "payload", delivery, "--output", "body.json")

    assert (tmp_path / "body.json").read_bytes() == b"[1]\n"
    assert result.out == "Wrote 4 bytes to body.json.\n"


def test_file_that_cannot_be_written_is_named(webhook, log, hookmill):
    delivery = log.add_delivery(webhook["uid"])

    result = hookmill("delivery", "payload", delivery, "--output", "nowhere/body.json", exit_code=1)

    assert result.err == "nowhere/body.json can't be written: No such file or directory.\n"


def test_export_has_every_row_oldest_first(webhook, log, hookmill):
    delivery_ids = log.add_deliveries(webhook["uid"], 3_500)

    rows = hookmill("delivery", "export").json_lines

    assert [row["delivery_id"] for row in rows] == delivery_ids
    assert rows[0].keys() >= set(
        "delivery_id webhook_uid label size received_at identity_kind duplicate_of reason".split()
    )


def test_export_of_one_webhook_is_written_to_a_file(webhook, log, hookmill, tmp_path):
    other = hookmill("webhook", "create", "other", "--json").json
    log.add_deliveries(webhook["uid"], 3)
    delivery_ids = log.add_deliveries(other["uid"], 2)

    result = hookmill("delivery", "export", "--webhook", "other", "-o", "log.jsonl")

    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["delivery_id"] for line in lines] == delivery_ids
    assert result.out == "Wrote 2 deliveries to log.jsonl.\n"


def test_export_of_an_empty_log_is_empty(log, hookmill):
    assert hookmill("delivery", "export").out_bytes == b""


def test_export_ends_without_an_error_if_its_reader_exits(webhook, log):
    log.add_deliveries(webhook["uid"], 3_000)

    with subprocess.Popen(
        [sys.executable, "-m", "hookmill", "delivery", "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first_line = process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

    assert json.loads(first_line)["webhook_uid"] == webhook["uid"]
    assert (process.returncode, errors) == (0, b"")


def test_list_fits_80_columns_without_cutting_ids(webhook, log):
    delivery = log.add_delivery(webhook["uid"], Label.REJECTED_INVALID_JSON, body=b"{" * 262_144)

    lines = terminal_output("delivery", "list").splitlines()

    assert any(delivery in line for line in lines)
    assert any("Rejected (invalid JSON)" in line for line in lines)
    # Escape sequences, which set colours, have no width.
    assert max(len(line) for line in lines if "\x1b" not in line) <= 80


def test_control_characters_in_a_payload_are_escaped_on_a_terminal(webhook, log):
    delivery = log.add_delivery(webhook["uid"], body='{"a": "\u009b2J\u202e"}'.encode())

    assert terminal_output("delivery", "payload", delivery) == '{"a": "\\u009b2J\\u202e"}\n'
