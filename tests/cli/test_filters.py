"""`hookmill filter`."""

import pytest

from tests.cli.conftest import START_US
from tests.cli.terminal import terminal_output
from tests.inputs.extreme_payloads import EXTREME_VALUES, payload_with


def test_filter_is_tested_on_a_body_without_an_installation(hookmill, data_dir):
    output = hookmill("filter", "test", "--body", "-", "--filter", '{"a": [1]}', stdin=b'{"a": 1.0}').out

    assert output.splitlines() == [
        "Would trigger",
        "  Webhook check: none, because a body has no webhook",
        "  Payload check: passed",
        "  HELD  FIELD  CONDITION  FOUND",
        "  yes   /a     in [1]     1.0",
    ]
    assert not data_dir.exists()


def test_conditions_inside_any_and_not_are_listed_after_them(hookmill):
    filter_json = '{"a": {"$any": [["x"], {"$not": {"$prefix": "y"}}]}}'

    output = hookmill("filter", "test", "--body", "-", "--filter", filter_json, stdin=b'{"a": "yes"}').out

    assert output.splitlines()[-5:] == [
        "  HELD  FIELD              CONDITION        FOUND",
        '  no    /a                 $any [[…], {…}]  "yes"',
        '  no    $any 1: /a         in ["x"]         "yes"',
        '  no    $any 2: /a         $not {…}         "yes"',
        '  yes   $any 2 > $not: /a  $prefix "y"      "yes"',
    ]


def test_exit_code_option_reports_the_result(hookmill):
    command = ("filter", "test", "--body", "-", "--exit-code", "--filter", '{"a": [2]}')

    hookmill(*command, stdin=b'{"a": 2}', exit_code=0)
    hookmill(*command, stdin=b'{"a": 1}', exit_code=1)


def test_filter_is_tested_on_a_stored_delivery(webhook, log, hookmill):
    delivery = log.add_delivery(webhook["uid"], body=b'{"a": {"b": "x"}}')

    result = hookmill("filter", "test", "--delivery", delivery, "--filter", '{"a": {"b": ["x"]}}', "--json").json

    assert result["would_trigger"] is True
    assert (result["webhook_check"], result["payload_check"]) == (True, True)
    assert result["conditions"] == [
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


def test_event_types_are_tested_on_a_stored_delivery(webhook, log, hookmill):
    pushed, plain = log.add_delivery(webhook["uid"], event="push"), log.add_delivery(webhook["uid"])
    events = ("--event", "push", "--event", "ping")

    passed = hookmill("filter", "test", "--delivery", pushed, *events).out
    failed = hookmill("filter", "test", "--delivery", pushed, "--event", "ping", "--filter", "{}").out
    without_event_type = hookmill("filter", "test", "--delivery", plain, *events, "--exit-code", exit_code=1).out
    result = hookmill("filter", "test", "--delivery", pushed, *events, "--json").json

    assert passed.startswith("Would trigger\n  Webhook check: passed\n  Event check: passed; the event type is push")
    assert "  Event check: failed; the event type is push, expected ping\n" in failed
    assert "  Event check: failed; the delivery has no event type, expected push, ping\n" in without_event_type
    assert (result["event_check"], result["event_types"], result["event"]) == (True, ["push", "ping"], "push")


def test_body_event_sets_the_event_type_of_a_body(automation, hookmill):
    hookmill("automation", "change", "triage", "--event", "push")
    on_body = ("filter", "test", "--body", "-", "--json")

    with_event = hookmill(*on_body, "--event", "push", "--body-event", "push", stdin=b"{}").json
    without_event = hookmill(*on_body, "--event", "push", stdin=b"{}").json
    with_automation = hookmill(*on_body, "--automation", "triage", "--body-event", "push", stdin=b"{}").json

    assert [result["would_trigger"] for result in (with_event, without_event, with_automation)] == [True, False, True]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--delivery", "dlv_1"], "give at least one of --filter, --filter-file, --event, --automation"),
        (["--delivery", "dlv_1", "--event", "a", "--automation", "x"], "at most one of --event, --automation"),
        (["--delivery", "dlv_1", "--event", "a", "--body-event", "x"], "at most one of --delivery, --body-event"),
    ],
)
def test_contradicting_event_options_are_wrong_usage(hookmill, options, problem):
    assert problem in hookmill("filter", "test", *options, exit_code=2).err


def test_backtest_compares_event_types(webhook, log, hookmill):
    pushed = log.add_delivery(webhook["uid"], event="Push Hook")
    other = log.add_delivery(webhook["uid"], event="Tag Push Hook", at=START_US + 1)

    result = hookmill("filter", "backtest", "--event", "Push Hook", "--json").json
    command = hookmill("filter", "backtest", "--event", "Push Hook").out.splitlines()[-1]

    assert [row["delivery_id"] for row in result["matching"]] == [pushed]
    assert [row["delivery_id"] for row in result["others"]] == [other]
    assert command.endswith(f"filter test --delivery {other} --event 'Push Hook'")


def test_webhook_check_fails_if_the_webhook_is_not_selected(webhook, log, hookmill):
    hookmill("webhook", "create", "other")
    delivery = log.add_delivery(webhook["uid"])

    output = hookmill("filter", "test", "--delivery", delivery, "--filter", "{}", "--webhook", "other").out

    assert output.startswith("Would not trigger\n  Webhook check: failed\n  Payload check: passed; ")


def test_triggers_of_an_automation_are_tested(webhook, log, hookmill):
    hookmill("automation", "create", "a", "--prompt", "x", "--webhook", "source", "--filter", '{"n": {"not_in": [1]}}')
    delivery = log.add_delivery(webhook["uid"], body=b'{"n": 1}')

    on_delivery = hookmill("filter", "test", "--delivery", delivery, "--automation", "a", "--json").json
    on_body = hookmill("filter", "test", "--body", "-", "--automation", "a", "--json", stdin=b'{"n": 2}').json

    assert (on_delivery["would_trigger"], on_delivery["webhook_check"]) == (False, True)
    assert (on_body["would_trigger"], on_body["webhook_check"]) == (True, None)


def test_every_payload_passes_a_trigger_without_a_filter(automation, webhook, log, hookmill):
    delivery = log.add_delivery(webhook["uid"])

    output = hookmill("filter", "test", "--delivery", delivery, "--automation", "triage").out

    assert (
        output
        == "Would trigger\n  Webhook check: passed\n  Payload check: passed; without conditions, every payload passes\n"
    )


def test_body_that_is_not_json_is_refused_with_the_location(hookmill):
    result = hookmill("filter", "test", "--body", "-", "--filter", "{}", stdin=b"{]", exit_code=1)

    assert result.err == "The body is not JSON: not JSON at line 1, column 2.\n"


@pytest.mark.parametrize(
    "options",
    [
        ["--filter", "{}"],
        ["--body", "-", "--delivery", "dlv_1", "--filter", "{}"],
        ["--body", "-"],
        ["--body", "-", "--filter", "{}", "--automation", "a"],
        ["--body", "-", "--filter", "{}", "--webhook", "w"],
    ],
    ids=["no payload", "two payloads", "no filter", "two filters", "webhook of a body"],
)
def test_contradicting_options_are_wrong_usage(hookmill, options):
    hookmill("filter", "test", *options, exit_code=2)


FILTER = '{"action": ["opened"]}'


@pytest.fixture
def stored_deliveries(webhook, log):
    """The ids of accepted deliveries of `source`, oldest first. The first and the third match `FILTER`."""
    actions = ("opened", "closed", "opened", "closed")
    return [
        log.add_delivery(webhook["uid"], body=f'{{"action": "{action}"}}'.encode(), at=START_US + number)
        for number, action in enumerate(actions)
    ]


def test_backtest_lists_matching_and_other_deliveries(stored_deliveries, hookmill):
    lines = hookmill("filter", "backtest", "--filter", FILTER).out.splitlines()

    assert lines[0] == "2 of the last 4 Accepted deliveries match."
    matching, others = lines.index("Matching:"), lines.index("Not matching:")
    assert [row.split()[2] for row in lines[matching + 2 : others - 1]] == [stored_deliveries[2], stored_deliveries[0]]
    assert [row.split()[2] for row in lines[others + 2 : -2]] == [stored_deliveries[3], stored_deliveries[1]]


def test_backtest_prints_a_command_that_explains_a_mismatch(stored_deliveries, hookmill, tmp_path):
    (tmp_path / "filter.json").write_text(FILTER)

    line = hookmill("filter", "backtest", "--filter-file", "filter.json").out.splitlines()[-1]

    explanation = hookmill("filter", "test", *line.partition("filter test ")[2].split()).out
    assert line.startswith("Why not: ")
    assert '  no    /action  in ["opened"]  "closed"\n' in explanation


def test_backtest_prints_the_effect_of_a_run_policy(stored_deliveries, hookmill):
    lines = hookmill(
        "filter", "backtest", "--concurrency-key", "/action", "--debounce", "3600", "--last", "3"
    ).out.splitlines()

    assert lines[:2] == [
        "3 of the last 3 Accepted deliveries match.",
        "Their runs have 2 different keys. Debounce supersedes 1 of these runs.",
    ]


def test_backtest_of_one_webhook_ignores_other_deliveries(stored_deliveries, hookmill):
    hookmill("webhook", "create", "other")

    output = hookmill("filter", "backtest", "--filter", FILTER, "--webhook", "other").out

    assert output == "There are no Accepted deliveries to test yet.\n"


def test_backtest_shows_its_progress_on_a_terminal(stored_deliveries):
    assert "Testing the last deliveries" in terminal_output("filter", "backtest", "--filter", FILTER)


def test_backtest_requires_exactly_one_filter(hookmill):
    assert "give at least one of --filter, --filter-file, --event" in hookmill("filter", "backtest", exit_code=2).err
    error = hookmill("filter", "backtest", "--filter", "{}", "--filter-file", "x", exit_code=2).err
    assert "at most one of --filter, --filter-file" in error


@pytest.mark.parametrize("number", ["0.12345678901234567890123", "1e400"])
def test_numbers_of_a_filter_are_not_rounded(hookmill, number):
    filter_json = '{"a": {"$gte": NUMBER, "$lte": NUMBER}}'.replace("NUMBER", number)
    command = ("filter", "test", "--body", "-", "--filter", filter_json)

    assert hookmill(*command, stdin=b'{"a": %s}' % number.encode()).out.startswith("Would trigger\n")
    assert hookmill(*command, stdin=b'{"a": 0.12345678901234568}').out.startswith("Would not trigger\n")


def test_commands_show_extreme_payloads(webhook, automation, log, hookmill, subtests):
    hookmill("automation", "change", "triage", "--field", "k=/k", "--concurrency-key", "/k")
    filter_json = '{"k": {"$any": [{"$gt": 1}, {"k": {"exists": true}}, ["a"]]}}'
    for name, value in EXTREME_VALUES.items():
        with subtests.test(name):
            body = payload_with(value)
            delivery = log.add_delivery(webhook["uid"], body=body)
            run = log.add_run(delivery, automation["automation_id"])

            assert hookmill("delivery", "payload", delivery).out_bytes == body
            hookmill("filter", "test", "--body", "-", "--filter", filter_json, stdin=body)
            hookmill("filter", "backtest", "--filter", filter_json)
            for shown in (("delivery", "show", delivery), ("run", "show", run)):
                hookmill(*shown)
                hookmill(*shown, "--json")
