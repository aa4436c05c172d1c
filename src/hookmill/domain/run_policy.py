"""The run policy of an automation: how many runs may be active, how long it collects deliveries, and its retries.

Concurrency and debounce apply by *policy key*: runs of one automation with equal values at the policy's JSON pointers
share a key. A run is *active* while it is ready to start, is performed, or waits for its next attempt.
"""

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Final

from msgspec import Meta, field
from msgspec.structs import force_setattr

from hookmill.domain import json_pointer
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.filters.rendering import text_of
from hookmill.domain.filters.values import MISSING
from hookmill.domain.ids import AutomationId
from hookmill.domain.payload import Json, NotJson, Parsed, VastNumber, parse
from hookmill.domain.payload_pointer import Pointer, value_at
from hookmill.domain.spec import S, Spec, read

KEY_POINTERS_MAX: Final = 4
LIMIT_MAX: Final = 1_000
"""The maximum of `limit` and of `max_running`."""
FAILURES_MAX: Final = 1_000
"""The maximum of `pause_after_failures`."""
SECONDS_MAX: Final = 86_400
"""The maximum of all times in seconds."""
DEFAULT_MAX_FACTOR: Final = 10
"""Without `max_seconds`, a debounce ends after this many times its `seconds`."""
ATTEMPTS_MAX: Final = 20
REASONS_MAX: Final = 3
"""The maximum number of problems that the reason of an unreadable part lists."""
EXIT_CODES_MAX: Final = 32
Seconds = Annotated[int, Meta(ge=1, le=SECONDS_MAX)]
"""A field whose default depends on another one has the factory `int`: 0 is not given, and no schema shows it."""
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


class Concurrency(Spec, frozen=True, kw_only=True):
    """How many runs with the same key may be active. Without a key, all runs of the automation have the same one."""

    key: Annotated[
        Pointer | Annotated[tuple[Pointer, ...], Meta(max_length=KEY_POINTERS_MAX)],
        Meta(
            description="JSON pointers into the payload: runs with equal values have the same key.",
            extra={"phrase": f"a JSON pointer such as /pull_request/number, or a list of up to {KEY_POINTERS_MAX}"},
        ),
    ] = field(default_factory=tuple)
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="The number of active runs.")] = 1
    when_busy: Annotated[WhenBusy, Meta(description="What happens to a new run while that many are active.")] = (
        WhenBusy.QUEUE
    )

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            force_setattr(self, "key", (self.key,))


class Debounce(Spec, frozen=True, kw_only=True):
    """How long an automation waits for newer deliveries with the same key before a run starts.

    Only the run of the newest delivery starts. The runs of the other deliveries end as superseded.
    """

    seconds: Annotated[Seconds, Meta(description="The time without a newer delivery.")]
    max_seconds: Annotated[
        Seconds, Meta(description="The longest time since the first delivery. Default: ten times `seconds`.")
    ] = field(default_factory=int)

    def __post_init__(self) -> None:
        if not self.max_seconds:
            force_setattr(self, "max_seconds", min(DEFAULT_MAX_FACTOR * self.seconds, SECONDS_MAX))

    def problems(self) -> Iterator[Fault]:
        if self.max_seconds < self.seconds:
            yield Fault("/max_seconds", "max_seconds must not be less than seconds.")


class Retry(Spec, frozen=True, kw_only=True):
    """How failed attempts are retried. Attempts that a dead worker or a fault of the host cut short don't count."""

    attempts: Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX, description="The number of attempts that may fail.")]
    backoff_seconds: Annotated[
        Seconds, Meta(description="The time before the second attempt. It doubles before each further attempt.")
    ] = 30
    max_backoff_seconds: Annotated[
        Seconds, Meta(description="The longest time between two attempts. Default: 3600, or more if the first is.")
    ] = field(default_factory=int)
    exit_codes: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=255)], ...],
        Meta(max_length=EXIT_CODES_MAX, description="The exit codes that are retried. Empty: every failure."),
    ] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if not self.max_backoff_seconds:
            force_setattr(self, "max_backoff_seconds", max(self.backoff_seconds, 3_600))

    def delay_after(self, failures: int, exit_status: int | None) -> int | None:
        """Seconds until the next attempt, after `failures` failed attempts; None if there is no further attempt."""
        if failures >= self.attempts or (self.exit_codes and exit_status not in self.exit_codes):
            return None
        # The exponent is small, because `attempts` is at most `ATTEMPTS_MAX`.
        return int(min(self.backoff_seconds * 2 ** (failures - 1), self.max_backoff_seconds))


MaxRunning = Annotated[
    Annotated[int, Meta(ge=1, le=LIMIT_MAX)] | None,
    Meta(description="The most of its runs that workers perform at the same time. Null: no limit."),
]


class RunPolicy(Spec, frozen=True, kw_only=True):
    """What an automation says about when its runs start and what happens when they fail."""

    concurrency: Annotated[
        Concurrency | None, Meta(description="How many runs with the same key may be active. Null: no limit.")
    ] = None
    debounce: Annotated[
        Debounce | None,
        Meta(description="How long a run waits for newer deliveries with the same key. Null: it starts immediately."),
    ] = None
    retry: Annotated[
        Retry | None, Meta(description="How failed attempts are retried. Null: the runner's rule applies.")
    ] = None
    priority: Annotated[Priority, Meta(description="The order in which the factory's runs start.")] = Priority.NORMAL
    max_running: MaxRunning = None
    pause_after_failures: Annotated[
        Annotated[int, Meta(ge=1, le=FAILURES_MAX)] | None,
        Meta(description="It is disabled after this many failed or interrupted runs in a row. Null: never."),
    ] = None

    @property
    def unreadable_parts(self) -> dict[str, str]:
        """The stored parts that can't be read, each with the reason. Then its attributes have their defaults, and no
        run may start."""
        return {}

    @property
    def has_key(self) -> bool:
        """Whether a key distinguishes runs. Otherwise, the rules apply to all runs of the automation together."""
        return self.concurrency is not None and bool(self.concurrency.key)

    @property
    def reason_against_runs(self) -> str | None:
        """Why a run is recorded as interrupted instead of starting; None if runs may start."""
        for part, reason in self.unreadable_parts.items():
            return f"The run did not start, because {unreadable_text(part, reason)}"
        return None

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
        pointers = self.concurrency.key if self.concurrency is not None else ()
        value = payload.value if payload is not None else MISSING
        values = [_canonical(value_at(value, json_pointer.steps_of(pointer))) for pointer in pointers]
        return sha256("\0".join([automation_id, *values]).encode("utf-8", "surrogatepass")).digest()[:_KEY_BYTES]


class UnreadablePolicy(RunPolicy, frozen=True, kw_only=True):
    """A stored policy that can't be read."""

    unreadable_parts: dict[str, str]


NO_POLICY: Final = RunPolicy()
POLICY_PART: Final = "run policy"
"""The name of the stored policy in `unreadable_parts`."""


def unreadable_text(part: str, reason: str) -> str:
    return f"its stored {part} can't be read: {reason} Replace all fields of the {part} with one request of the API."


def usable_max_running(source: Any) -> int | None:
    """The limit of running runs of a factory. Raises `Invalid` with a JSON pointer."""
    return read(RunPolicy, {"max_running": source}).max_running


def policy_from_stored(stored_json: str) -> RunPolicy:
    """The policy of a stored automation. Never raises."""
    policy = read_stored(RunPolicy, stored_json)
    return policy if isinstance(policy, RunPolicy) else UnreadablePolicy(unreadable_parts={POLICY_PART: policy})


def read_stored(spec: type[S], stored_json: str, *, field: str | None = None) -> S | str:
    """The spec in the stored JSON, or why it can't be read. Never raises. `field`: the JSON is the value of this field
    of the spec."""
    # The parser of payloads, so that numbers in filters are as exact as numbers in payloads.
    parsed = parse(stored_json.encode("utf-8", "surrogatepass"))
    if isinstance(parsed, NotJson):
        return f"{parsed.reason}."
    try:
        return read(spec, parsed.value if field is None else {field: parsed.value})
    except Invalid as error:
        return " ".join(f"{fault.pointer}: {fault.message}" for fault in error.faults[:REASONS_MAX])
    except Exception as error:
        # A fault in one automation must not affect the others.
        return f"A fault of type {type(error).__name__}."


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
