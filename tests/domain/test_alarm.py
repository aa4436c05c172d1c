"""The rules of alarms: when one is raised, announced and resolved, without the service."""

from dataclasses import replace

import pytest

from hookmill.domain.alarm import (
    ALARM_RULES,
    FREE_INODES_MIN,
    NOTICE_PAUSE_SECONDS,
    Alarm,
    AlarmKind,
    AlarmScope,
    AlarmState,
    AlarmStep,
    AlarmSubject,
    AlarmThresholds,
    FreeSpace,
    authentication_fails,
    clock_problem,
    disk_is_low,
    duration_text,
    may_be_quiet,
    needs_notice,
    next_step,
)
from hookmill.domain.delivery import Label

MINUTE = 60_000_000
HOUR = 60 * MINUTE
NOW = 1_900_000_000_000_000
KIND = AlarmKind.RATE_LIMITED
OPEN = Alarm(
    key=bytes(16),
    kind=KIND,
    subject=AlarmSubject(id="wh_1", name="orders", factory_id=None),
    summary="Deliveries were dropped.",
    raised_at=NOW - HOUR,
    clear_since=None,
    resolved_at=None,
    snoozed_until=None,
    announced_at=None,
    last_announced_at=None,
)
SETTLING = replace(OPEN, clear_since=NOW - MINUTE)
SETTLED = replace(OPEN, clear_since=NOW - ALARM_RULES[KIND].settle_seconds * 1_000_000)
FAILED, ACCEPTED = (Label.REJECTED_AUTH, NOW - MINUTE), (Label.ACCEPTED, NOW - MINUTE)


@pytest.mark.parametrize(
    ("alarm", "holds", "step"),
    [
        (None, False, AlarmStep.NONE),
        (None, True, AlarmStep.RAISE),
        (OPEN, True, AlarmStep.NONE),
        (OPEN, False, AlarmStep.BEGIN_TO_SETTLE),
        (SETTLING, False, AlarmStep.NONE),
        (SETTLING, True, AlarmStep.HOLD_AGAIN),
        (SETTLED, True, AlarmStep.HOLD_AGAIN),
        (SETTLED, False, AlarmStep.RESOLVE),
        (replace(OPEN, clear_since=NOW + HOUR), False, AlarmStep.BEGIN_TO_SETTLE),
    ],
)
def test_alarm_is_resolved_after_its_condition_has_not_held_for_a_while(alarm, holds, step):
    assert next_step(alarm, KIND, NOW, holds=holds) is step


def test_alarm_without_a_time_to_settle_is_resolved_immediately():
    assert next_step(OPEN, AlarmKind.WEBHOOK_QUIET, NOW, holds=False) is AlarmStep.RESOLVE


LONG_AGO = NOW - NOTICE_PAUSE_SECONDS * 1_000_000


@pytest.mark.parametrize(
    ("changes", "is_needed"),
    [
        ({}, True),
        ({"last_announced_at": LONG_AGO}, True),
        ({"last_announced_at": LONG_AGO + 1}, False),
        ({"last_announced_at": NOW + HOUR}, True),
        ({"announced_at": LONG_AGO, "last_announced_at": LONG_AGO}, False),
        ({"clear_since": NOW - MINUTE}, False),
        ({"resolved_at": NOW}, False),
        ({"snoozed_until": NOW + 1}, False),
        ({"snoozed_until": NOW}, True),
        ({"announced_at": LONG_AGO, "last_announced_at": LONG_AGO, "snoozed_until": NOW}, True),
        ({"announced_at": LONG_AGO + 1, "last_announced_at": LONG_AGO + 1, "snoozed_until": NOW}, False),
        ({"announced_at": NOW, "last_announced_at": NOW, "snoozed_until": NOW}, False),
    ],
)
def test_notices_of_a_subject_are_an_hour_apart_and_wait_for_a_snooze(changes, is_needed):
    assert needs_notice(replace(OPEN, **changes), NOW) is is_needed


def test_state_says_whether_an_open_alarm_is_snoozed():
    snoozed = replace(OPEN, snoozed_until=NOW + 1)

    assert [alarm.state(NOW) for alarm in (OPEN, snoozed, replace(snoozed, resolved_at=NOW))] == list(AlarmState)
    assert snoozed.state(NOW + 1) is AlarmState.OPEN


@pytest.mark.parametrize(
    ("expected_from", "expect_every", "watched_from", "may"),
    [
        (NOW - HOUR, 3_600, 0, False),
        (NOW - HOUR - 1, 3_600, 0, True),
        (0, 86_400, NOW - HOUR, False),
        (0, 86_400, NOW - HOUR - 1, True),
        (0, 300, NOW - 5 * MINUTE, False),
        (0, 300, NOW - 5 * MINUTE - 1, True),
    ],
)
def test_webhook_is_not_quiet_soon_after_a_change_or_a_start(expected_from, expect_every, watched_from, may):
    assert may_be_quiet(expected_from, expect_every, watched_from, NOW) is may


@pytest.mark.parametrize(
    ("newest", "fails"),
    [
        ([FAILED] * 3, True),
        ([FAILED] * 3 + [ACCEPTED], True),
        ([FAILED] * 2, False),
        ([ACCEPTED] + [FAILED] * 3, False),
        ([FAILED, FAILED, ACCEPTED], False),
        ([FAILED, FAILED, (Label.REJECTED_AUTH, NOW - 24 * HOUR)], False),
    ],
)
def test_authentication_fails_after_failures_in_a_row_within_a_day(newest, fails):
    assert authentication_fails(newest, NOW, 3) is fails


@pytest.mark.parametrize(
    ("space", "is_open", "is_low"),
    [
        ((99, None), False, True),
        ((100, None), False, False),
        ((119, None), True, True),
        ((120, None), True, False),
        ((500, FREE_INODES_MIN - 1), False, True),
        ((500, FREE_INODES_MIN), False, False),
        ((500, FREE_INODES_MIN), True, True),
    ],
)
def test_disk_must_have_more_space_again_than_raised_the_alarm(space, is_open, is_low):
    free = FreeSpace(free_bytes=space[0], free_inodes=space[1])

    assert disk_is_low(free, AlarmThresholds(disk_free_bytes=100), is_open=is_open) is is_low
    assert disk_is_low(free, AlarmThresholds(disk_free_bytes=0), is_open=is_open) is False


def test_disk_without_the_reserve_of_runs_is_low():
    free = FreeSpace(free_bytes=500, free_inodes=None, is_below_reserve=True)

    assert disk_is_low(free, AlarmThresholds(disk_free_bytes=100), is_open=False)


@pytest.mark.parametrize(
    ("server_at", "retention_at", "problem"),
    [
        (None, None, None),
        (None, NOW - 24 * HOUR, None),
        (None, NOW - 24 * HOUR - 1, "more than a day ahead"),
        (None, NOW + 30_000_000, None),
        (None, NOW + 30_000_001, "in the future"),
        (NOW + 30_000_007, None, None),
        (NOW + 30_000_008, None, "differ by more than 30 s"),
        (NOW - 30_000_008, None, "differ by more than 30 s"),
        (NOW, NOW - 48 * HOUR, None),
        (NOW, NOW + 48 * HOUR, None),
    ],
)
def test_clock_is_compared_with_the_server_and_with_retention(server_at, retention_at, problem):
    found = clock_problem(NOW, server_at=server_at, retention_at=retention_at, elapsed_us=7)

    assert (problem or "") in (found or "")
    assert (problem is None) == (found is None)


def test_every_kind_has_a_rule_with_short_texts():
    assert set(ALARM_RULES) == set(AlarmKind)
    assert {rule.scope for rule in ALARM_RULES.values()} == set(AlarmScope)
    assert [kind for kind, rule in ALARM_RULES.items() if len(rule.title) > 40 or rule.action.count(". ") > 1] == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (900, "15 min"), (5_400, "1 h 30 min"), (172_800, "2 d")]
)
def test_durations_are_written_in_their_largest_units(seconds, text):
    assert duration_text(seconds) == text
