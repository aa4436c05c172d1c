"""`hookmill filter`."""

from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.delivery import Label
from tests.cli.conftest import START_US, Hookmill, LogWriter
from tests.cli.terminal import terminal_output


def test_a_filter_is_tested_on_a_body_without_any_installation(hookmill: Hookmill, data_dir: Path):
    printed = hookmill("filter", "test", "--body", "-", "--filter", '{"a": [1]}', stdin=b'{"a": 1.0}').out

    assert printed.splitlines() == [
        "Would trigger",
        "  Webhook check: none, because a body has no webhook",
        "  Payload check: passed",
        "  HELD  FIELD  CONDITION  FOUND",
        "  yes   /a     in [1]     1.0",
    ]
    assert not data_dir.exists()


def test_what_any_and_not_contain_follows_them(hookmill: Hookmill):
    chosen = '{"a": {"$any": [["x"], {"$not": {"$prefix": "y"}}]}}'

    printed = hookmill("filter", "test", "--body", "-", "--filter", chosen, stdin=b'{"a": "yes"}').out

    assert printed.splitlines()[-5:] == [
        "  HELD  FIELD              CONDITION        FOUND",
        '  no    /a                 $any [[…], {…}]  "yes"',
        '  no    $any 1: /a         in ["x"]         "yes"',
        '  no    $any 2: /a         $not {…}         "yes"',
        '  yes   $any 2 > $not: /a  $prefix "y"      "yes"',
    ]


def test_both_results_of_a_test_are_a_success(hookmill: Hookmill):
    printed = hookmill("filter", "test", "--body", "-", "--filter", '{"a": [2]}', stdin=b'{"a": 1}')

    assert printed.out.startswith("Would not trigger\n")


def test_the_result_can_be_the_exit_code(hookmill: Hookmill):
    command = ("filter", "test", "--body", "-", "--exit-code", "--filter", '{"a": [2]}')

    hookmill(*command, stdin=b'{"a": 2}', exit_code=0)
    hookmill(*command, stdin=b'{"a": 1}', exit_code=1)


def test_a_filter_is_tested_on_a_delivery_of_the_log(webhook: Any, log: LogWriter, hookmill: Hookmill):
    delivery = log.add_delivery(webhook["uid"], body=b'{"a": {"b": "x"}}')

    printed = hookmill("filter", "test", "--delivery", delivery, "--filter", '{"a": {"b": ["x"]}}', "--json").json

    assert printed["would_trigger"] is True
    assert (printed["webhook_check"], printed["payload_check"]) == (True, True)
    assert printed["conditions"] == [
        {
            "pointer": "/a/b",
            "operator": "in",
            "expected": '["x"]',
            "found": '"x"',
            "held": True,
            "no_object_at": None,
            "alternative": None,
            "within": [],
        }
    ]


def test_a_filter_can_come_from_a_file(webhook: Any, log: LogWriter, hookmill: Hookmill, tmp_path: Path):
    (tmp_path / "filter.json").write_text('{"a": {"exists": true}}')
    delivery = log.add_delivery(webhook["uid"], body=b"{}")

    printed = hookmill("filter", "test", "--delivery", delivery, "--filter-file", "filter.json").out

    assert "  no    /a     exists true  missing\n" in printed


def test_event_types_are_tested_on_a_delivery_with_what_it_has(webhook: Any, log: LogWriter, hookmill: Hookmill):
    pushed, plain = log.add_delivery(webhook["uid"], event="push"), log.add_delivery(webhook["uid"])
    wanted = ("--event", "push", "--event", "ping")

    passes = hookmill("filter", "test", "--delivery", pushed, *wanted).out
    fails = hookmill("filter", "test", "--delivery", pushed, "--event", "ping", "--filter", "{}").out
    none = hookmill("filter", "test", "--delivery", plain, *wanted, "--exit-code", exit_code=1).out
    printed = hookmill("filter", "test", "--delivery", pushed, *wanted, "--json").json

    assert passes.startswith("Would trigger\n  Webhook check: passed\n  Event check: passed; the event type is push")
    assert "  Event check: failed; the event type is push, expected ping\n" in fails
    assert "  Event check: failed; the delivery has no event type, expected push, ping\n" in none
    assert (printed["event_check"], printed["event_types"], printed["event"]) == (True, ["push", "ping"], "push")


def test_a_body_comes_with_the_event_type_that_is_named(automation: Any, hookmill: Hookmill):
    hookmill("automation", "change", "triage", "--event", "push")
    on_body = ("filter", "test", "--body", "-", "--json")

    draft = hookmill(*on_body, "--event", "push", "--body-event", "push", stdin=b"{}").json
    without = hookmill(*on_body, "--event", "push", stdin=b"{}").json
    own = hookmill(*on_body, "--automation", "triage", "--body-event", "push", stdin=b"{}").json

    assert [each["would_trigger"] for each in (draft, without, own)] == [True, False, True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--delivery", "dlv_1"], "give at least one of --filter, --filter-file, --event, --automation"),
        (["--delivery", "dlv_1", "--event", "a", "--automation", "x"], "at most one of --event, --automation"),
        (["--delivery", "dlv_1", "--event", "a", "--body-event", "x"], "at most one of --delivery, --body-event"),
    ],
)
def test_event_types_that_do_not_go_together_are_wrong_usage(hookmill: Hookmill, options: list[str], said: str):
    assert said in hookmill("filter", "test", *options, exit_code=2).err


def test_event_types_are_tested_on_the_last_deliveries(webhook: Any, log: LogWriter, hookmill: Hookmill):
    pushed = log.add_delivery(webhook["uid"], event="Push Hook")
    other = log.add_delivery(webhook["uid"], event="Tag Push Hook", at=START_US + 1)

    printed = hookmill("filter", "backtest", "--event", "Push Hook", "--json").json
    offered = hookmill("filter", "backtest", "--event", "Push Hook").out.splitlines()[-1]

    assert [each["delivery_id"] for each in printed["matching"]] == [pushed]
    assert [each["delivery_id"] for each in printed["others"]] == [other]
    assert offered.endswith(f"filter test --delivery {other} --event 'Push Hook'")


def test_the_webhook_check_fails_for_a_webhook_that_is_not_selected(webhook: Any, log: LogWriter, hookmill: Hookmill):
    hookmill("webhook", "create", "other")
    delivery = log.add_delivery(webhook["uid"])

    printed = hookmill("filter", "test", "--delivery", delivery, "--filter", "{}", "--webhook", "other").out

    assert printed.startswith("Would not trigger\n  Webhook check: failed\n  Payload check: passed\n")


def test_an_automations_own_triggers_are_tested(webhook: Any, log: LogWriter, hookmill: Hookmill):
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", '{"n": {"not_in": [1]}}')
    delivery = log.add_delivery(webhook["uid"], body=b'{"n": 1}')

    on_delivery = hookmill("filter", "test", "--delivery", delivery, "--automation", "a", "--json").json
    on_body = hookmill("filter", "test", "--body", "-", "--automation", "a", "--json", stdin=b'{"n": 2}').json

    assert (on_delivery["would_trigger"], on_delivery["webhook_check"]) == (False, True)
    assert (on_body["would_trigger"], on_body["webhook_check"]) == (True, None)


def test_an_automation_of_another_webhook_fails_the_webhook_check(webhook: Any, log: LogWriter, hookmill: Hookmill):
    hookmill("webhook", "create", "other")
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "other")
    delivery = log.add_delivery(webhook["uid"])

    printed = hookmill("filter", "test", "--delivery", delivery, "--automation", "a", "--json").json

    assert (printed["would_trigger"], printed["webhook_check"], printed["payload_check"]) == (False, False, True)


def test_a_trigger_without_a_filter_passes_every_payload(
    automation: Any, webhook: Any, log: LogWriter, hookmill: Hookmill
):
    delivery = log.add_delivery(webhook["uid"])

    printed = hookmill("filter", "test", "--delivery", delivery, "--automation", "triage").out

    assert (
        printed
        == "Would trigger\n  Webhook check: passed\n  Payload check: passed; without a filter, every payload passes\n"
    )


def test_a_delivery_without_a_payload_cannot_be_tested_on(webhook: Any, log: LogWriter, hookmill: Hookmill):
    delivery = log.add_delivery(webhook["uid"], Label.DUPLICATE)

    assert (
        "is Duplicate: only Accepted deliveries have a stored payload"
        in hookmill("filter", "test", "--delivery", delivery, "--filter", "{}", exit_code=1).err
    )


def test_a_body_that_is_not_json_is_refused_with_the_place(hookmill: Hookmill):
    printed = hookmill("filter", "test", "--body", "-", "--filter", "{}", stdin=b"{]", exit_code=1)

    assert printed.err == "The body is not JSON: not JSON at line 1, column 2.\n"


@pytest.mark.parametrize(
    "options",
    [
        ["--filter", "{}"],
        ["--body", "-", "--delivery", "dlv_1", "--filter", "{}"],
        ["--body", "-"],
        ["--body", "-", "--filter", "{}", "--automation", "a"],
        ["--body", "-", "--filter", "{}", "--webhook", "w"],
    ],
    ids=["nothing to test on", "two things to test on", "nothing to test", "two things to test", "a body's webhook"],
)
def test_contradicting_options_are_wrong_usage(hookmill: Hookmill, options: list[str]):
    hookmill("filter", "test", *options, exit_code=2)


OPENED = '{"action": ["opened"]}'


@pytest.fixture
def stored(webhook: Any, log: LogWriter) -> list[str]:
    """Accepted deliveries of `source`, oldest first: every other one is OPENED."""
    actions = ("opened", "closed", "opened", "closed")
    return [
        log.add_delivery(webhook["uid"], body=f'{{"action": "{action}"}}'.encode(), at=START_US + number)
        for number, action in enumerate(actions)
    ]


def test_a_backtest_lists_matching_and_other_deliveries(stored: list[str], hookmill: Hookmill):
    printed = hookmill("filter", "backtest", "--filter", OPENED).out.splitlines()

    assert printed[0] == "2 of the last 4 Accepted deliveries match."
    matching, others = printed.index("Matching:"), printed.index("Not matching:")
    assert [row.split()[2] for row in printed[matching + 2 : others - 1]] == [stored[2], stored[0]]
    assert [row.split()[2] for row in printed[others + 2 : -2]] == [stored[3], stored[1]]


def test_a_backtest_offers_the_line_that_says_why_not(stored: list[str], hookmill: Hookmill, tmp_path: Path):
    (tmp_path / "filter.json").write_text(OPENED)

    offered = hookmill("filter", "backtest", "--filter-file", "filter.json").out.splitlines()[-1]

    explained = hookmill("filter", "test", *offered.partition("filter test ")[2].split()).out
    assert offered.startswith("Why not: ")
    assert '  no    /action  in ["opened"]  "closed"\n' in explained


def test_a_backtest_as_json_has_both_lists(stored: list[str], hookmill: Hookmill):
    printed = hookmill("filter", "backtest", "--filter", OPENED, "--last", "3", "--json").json

    assert [delivery["delivery_id"] for delivery in printed["matching"]] == [stored[2]]
    assert [delivery["delivery_id"] for delivery in printed["others"]] == [stored[3], stored[1]]


def test_a_backtest_says_what_a_policy_would_do(stored: list[str], hookmill: Hookmill):
    printed = hookmill(
        "filter", "backtest", "--concurrency-key", "/action", "--debounce", "3600", "--last", "3"
    ).out.splitlines()

    assert printed[:2] == [
        "3 of the last 3 Accepted deliveries match.",
        "Their runs have 2 different keys. Debounce supersedes 1 of them.",
    ]


def test_a_backtest_can_be_narrowed_to_webhooks(stored: list[str], hookmill: Hookmill):
    hookmill("webhook", "create", "other")

    printed = hookmill("filter", "backtest", "--filter", OPENED, "--webhook", "other").out

    assert printed == "There are no Accepted deliveries to test yet.\n"


def test_a_backtest_on_a_terminal_shows_that_it_goes_on(stored: list[str]):
    assert "Testing the last deliveries" in terminal_output("filter", "backtest", "--filter", OPENED)


def test_a_backtest_needs_one_filter(hookmill: Hookmill):
    assert "give at least one of --filter, --filter-file, --event" in hookmill("filter", "backtest", exit_code=2).err
    twice = hookmill("filter", "backtest", "--filter", "{}", "--filter-file", "x", exit_code=2).err
    assert "at most one of --filter, --filter-file" in twice
