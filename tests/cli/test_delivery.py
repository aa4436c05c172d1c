"""`hookmill delivery`."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.delivery import IdentityKind, Label
from hookmill.domain.run import RunState
from tests.cli.conftest import START_US, Hookmill, LogWriter
from tests.cli.terminal import terminal_output

ESCAPE = "\x1b]0;owned\x07[bold]x[/bold]"
UNKNOWN = "dlv_" + "0" * 32


def test_the_list_shows_newest_first_what_came_and_what_became_of_it(webhook: Any, log: LogWriter, hookmill: Hookmill):
    older = log.add_delivery(webhook["uid"], body=b"[1,2]")
    newer = log.add_delivery(webhook["uid"], Label.REJECTED_INVALID_JSON, body=b"{", at=START_US + 1_000_000)

    assert hookmill("delivery", "list").out.splitlines() == [
        "RECEIVED (UTC)       DELIVERY                              LABEL                    SIZE  WEBHOOK",
        f"2026-11-21 09:12:37  {newer}  Rejected (invalid JSON)     1  source",
        f"2026-11-21 09:12:36  {older}  Accepted                    5  source",
    ]


def test_the_event_type_is_listed_shown_exported_and_narrows_the_list(webhook: Any, log: LogWriter, hookmill: Hookmill):
    pushed = log.add_delivery(webhook["uid"], event="push")
    tagged = log.add_delivery(webhook["uid"], Label.DUPLICATE, event="Tag Push Hook", at=START_US + 1_000_000)
    plain = log.add_delivery(webhook["uid"], at=START_US + 2_000_000)

    header, *rows = hookmill("delivery", "list").out.splitlines()
    narrowed = hookmill("delivery", "list", "--event", "Tag Push Hook", "--json").json
    exported = hookmill("delivery", "export").json_lines

    assert header.split() == ["RECEIVED", "(UTC)", "DELIVERY", "LABEL", "EVENT", "SIZE", "WEBHOOK"]
    assert [row.split()[3:-2] for row in rows] == [
        ["Accepted"],
        ["Duplicate", "Tag", "Push", "Hook"],
        ["Accepted", "push"],
    ]
    assert [row["delivery_id"] for row in narrowed["deliveries"]] == [tagged]
    assert narrowed["dropped_attempts"] == []
    assert [(row["delivery_id"], row["event"], row["event_signed"]) for row in exported] == [
        (pushed, "push", False),
        (tagged, "Tag Push Hook", False),
        (plain, None, None),
    ]
    assert "Event     push (not signed)\n" in hookmill("delivery", "show", pushed).out
    assert "Event " not in hookmill("delivery", "show", plain).out
    assert hookmill("delivery", "list", "--event", "pus").out == "The log has no deliveries that match.\n"


def test_the_next_page_of_one_event_type_is_offered(webhook: Any, log: LogWriter, hookmill: Hookmill):
    for number in range(3):
        log.add_delivery(webhook["uid"], event="Push Hook", at=START_US + number)

    offered = hookmill("delivery", "list", "--event", "Push Hook", "--limit", "2").out.splitlines()[-1]

    assert "--event 'Push Hook' --limit 2 --before dlv_" in offered


def test_an_event_type_that_a_terminal_would_obey_is_spelled_out(webhook: Any, log: LogWriter, hookmill: Hookmill):
    sent = log.add_delivery(webhook["uid"], event=ESCAPE)

    assert "\x1b" not in hookmill("delivery", "list").out + hookmill("delivery", "show", sent).out


def test_a_delivery_as_json_has_the_exports_fields(webhook: Any, log: LogWriter, hookmill: Hookmill):
    first = log.add_delivery(webhook["uid"], identity="evt_1", identity_kind=IdentityKind.SENDER)
    second = log.add_delivery(
        webhook["uid"], Label.DUPLICATE, at=START_US + 1, identity_kind=IdentityKind.SENDER, duplicate_of=first
    )

    printed = hookmill("delivery", "list", "--json").json

    assert printed["deliveries"] == [
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
        },
    ]


@pytest.mark.parametrize("label", ["rejected_auth", "Rejected (auth)", "REJECTED (AUTH)"])
def test_the_list_can_be_narrowed_to_a_label(webhook: Any, log: LogWriter, hookmill: Hookmill, label: str):
    log.add_delivery(webhook["uid"])
    refused = log.add_delivery(webhook["uid"], Label.REJECTED_AUTH)

    (only,) = hookmill("delivery", "list", "--label", label, "--json").json["deliveries"]

    assert only["delivery_id"] == refused


def test_an_unknown_label_is_refused_with_those_that_exist(hookmill: Hookmill):
    assert "accepted, duplicate, rejected_auth" in hookmill("delivery", "list", "--label", "ok", exit_code=2).err


def test_the_list_can_be_narrowed_to_a_webhook(webhook: Any, log: LogWriter, hookmill: Hookmill):
    other = hookmill("webhook", "create", "other", "--json").json
    log.add_delivery(webhook["uid"])
    wanted = log.add_delivery(other["uid"])

    (only,) = hookmill("delivery", "list", "--webhook", "other", "--json").json["deliveries"]

    assert only["delivery_id"] == wanted


def test_the_list_can_be_narrowed_to_a_stretch_of_time(webhook: Any, log: LogWriter, hookmill: Hookmill):
    minutes = [log.add_delivery(webhook["uid"], at=START_US + number * 60_000_000) for number in range(4)]
    stretch = ("--since", "2026-11-21 09:13:36", "--until", "2026-11-21T09:15:36Z")

    listed = hookmill("delivery", "list", *stretch, "--json").json["deliveries"]

    assert [row["delivery_id"] for row in listed] == [minutes[2], minutes[1]]


def test_attempts_without_an_entry_are_narrowed_to_the_stretch_too(webhook: Any, log: LogWriter, hookmill: Hookmill):
    log.add_dropped_attempts(webhook["uid"], "rate_limited", [(2, 4), (4, 10), (6, 1)])
    stretch = ("--since", "2026-11-21 09:04:30", "--until", "2026-11-21 09:06")

    (counted,) = hookmill("delivery", "list", *stretch, "--json").json["dropped_attempts"]

    assert counted["count"] == 10


def test_the_list_can_be_narrowed_to_one_event(webhook: Any, log: LogWriter, hookmill: Hookmill):
    log.add_delivery(webhook["uid"], identity="evt_1", identity_kind=IdentityKind.SENDER)
    wanted = log.add_delivery(webhook["uid"], identity="evt_2", identity_kind=IdentityKind.PROVIDER)

    (only,) = hookmill("delivery", "list", "--identity", "evt_2", "--json").json["deliveries"]

    assert only["delivery_id"] == wanted


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "yesterday"], "Invalid value for --since: 'yesterday' is not a time."),
        (["--until", "soon"], "Invalid value for --until: 'soon' is not a time."),
        (["--since", "2h", "--until", "3h"], "--since must be before --until"),
    ],
)
def test_a_stretch_of_time_that_is_none_is_wrong_usage(hookmill: Hookmill, options: list[str], said: str):
    assert said in hookmill("delivery", "list", *options, exit_code=2).err


def test_a_full_page_offers_the_next_one_narrowed_alike(webhook: Any, log: LogWriter, hookmill: Hookmill):
    ids = [log.add_delivery(webhook["uid"], at=START_US + number) for number in range(5)]
    narrowed = ("--label", "accepted", "--since", "2026-11-21 09:12", "--limit", "2")

    offered = hookmill("delivery", "list", *narrowed).out.splitlines()[-1]
    older = hookmill("delivery", "list", *shlex.split(offered.partition("delivery list ")[2]), "--json").json

    assert offered.endswith(f"--label accepted --since '2026-11-21 09:12' --limit 2 --before {ids[3]}")
    assert [row["delivery_id"] for row in older["deliveries"]] == [ids[2], ids[1]]


def test_pages_follow_on_each_other(webhook: Any, log: LogWriter, hookmill: Hookmill):
    ids = [log.add_delivery(webhook["uid"], at=START_US + number) for number in range(5)]

    first = hookmill("delivery", "list", "--limit", "3", "--json").json["deliveries"]
    second = hookmill("delivery", "list", "--before", first[-1]["delivery_id"], "--json").json["deliveries"]

    assert [row["delivery_id"] for row in first + second] == ids[::-1]


def test_an_empty_log_says_how_to_send_a_sample(webhook: Any, hookmill: Hookmill):
    assert "send WEBHOOK" in hookmill("delivery", "list").out


def test_attempts_without_an_entry_are_counted_below_the_log(webhook: Any, log: LogWriter, hookmill: Hookmill):
    log.add_delivery(webhook["uid"])
    log.add_dropped_attempts(webhook["uid"], "rate_limited", [(2, 4), (3, 10), (9, 1)])
    log.add_dropped_attempts(webhook["uid"], "failed_authentications", [(3, 7000)])

    assert hookmill("delivery", "list").out.splitlines()[3:] == [
        "Dropped without an entry (UTC):",
        "  1 dropped between 2026-11-21 09:09 and 09:10: over the rate limit (source)",
        "  7,000 dropped between 2026-11-21 09:03 and 09:04: over the rate limit for failed authentications (source)",
        "  14 dropped between 2026-11-21 09:02 and 09:04: over the rate limit (source)",
    ]


def test_attempts_without_an_entry_are_counted_in_json_too(webhook: Any, log: LogWriter, hookmill: Hookmill):
    log.add_dropped_attempts(webhook["uid"], "rate_limited", [(2, 4), (3, 10)])

    assert hookmill("delivery", "list", "--json").json["dropped_attempts"] == [
        {
            "webhook_uid": webhook["uid"],
            "kind": "rate_limited",
            "since": "2026-11-21T09:02:00.000000Z",
            "until": "2026-11-21T09:04:00.000000Z",
            "count": 14,
        }
    ]


def test_show_tells_what_it_is_and_what_it_started(automation: Any, webhook: Any, log: LogWriter, hookmill: Hookmill):
    delivery = log.add_delivery(webhook["uid"], identity="evt_1", identity_kind=IdentityKind.DELIVERY_ID_HEADER)
    run = log.add_run(delivery, automation["automation_id"], RunState.SUCCEEDED, attempt=1)

    printed = hookmill("delivery", "show", delivery).out

    assert f"Webhook   source ({webhook['uid']})\n" in printed
    assert "Label     Accepted\n" in printed
    assert "Identity  evt_1 (from the webhook's own delivery id header)\n" in printed
    assert f"{run}  succeeded  triage\n" in printed
    assert "triage: Would trigger\n" in printed


def test_show_explains_each_condition_with_the_value_that_it_found(webhook: Any, log: LogWriter, hookmill: Hookmill):
    chosen = '{"action": ["opened"], "repo": {"private": [false]}, "gone": {"x": ["y"]}}'
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", chosen)
    delivery = log.add_delivery(webhook["uid"], body=b'{"action": "opened", "repo": {"private": true}}')

    printed = hookmill("delivery", "show", delivery).out

    assert "It started no runs: no enabled automation matched.\n" in printed
    assert printed.splitlines()[-7:] == [
        "a: Would not trigger",
        "  Webhook check: passed",
        "  Payload check: failed",
        "  HELD  FIELD          CONDITION      FOUND",
        '  yes   /action        in ["opened"]  "opened"',
        "  no    /repo/private  in [false]     true",
        '  no    /gone/x        in ["y"]       no object at /gone',
    ]


def test_show_as_json_carries_the_same_explanation(automation: Any, webhook: Any, log: LogWriter, hookmill: Hookmill):
    hookmill(
        "automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", '{"n": [1]}', "--disabled"
    )
    delivery = log.add_delivery(webhook["uid"], body=b'{"n": 2}')
    run = log.add_run(delivery, automation["automation_id"])

    printed = hookmill("delivery", "show", delivery, "--json").json

    assert [started["run_id"] for started in printed["runs"]] == [run]
    assert [(one["automation"], one["enabled"], one["would_trigger"]) for one in printed["automations"]] == [
        ("a", False, False),
        ("triage", True, True),
    ]
    (trigger,) = printed["automations"][0]["triggers"]
    assert (trigger["webhook_check"], trigger["payload_check"]) == (True, False)
    assert [(one["pointer"], one["operator"], one["found"], one["held"]) for one in trigger["conditions"]] == [
        ("/n", "in", "2", False)
    ]


def test_an_automation_that_is_disabled_would_not_trigger(
    automation: Any, webhook: Any, log: LogWriter, hookmill: Hookmill
):
    hookmill("automation", "disable", "triage")
    delivery = log.add_delivery(webhook["uid"])

    assert "triage: Would not trigger: it is disabled\n" in hookmill("delivery", "show", delivery).out


def test_automations_of_other_webhooks_are_a_line_each(
    automation: Any, webhook: Any, log: LogWriter, hookmill: Hookmill
):
    hookmill("webhook", "create", "other")
    hookmill("automation", "create", "elsewhere", "--prompt", "x", "--webhook", "other")
    delivery = log.add_delivery(webhook["uid"])

    said = hookmill("delivery", "show", delivery).out.splitlines()
    assert said[-2:] == ["", "elsewhere: Would not trigger. Webhook check: failed"]
    judged = hookmill("delivery", "show", delivery, "--json").json["automations"]
    assert [(one["automation"], one["triggers"][0]["webhook_check"]) for one in judged] == [
        ("elsewhere", False),
        ("triage", True),
    ]


def test_a_replay_prints_the_runs_that_it_started(automation: Any, webhook: Any, log: LogWriter, hookmill: Hookmill):
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source")
    delivery = log.add_delivery(webhook["uid"])

    said, _, *rows = hookmill("delivery", "replay", delivery).out.splitlines()

    assert said == "Started 2 runs:"
    assert sorted(row.split("  ", 3)[3] for row in rows) == ["a (replay 1)", "triage (replay 1)"]


def test_a_replay_can_be_for_one_automation(automation: Any, webhook: Any, log: LogWriter, hookmill: Hookmill):
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source")
    delivery = log.add_delivery(webhook["uid"])

    (only,) = hookmill("delivery", "replay", delivery, "--automation", "triage", "--json").json["runs"]

    assert (only["automation"], only["delivery_id"], only["replay"]) == ("triage", delivery, 1)


def test_a_replay_that_starts_nothing_says_so_and_where_the_reason_is(webhook: Any, log: LogWriter, hookmill: Hookmill):
    hookmill("webhook", "create", "other")
    hookmill("automation", "create", "elsewhere", "--prompt", "x", "--webhook", "other")
    delivery = log.add_delivery(webhook["uid"])

    refused = hookmill("delivery", "replay", delivery, exit_code=1).err
    offered = refused.strip().partition("To see why: hookmill ")[2]

    assert "Nothing was started." in refused
    assert hookmill(*offered.split()).out.endswith(
        "No automation selects this webhook now:\n\nelsewhere: Would not trigger. Webhook check: failed\n"
    )


def test_show_has_a_rejections_reason_and_a_duplicates_original(webhook: Any, log: LogWriter, hookmill: Hookmill):
    original = log.add_delivery(webhook["uid"])
    duplicate = log.add_delivery(webhook["uid"], Label.DUPLICATE, duplicate_of=original)
    rejected = log.add_delivery(webhook["uid"], Label.REJECTED_INVALID_JSON, reason="the body is empty")

    assert f"Duplicate of  {original}\n" in hookmill("delivery", "show", duplicate).out
    assert "Reason    the body is empty\n" in hookmill("delivery", "show", rejected).out


def test_what_a_sender_wrote_cannot_take_over_the_terminal(
    automation: Any, webhook: Any, log: LogWriter, hookmill: Hookmill
):
    body = '{"\u009b2J": "\u202e\\u001b[31m[red]"}'.encode()
    chosen = '{"\u009b2J": ["x"], "\\u001b": ["y"]}'
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", chosen)
    delivery = log.add_delivery(webhook["uid"], body=body, identity=ESCAPE, identity_kind=IdentityKind.SENDER)

    for printed in (
        hookmill("delivery", "show", delivery).out,
        hookmill("delivery", "show", delivery, "--json").out,
        hookmill("delivery", "list", "--json").out,
    ):
        assert printed.replace("\n", "").isprintable()
    assert "\\u001b]0;owned\\u0007[bold]x[/bold] (from" in hookmill("delivery", "show", delivery).out


def test_a_payload_is_written_byte_for_byte(webhook: Any, log: LogWriter, hookmill: Hookmill):
    body = b'\r\n{"a" : "\\ud83d\xc2\x9b", "n": 1e400}\r\n\t '
    delivery = log.add_delivery(webhook["uid"], body=body)

    assert hookmill("delivery", "payload", delivery).out_bytes == body


def test_a_payload_is_written_to_a_file_byte_for_byte(webhook: Any, log: LogWriter, hookmill: Hookmill, tmp_path: Path):
    delivery = log.add_delivery(webhook["uid"], body=b"[1]\n")

    printed = hookmill("delivery", "payload", delivery, "--output", "body.json")

    assert (tmp_path / "body.json").read_bytes() == b"[1]\n"
    assert printed.out == "Wrote 4 bytes to body.json.\n"


def test_a_file_that_cannot_be_written_is_named(webhook: Any, log: LogWriter, hookmill: Hookmill):
    delivery = log.add_delivery(webhook["uid"])

    printed = hookmill("delivery", "payload", delivery, "--output", "nowhere/body.json", exit_code=1)

    assert printed.err == "nowhere/body.json can't be written: No such file or directory.\n"


def test_only_accepted_deliveries_have_a_payload(webhook: Any, log: LogWriter, hookmill: Hookmill):
    delivery = log.add_delivery(webhook["uid"], Label.REJECTED_TOO_LARGE)

    printed = hookmill("delivery", "payload", delivery, exit_code=1)

    assert "is Rejected (too large): only Accepted deliveries have a stored payload" in printed.err


@pytest.mark.parametrize(("given", "said"), [(UNKNOWN, "has no delivery"), ("dlv_1", "is not a delivery id")])
def test_a_delivery_that_is_not_there_is_named(log: LogWriter, hookmill: Hookmill, given: str, said: str):
    printed = hookmill("delivery", "show", given, exit_code=1)

    assert said in printed.err
    assert given in printed.err


def test_an_export_has_every_row_oldest_first(webhook: Any, log: LogWriter, hookmill: Hookmill):
    ids = log.add_deliveries(webhook["uid"], 3_500)

    rows = hookmill("delivery", "export").json_lines

    assert [row["delivery_id"] for row in rows] == ids
    assert rows[0].keys() >= {
        *("delivery_id", "webhook_uid", "label", "size", "received_at", "identity_kind", "duplicate_of", "reason")
    }


def test_an_export_can_be_of_one_webhook_and_into_a_file(
    webhook: Any, log: LogWriter, hookmill: Hookmill, tmp_path: Path
):
    other = hookmill("webhook", "create", "other", "--json").json
    log.add_deliveries(webhook["uid"], 3)
    wanted = log.add_deliveries(other["uid"], 2)

    printed = hookmill("delivery", "export", "--webhook", "other", "-o", "log.jsonl")

    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [line.split('"')[3] for line in lines] == wanted
    assert printed.out == "Wrote 2 deliveries to log.jsonl.\n"


def test_an_export_of_an_empty_log_is_empty(log: LogWriter, hookmill: Hookmill):
    assert hookmill("delivery", "export").out_bytes == b""


def test_a_reader_that_goes_away_ends_an_export_without_a_traceback(webhook: Any, log: LogWriter):
    log.add_deliveries(webhook["uid"], 3_000)

    with subprocess.Popen(
        [sys.executable, "-m", "hookmill", "delivery", "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()

    assert b"Traceback" not in said
    assert b"Exception ignored" not in said


def test_at_eighty_columns_ids_stay_whole_and_no_line_is_longer(webhook: Any, log: LogWriter):
    delivery = log.add_delivery(webhook["uid"], Label.REJECTED_INVALID_JSON, body=b"{" * 262_144)

    lines = terminal_output("delivery", "list").splitlines()

    assert any(delivery in line for line in lines)
    assert any("Rejected (invalid JSON)" in line for line in lines)
    assert max(len(line) for line in lines if "\x1b" not in line) <= 80


def test_a_terminal_is_shown_a_payload_without_what_it_would_obey(webhook: Any, log: LogWriter):
    delivery = log.add_delivery(webhook["uid"], body='{"a": "\u009b2J\u202e"}'.encode())

    assert terminal_output("delivery", "payload", delivery) == '{"a": "\\u009b2J\\u202e"}\n'
