"""The run policy of an automation: how many runs may be active, how long it collects deliveries, and its retries.

Concurrency and debounce apply by *policy key*: runs of one automation with equal values at the policy's JSON pointers
share a key. A run is *active* while it is ready to start, is performed, or waits for its next attempt.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, TypeVar

from hookmill.domain import json_pointer
from hookmill.domain.errors import Invalid
from hookmill.domain.filters.rendering import text_of
from hookmill.domain.filters.values import MISSING
from hookmill.domain.ids import AutomationId
from hookmill.domain.payload import Json, Parsed, VastNumber
from hookmill.domain.payload_pointer import usable_pointer, value_at

T = TypeVar("T")

KEY_POINTERS_MAX: Final = 4
LIMIT_MAX: Final = 1_000
"""The maximum of `limit` and of `max_running`."""
FAILURES_MAX: Final = 1_000
"""The maximum of `pause_after_failures`."""
DEBOUNCE_SECONDS_MAX: Final = 86_400
DEFAULT_MAX_FACTOR: Final = 10
"""Without `max_seconds`, a debounce ends after this many times its `seconds`."""
ATTEMPTS_MAX: Final = 20
BACKOFF_SECONDS_MAX: Final = 86_400
EXIT_CODES_MAX: Final = 32
_KEY_BYTES: Final = 16
_SHORT_INT: Final = 10**18
"""Numbers below it are converted to text without Decimal, which takes several times as long."""


class WhenBusy(StrEnum):
    """What happens to a new run while `limit` runs with its key are active."""

    QUEUE = "queue"
    """The new run waits until an active run ends. The oldest waiting run starts first."""
    SKIP = "skip"
    """The new run ends as skipped."""
    REPLACE = "replace"
    """The oldest active run is stopped, and ends as replaced. Then the new run starts. A newer run is not stopped."""


class Priority(StrEnum):
    """The order in which a factory's runs start."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        """The stored number: runs with lower ranks start first."""
        return list(Priority).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """At most `limit` active runs with the same key. Without pointers, all runs of the automation have one key."""

    key_pointers: tuple[str, ...] = ()
    """JSON pointers into the payload. Their values determine the key."""
    limit: int = 1
    when_busy: WhenBusy = WhenBusy.QUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Debounce:
    """A run starts when no delivery with its key arrived for `seconds`, or `max_seconds` after the first delivery.

    Only the run of the newest delivery starts. The runs of the other deliveries end as superseded.
    """

    seconds: int
    max_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A failed attempt is followed by another one, until `attempts` attempts have failed.

    Attempts that a dead worker or a fault of the host cut short don't count.
    """

    attempts: int
    backoff_seconds: int = 30
    """The time after the first failed attempt; doubled after each further one, up to `max_backoff_seconds`."""
    max_backoff_seconds: int = 3_600
    exit_codes: tuple[int, ...] = ()
    """Only failures with these exit codes are retried. If empty, every failure is retried."""

    def delay_after(self, failures: int, exit_status: int | None) -> int | None:
        """Seconds until the next attempt, after `failures` failed attempts; None if there is no further attempt."""
        if failures >= self.attempts or (self.exit_codes and exit_status not in self.exit_codes):
            return None
        # The exponent is small, because `attempts` is at most `ATTEMPTS_MAX`.
        return int(min(self.backoff_seconds * 2 ** (failures - 1), self.max_backoff_seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    concurrency: Concurrency | None = None
    debounce: Debounce | None = None
    retry: Retry | None = None
    """None: the retry rule of the runner applies."""
    priority: Priority = Priority.NORMAL
    max_running: int | None = None
    """The maximum number of runs, with any key, that workers perform at the same time. None: no limit."""
    pause_after_failures: int | None = None
    """The automation is disabled after this many runs in a row have failed or were interrupted. None: never."""
    unreadable: str | None = None
    """Why the stored policy can't be read. Then all other attributes have their defaults, and no run may start."""
    _key_paths: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)
    """The steps of each key pointer, unescaped."""

    def __post_init__(self) -> None:
        pointers = self.concurrency.key_pointers if self.concurrency is not None else ()
        object.__setattr__(self, "_key_paths", tuple(tuple(json_pointer.steps_of(pointer)) for pointer in pointers))

    @property
    def has_key(self) -> bool:
        """Whether a key distinguishes runs. Otherwise, the rules apply to all runs of the automation together."""
        return bool(self._key_paths)

    @property
    def reason_against_runs(self) -> str | None:
        """Why a run is recorded as interrupted instead of starting; None if runs may start."""
        if self.unreadable is None:
            return None
        return f"The run did not start, because {unreadable_text('run policy', self.unreadable)}"

    @property
    def can_hold_runs(self) -> bool:
        """Whether the policy has a rule because of which a new run may have to wait: concurrency or debounce."""
        return self.concurrency is not None or self.debounce is not None

    def policy_key(self, automation_id: AutomationId, payload: Parsed | None) -> bytes | None:
        """16 bytes that are equal for runs with the same key; None if the policy has no rule that needs a key.

        Values are compared as filters compare them: 1 equals 1.0, but not "1". A missing value is a value of its own.
        Without a payload, all values are missing.
        """
        if not self.can_hold_runs:
            return None
        values = [
            _canonical(value_at(payload.value if payload is not None else MISSING, steps)) for steps in self._key_paths
        ]
        return sha256("\0".join([automation_id, *values]).encode("utf-8", "surrogatepass")).digest()[:_KEY_BYTES]

    def as_json(self) -> dict[str, Any]:
        """The policy's fields of the automation, without those that have their default."""
        fields: dict[str, Any] = {}
        if (concurrency := self.concurrency) is not None:
            key = {"key": list(concurrency.key_pointers)} if concurrency.key_pointers else {}
            fields["concurrency"] = {**key, "limit": concurrency.limit, "when_busy": concurrency.when_busy.value}
        if (debounce := self.debounce) is not None:
            fields["debounce"] = {"seconds": debounce.seconds, "max_seconds": debounce.max_seconds}
        if (retry := self.retry) is not None:
            codes = {"exit_codes": list(retry.exit_codes)} if retry.exit_codes else {}
            fields["retry"] = {
                "attempts": retry.attempts,
                "backoff_seconds": retry.backoff_seconds,
                "max_backoff_seconds": retry.max_backoff_seconds,
                **codes,
            }
        if self.priority is not Priority.NORMAL:
            fields["priority"] = self.priority.value
        if self.max_running is not None:
            fields["max_running"] = self.max_running
        if self.pause_after_failures is not None:
            fields["pause_after_failures"] = self.pause_after_failures
        return fields


NO_POLICY: Final = RunPolicy()
POLICY_FIELDS: Final = ("concurrency", "debounce", "retry", "priority", "max_running", "pause_after_failures")


def changed_policy(policy: RunPolicy, changes: Mapping[str, Any]) -> RunPolicy:
    """The policy with some of its `POLICY_FIELDS` replaced. None resets a field to its default.

    Raises `Invalid` with a JSON pointer, also if the policy can't be read and not all fields are replaced.
    """
    refuse_unreadable("run policy", policy.unreadable, changes, POLICY_FIELDS)
    return policy_from_json({**policy.as_json(), **changes}) if changes else policy


def refuse_unreadable(part: str, reason: str | None, changes: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises `Invalid` if a stored part can't be read, unless the changes replace all of its fields: the others would
    get their defaults."""
    if reason is not None and any(name not in changes for name in names):
        raise Invalid(f"The automation can't be saved, because {unreadable_text(part, reason)}")


def unreadable_text(part: str, reason: str) -> str:
    return f"its stored {part} can't be read: {reason} Replace all fields of the {part} with one request of the API."


def policy_from_json(source: Mapping[str, Any]) -> RunPolicy:
    """The policy with these `POLICY_FIELDS`; other keys are ignored. Raises `Invalid` with a JSON pointer."""
    concurrency, debounce, retry, priority, max_running, failures = (source.get(name) for name in POLICY_FIELDS)
    return RunPolicy(
        concurrency=_concurrency(concurrency) if concurrency is not None else None,
        debounce=_debounce(debounce) if debounce is not None else None,
        retry=retry_from_json(retry) if retry is not None else None,
        priority=_priority(priority) if priority is not None else Priority.NORMAL,
        max_running=usable_max_running(max_running) if max_running is not None else None,
        pause_after_failures=_number(failures, "/pause_after_failures", FAILURES_MAX) if failures is not None else None,
    )


def usable_max_running(source: Any) -> int:
    """The limit of running runs, of an automation or a factory. Raises `Invalid` with a JSON pointer."""
    return _number(source, "/max_running", LIMIT_MAX)


def policy_from_stored(stored_json: str) -> RunPolicy:
    """The policy of a stored automation. Never raises."""
    return read_stored(stored_json, POLICY_FIELDS, policy_from_json, lambda reason: RunPolicy(unreadable=reason))


def read_stored(
    text: str, names: Sequence[str], read: Callable[[dict[str, Any]], T], otherwise: Callable[[str], T]
) -> T:
    """What `read` makes of the stored JSON object with these names, or `otherwise` of the reason why it can't be read.

    Never raises.
    """
    if (source := _stored_object(text)) is None:
        return otherwise("It is not a JSON object.")
    if unknown := sorted(source.keys() - set(names)):
        return otherwise(f"Unknown field {unknown[0][:40]!r}.")
    try:
        return read(source)
    except Invalid as error:
        return otherwise(str(error))
    except Exception as error:
        # A fault in one automation must not affect the others.
        return otherwise(f"A fault of type {type(error).__name__}.")


def _stored_object(text: str) -> dict[str, Any] | None:
    try:
        source = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return source if isinstance(source, dict) else None


def superseded_by_debounce(debounce: Debounce, arrivals: Iterable[tuple[bytes | None, int]]) -> set[int]:
    """The positions of the deliveries whose runs a newer delivery would supersede.

    `arrivals` has the policy key and the time of each delivery in µs, oldest first.
    """
    superseded: set[int] = set()
    newest_by_key: dict[bytes | None, tuple[int, int, int]] = {}
    """By key: the newest delivery's position, when the first delivery of its group arrived, and when its run is due."""
    for position, (key, arrived_at) in enumerate(arrivals):
        older_position, first_at, due_at = newest_by_key.get(key, (-1, arrived_at, 0))
        if arrived_at < due_at:
            superseded.add(older_position)
        else:
            first_at = arrived_at
        due_at = min(arrived_at + debounce.seconds * 1_000_000, first_at + debounce.max_seconds * 1_000_000)
        newest_by_key[key] = (position, first_at, due_at)
    return superseded


def _concurrency(source: Any) -> Concurrency:
    fields = _object(source, "/concurrency", ("key", "limit", "when_busy"))
    key = fields.get("key", [])
    pointers = [key] if isinstance(key, str) else key
    if not isinstance(pointers, list) or len(pointers) > KEY_POINTERS_MAX:
        raise Invalid(
            f"key must be a JSON pointer such as /pull_request/number, or a list of up to {KEY_POINTERS_MAX}.",
            pointer="/concurrency/key",
        )
    when_busy = fields.get("when_busy", WhenBusy.QUEUE)
    if when_busy not in list(WhenBusy):
        raise Invalid("when_busy must be queue, skip or replace.", pointer="/concurrency/when_busy")
    return Concurrency(
        key_pointers=tuple(usable_pointer(pointer, "/concurrency/key", "A key") for pointer in pointers),
        limit=_number(fields.get("limit", 1), "/concurrency/limit", LIMIT_MAX),
        when_busy=WhenBusy(when_busy),
    )


def _debounce(source: Any) -> Debounce:
    fields = _object(source, "/debounce", ("seconds", "max_seconds"))
    seconds = _number(fields.get("seconds"), "/debounce/seconds", DEBOUNCE_SECONDS_MAX)
    default = min(DEFAULT_MAX_FACTOR * seconds, DEBOUNCE_SECONDS_MAX)
    max_seconds = _number(fields.get("max_seconds", default), "/debounce/max_seconds", DEBOUNCE_SECONDS_MAX)
    if max_seconds < seconds:
        raise Invalid("max_seconds must not be less than seconds.", pointer="/debounce/max_seconds")
    return Debounce(seconds=seconds, max_seconds=max_seconds)


def retry_from_json(source: Any) -> Retry:
    """The retry rule. Raises `Invalid` with a JSON pointer, which is `/retry` or below it."""
    fields = _object(source, "/retry", ("attempts", "backoff_seconds", "max_backoff_seconds", "exit_codes"))
    backoff = _number(fields.get("backoff_seconds", 30), "/retry/backoff_seconds", BACKOFF_SECONDS_MAX)
    default = max(backoff, 3_600)
    codes = fields.get("exit_codes", [])
    if not isinstance(codes, list) or len(codes) > EXIT_CODES_MAX or not all(map(_is_exit_code, codes)):
        raise Invalid(
            f"exit_codes must be a list of up to {EXIT_CODES_MAX} whole numbers from 1 to 255.",
            pointer="/retry/exit_codes",
        )
    return Retry(
        attempts=_number(fields.get("attempts"), "/retry/attempts", ATTEMPTS_MAX),
        backoff_seconds=backoff,
        max_backoff_seconds=_number(
            fields.get("max_backoff_seconds", default), "/retry/max_backoff_seconds", BACKOFF_SECONDS_MAX
        ),
        exit_codes=tuple(codes),
    )


def _is_exit_code(source: Any) -> bool:
    return type(source) is int and 1 <= source <= 255


def _priority(source: Any) -> Priority:
    if source in list(Priority):
        return Priority(source)
    raise Invalid("priority must be high, normal or low.", pointer="/priority")


def _object(source: Any, pointer: str, names: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(source, dict):
        raise Invalid(f"{pointer[1:]} must be an object with {', '.join(names)}.", pointer=pointer)
    for name in source:
        if name not in names:
            shown = str(name)[:40]
            raise Invalid(
                f"Unknown field {shown!r}. Known fields: {', '.join(names)}.",
                pointer=f"{pointer}/{json_pointer.escape(shown)}",
            )
    return source


def _number(source: Any, pointer: str, maximum: int) -> int:
    if type(source) is int and 1 <= source <= maximum:
        return source
    raise Invalid(f"{pointer.rpartition('/')[2]} must be a whole number from 1 to {maximum:,}.", pointer=pointer)


def _canonical(value: Json) -> str:
    """A text that is equal for equal JSON values only."""
    return text_of(value, _canonical_scalar, has_sorted_names=True)


def _canonical_scalar(value: Json) -> str:
    if value is MISSING:
        return "missing"
    if type(value) is int and -_SHORT_INT < value < _SHORT_INT:
        digits = str(abs(value))
        return _number_text(value < 0, digits, 0)
    if type(value) is int or type(value) is Decimal:
        sign, digits_of_number, exponent = Decimal(value).as_tuple()
        assert isinstance(exponent, int), "JSON has no infinity and no NaN"
        return _number_text(sign == 1, "".join(map(str, digits_of_number)).lstrip("0"), exponent)
    # Equal VastNumbers have the same text.
    return str(value) if type(value) is VastNumber else json.dumps(value)


def _number_text(is_negative: bool, digits: str, exponent: int) -> str:
    significant = digits.rstrip("0")
    if not significant:
        return "0"
    return f"{'-' * is_negative}{significant}E{exponent + len(digits) - len(significant)}"
