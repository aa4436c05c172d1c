"""Alarms: problems that the service detects itself, when an alarm is raised and resolved, and the messages about it.

An alarm is about one subject, such as a webhook. The service evaluates the condition of each alarm every minute. It
raises an alarm when the condition begins to hold, and resolves it when the condition has not held for a while. So a
condition that comes and goes is one alarm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from hookmill.domain.delivery import Label
from hookmill.domain.ids import FactoryId

EVALUATION_SECONDS: Final = 60
"""The time between two evaluations of all conditions."""
NOTICE_PAUSE_SECONDS: Final = 3_600
"""Notices that an alarm is raised are at least this far apart for the same kind and subject."""
_SECOND_US: Final = 1_000_000
_MINUTE_US: Final = 60 * _SECOND_US
_HOUR_US: Final = 60 * _MINUTE_US
_DAY_US: Final = 24 * _HOUR_US

AUTHENTICATION_RANGE_US: Final = _DAY_US
"""Failed authentications that are older don't count."""
RATE_LIMIT_WINDOW_MINUTES: Final = 10
"""The number of minutes in which those with dropped deliveries are counted."""
QUIET_GRACE_US: Final = _HOUR_US
"""After the service was stopped, no webhook counts as quiet for this time."""
FREE_INODES_MIN: Final = 10_000
"""With fewer free inodes, the disk counts as almost full."""
DISK_RELEASE_FACTOR: Final = 1.2
"""An alarm about the disk ends at this multiple of the free space that raises it."""
WORKER_SILENT_SECONDS: Final = 300
"""If no worker has evaluated conditions for this time, no worker is left."""
CLOCK_SECONDS_MAX: Final = 30.0
"""With a larger difference between two clocks, rate limits and the age of signatures are wrong."""


class AlarmKind(StrEnum):
    WEBHOOK_QUIET = "webhook_quiet"
    AUTHENTICATION_FAILING = "authentication_failing"
    RATE_LIMITED = "rate_limited"
    RUNS_FAILING = "runs_failing"
    RUNS_WAITING = "runs_waiting"
    DISK_LOW = "disk_low"
    CLOCK_WRONG = "clock_wrong"
    CERTIFICATE_EXPIRING = "certificate_expiring"
    WORKER_STOPPED = "worker_stopped"


class AlarmEvent(StrEnum):
    """Why a destination gets a notice."""

    RAISED = "raised"
    RESOLVED = "resolved"
    TEST = "test"


class AlarmState(StrEnum):
    OPEN = "open"
    SNOOZED = "snoozed"
    """Open, but nobody gets a notice that it is raised, and pages don't mark it."""
    RESOLVED = "resolved"


class AlarmScope(StrEnum):
    """The kind of subject of an alarm."""

    WEBHOOK = "webhook"
    AUTOMATION = "automation"
    INSTALLATION = "installation"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmNotice:
    """The content of a message that a destination gets."""

    id: str
    """`alm_…`"""
    kind: AlarmKind | None
    """None in a test."""
    event: AlarmEvent
    factory: str | None
    """The factory's name; None for the installation."""
    subject: str
    """The name of the webhook or automation, or of the part of the installation."""
    summary: str
    """One sentence, without secrets, and without text from payloads."""
    action: str
    """What to do, in one or two sentences."""
    at: int
    """In µs since 1970."""
    url: str | None
    """The alarm's page in the dashboard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRule:
    """The fixed properties of a kind of alarm."""

    scope: AlarmScope
    title: str
    action: str
    """What to do, in one or two sentences."""
    settle_seconds: int = 600
    """The alarm is resolved when its condition has not held for this time."""


ALARM_RULES: Final[Mapping[AlarmKind, AlarmRule]] = {
    AlarmKind.WEBHOOK_QUIET: AlarmRule(
        scope=AlarmScope.WEBHOOK,
        title="No deliveries",
        action="Check at the sender whether the webhook is still active and has the right URL. If deliveries have "
        "become rarer, change the expected time of the webhook.",
        settle_seconds=0,
    ),
    AlarmKind.AUTHENTICATION_FAILING: AlarmRule(
        scope=AlarmScope.WEBHOOK,
        title="Authentication fails",
        action="Look up the reason in the delivery log: hookmill delivery list --label rejected_auth, and then "
        "hookmill delivery show. Give the sender the current secret, or rotate the secret.",
    ),
    AlarmKind.RATE_LIMITED: AlarmRule(
        scope=AlarmScope.WEBHOOK,
        title="Deliveries over the rate limit",
        action="Let the sender send less, or raise the setting deliveries_per_minute. Dropped deliveries are lost "
        "unless the sender retries.",
    ),
    AlarmKind.RUNS_FAILING: AlarmRule(
        scope=AlarmScope.AUTOMATION,
        title="Runs fail",
        action="Read the output of the last runs, and correct the cause. Enable the automation again if it was paused, "
        "and replay the deliveries.",
    ),
    AlarmKind.RUNS_WAITING: AlarmRule(
        scope=AlarmScope.AUTOMATION,
        title="Runs wait",
        action="Look at the queue: it shows the workers, and what the runs wait for. Start more workers, or raise "
        "runs_at_once or the limit of running runs.",
    ),
    AlarmKind.DISK_LOW: AlarmRule(
        scope=AlarmScope.INSTALLATION,
        title="Disk almost full",
        action="Free disk space, or move the data directory to a larger disk. A full disk stops deliveries or runs.",
    ),
    AlarmKind.CLOCK_WRONG: AlarmRule(
        scope=AlarmScope.INSTALLATION,
        title="Clock wrong",
        action="Synchronize the clocks of all hosts and of the database server, such as with chrony. If the clocks are "
        "right, and the service was stopped for longer than a day, do nothing.",
    ),
    AlarmKind.CERTIFICATE_EXPIRING: AlarmRule(
        scope=AlarmScope.INSTALLATION,
        title="Certificate expires",
        action="Renew the certificate, and check why it was not renewed automatically. Senders refuse an expired "
        "certificate.",
        settle_seconds=0,
    ),
    AlarmKind.WORKER_STOPPED: AlarmRule(
        scope=AlarmScope.INSTALLATION,
        title="No worker",
        action="Read in the service's log why its worker ends or does not respond, correct the cause, and restart the "
        "service. Deliveries are accepted meanwhile, and their runs start later.",
        settle_seconds=0,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmThresholds:
    """When alarms are raised. Operators set these values."""

    failed_authentications: int = 5
    """So many attempts in a row."""
    rate_limited_minutes_min: int = 3
    """So many of the last ten minutes had dropped deliveries."""
    failed_runs: int = 5
    """So many runs in a row."""
    waiting_seconds: int = 900
    """The time for which a run has waited."""
    disk_free_bytes: int = 1024 * 1024 * 1024
    """0: there is no alarm about the disk."""
    certificate_days: int = 14
    """0: there is no alarm about the certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSubject:
    """The object that an alarm is about. At most one alarm of each kind is open for each `id`."""

    id: str
    """The id of the webhook or automation, or a name for a part of the installation."""
    name: str
    factory_id: FactoryId | None
    """None for the installation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmCondition:
    """The condition of an alarm that holds for a subject."""

    kind: AlarmKind
    subject: AlarmSubject
    summary: str
    """One sentence for people. It stays the same while the condition holds, so it contains no growing numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """An alarm as stored. Times are in µs since 1970."""

    key: bytes
    kind: AlarmKind
    subject: AlarmSubject
    summary: str
    raised_at: int
    clear_since: int | None
    """Since when the condition of an open alarm does not hold; None if it holds."""
    resolved_at: int | None
    snoozed_until: int | None
    announced_at: int | None
    """When destinations got the last notice that it is raised; None if they got none."""
    last_announced_at: int | None
    """Like `announced_at`, but also of earlier alarms of the same kind and subject."""

    @property
    def rule(self) -> AlarmRule:
        return ALARM_RULES[self.kind]

    def state(self, now: int) -> AlarmState:
        if self.resolved_at is not None:
            return AlarmState.RESOLVED
        return AlarmState.SNOOZED if self.is_snoozed(now) else AlarmState.OPEN

    def is_snoozed(self, now: int) -> bool:
        return self.snoozed_until is not None and now < self.snoozed_until


class AlarmStep(Enum):
    """The effect of an evaluation on an alarm."""

    NONE = auto()
    RAISE = auto()
    BEGIN_TO_SETTLE = auto()
    """The condition holds no longer. The alarm is resolved unless the condition holds again soon."""
    HOLD_AGAIN = auto()
    """The condition holds again before the alarm was resolved."""
    RESOLVE = auto()


def next_step(alarm: Alarm | None, kind: AlarmKind, now: int, *, holds: bool) -> AlarmStep:
    """The effect of an evaluation at `now`, in µs since 1970. `alarm`: the open alarm of the subject, if any."""
    if alarm is None:
        return AlarmStep.RAISE if holds else AlarmStep.NONE
    if holds:
        return AlarmStep.HOLD_AGAIN if alarm.clear_since is not None else AlarmStep.NONE
    settle_us = ALARM_RULES[kind].settle_seconds * _SECOND_US
    if settle_us == 0 or (alarm.clear_since is not None and now >= alarm.clear_since + settle_us):
        return AlarmStep.RESOLVE
    # If the clock was set back, the alarm settles from now on.
    if alarm.clear_since is None or alarm.clear_since > now:
        return AlarmStep.BEGIN_TO_SETTLE
    return AlarmStep.NONE


def needs_notice(alarm: Alarm, now: int) -> bool:
    """Whether destinations must now get the notice that the alarm is raised. `now` is in µs since 1970.

    They get one for each alarm, and another one when a snooze ends.
    """
    if alarm.resolved_at is not None or alarm.clear_since is not None or alarm.is_snoozed(now):
        return False
    last_at = alarm.last_announced_at
    if last_at is not None and 0 <= now - last_at < NOTICE_PAUSE_SECONDS * _SECOND_US:
        return False
    if alarm.announced_at is None:
        return True
    return alarm.snoozed_until is not None and alarm.announced_at < alarm.snoozed_until


# The conditions


def may_be_quiet(expected_from: int, expect_every_seconds: int, watched_from: int, now: int) -> bool:
    """Whether a webhook counts as quiet if it has accepted no delivery within the expected time.

    `expected_from`: since when deliveries are expected. `watched_from`: since when the service has been running, apart
    from short interruptions. All times are in µs since 1970.
    """
    expect_every_us = expect_every_seconds * _SECOND_US
    return now - expected_from > expect_every_us and now - watched_from > min(expect_every_us, QUIET_GRACE_US)


def authentication_fails(newest: Sequence[tuple[Label, int]], now: int, at_least: int) -> bool:
    """Whether the newest `at_least` attempts in the log all failed to authenticate, within a day.

    `newest` are the labels and times of the webhook's newest attempts, newest first. Times are in µs since 1970.
    """
    attempts = newest[:at_least]
    return len(attempts) == at_least and all(
        label is Label.REJECTED_AUTH and at > now - AUTHENTICATION_RANGE_US for label, at in attempts
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSpace:
    """The free space for a directory."""

    free_bytes: int
    free_inodes: int | None
    """None if the file system has no inode table."""
    is_below_reserve: bool = False
    """Whether it is less than runs must leave, so that no run starts."""


def disk_is_low(space: FreeSpace, thresholds: AlarmThresholds, *, is_open: bool) -> bool:
    """Whether the free space is too small. While the alarm `is_open`, the limit is higher."""
    if not thresholds.disk_free_bytes:
        return False
    factor = DISK_RELEASE_FACTOR if is_open else 1
    lacks_inodes = space.free_inodes is not None and space.free_inodes < FREE_INODES_MIN * factor
    return space.is_below_reserve or lacks_inodes or space.free_bytes < thresholds.disk_free_bytes * factor


def clock_problem(now: int, *, server_at: int | None, retention_at: int | None, elapsed_us: int) -> str | None:
    """A sentence with the evidence that the clock of a host is wrong; None without evidence.

    `now`: the clock's time. `server_at`: the time of the database server, read within `elapsed_us` after `now`; None
    for SQLite. `retention_at`: the time that retention has reached, which follows the clock with a limited speed; None
    before its first pass. It is ignored if `server_at` is given. All times are in µs since 1970.
    """
    tolerance_us = int(CLOCK_SECONDS_MAX * _SECOND_US)
    if server_at is not None:
        # Retention may have reached a wrong time by the clock of another host, which has an alarm of its own.
        if abs(server_at - now) > tolerance_us + elapsed_us:
            return f"Its clock and the database server's clock differ by more than {CLOCK_SECONDS_MAX:g} s."
        return None
    if retention_at is not None and retention_at > now + tolerance_us:
        return "The last pass of retention is in the future, so a clock was wrong."
    if retention_at is not None and retention_at < now - _DAY_US:
        return "Its clock is more than a day ahead of the last pass of retention."
    return None


def certificate_expires(expiry: int, days: int, now: int) -> bool:
    """Whether the certificate ends within so many days, or has ended. Times are in µs since 1970."""
    return expiry - now < days * _DAY_US


def duration_text(seconds: int) -> str:
    """A duration for people, such as `1 h 30 min`."""
    parts = []
    for unit, unit_seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, unit_seconds)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"
