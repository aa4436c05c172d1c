"""The results of evaluating filters on deliveries, as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from hookmill.domain.ids import delivery_id
from hookmill.presentation.delivery import DeliveryView
from hookmill.presentation.run import RunView
from hookmill.presentation.view import View

if TYPE_CHECKING:
    from hookmill.domain.filters import ConditionOutcome
    from hookmill.management import AutomationMatch, Backtest, FilterTest


class ConditionView(View, frozen=True):
    """The result of one condition of a payload filter.

    `expected` and `found` are JSON to be read by people, not parsed: long values are cut.
    """

    pointer: str
    operator: str
    expected: str
    found: str
    held: Annotated[bool, Meta(description="Whether the payload meets the condition.")]
    no_object_at: Annotated[
        str | None,
        Meta(
            description="The pointer to a value that would have to be an object, if the condition failed because of it."
        ),
    ]
    alternative: Annotated[
        int | None, Meta(description="The number of its alternative in the enclosing `$any`, from 1.")
    ]
    within: Annotated[list[ConditionView], Meta(description="The conditions inside it (`$any`, `$not`).")]

    @classmethod
    def of(cls, condition: ConditionOutcome) -> Self:
        return cls(
            pointer=condition.pointer,
            operator=condition.operator,
            expected=condition.expected,
            found=condition.actual,
            held=condition.held,
            no_object_at=condition.no_object_at,
            alternative=condition.alternative_number,
            within=[cls.of(inner) for inner in condition.inner_outcomes],
        )


class FilterTestView(View, frozen=True):
    would_trigger: bool
    webhook_check: bool
    event_check: bool
    event_types: Annotated[list[str], Meta(description="The event types that match. Empty if every event matches.")]
    event: Annotated[str | None, Meta(description="The delivery's event type.")]
    payload_check: bool
    conditions: list[ConditionView]

    @classmethod
    def of(cls, test: FilterTest) -> Self:
        conditions = test.explanation.conditions if test.explanation is not None else ()
        return cls(
            would_trigger=test.would_trigger,
            webhook_check=test.webhook_check,
            event_check=test.event_check,
            event_types=list(test.event_types),
            event=test.event,
            payload_check=test.payload_check,
            conditions=[ConditionView.of(condition) for condition in conditions],
        )


class EvaluationView(View, frozen=True):
    """How one automation evaluates a delivery now, and its runs of this delivery."""

    automation_id: str
    automation: Annotated[str, Meta(description="The automation's name.")]
    enabled: bool
    would_trigger: Annotated[bool, Meta(description="Whether it is enabled, and one of its triggers matches.")]
    triggers: list[FilterTestView]
    runs: list[RunView]

    @classmethod
    def of(cls, match: AutomationMatch) -> Self:
        return cls(
            automation_id=match.automation.id,
            automation=match.automation.name,
            enabled=match.automation.enabled,
            would_trigger=match.would_trigger,
            triggers=[FilterTestView.of(test) for test in match.trigger_tests],
            runs=[RunView.of(run) for run in match.runs],
        )


class ExplanationView(View, frozen=True):
    automations: list[EvaluationView]

    @classmethod
    def of(cls, matches: Sequence[AutomationMatch]) -> Self:
        return cls(automations=[EvaluationView.of(match) for match in matches])

    def encoded(self) -> bytes:
        # Encodes one automation at a time. Hundreds of them have long JSON. One call would hold the GIL until all of
        # it is encoded, and delay deliveries.
        return b'{"automations":[' + b",".join(automation.encoded() for automation in self.automations) + b"]}"


class BacktestView(View, frozen=True):
    matching: list[DeliveryView]
    others: list[DeliveryView]
    keys: Annotated[
        int | None,
        Meta(description="How many different policy keys the matching deliveries have. Null: no policy needs keys."),
    ]
    superseded: Annotated[
        list[str], Meta(description="The ids of matching deliveries whose runs the debounce would supersede.")
    ]

    @classmethod
    def of(cls, backtest: Backtest) -> Self:
        return cls(
            matching=[DeliveryView.of(delivery) for delivery in backtest.matching],
            others=[DeliveryView.of(delivery) for delivery in backtest.others],
            keys=backtest.key_count,
            superseded=[
                delivery_id(delivery.key) for delivery in backtest.matching if delivery.key in backtest.superseded_keys
            ],
        )


def policy_outcome(backtest: Backtest) -> str | None:
    """What the run policy would do with the matching deliveries, in words.

    None if no delivery matches, or if the policy has neither a concurrency limit nor a debounce.
    """
    if backtest.key_count is None or not backtest.matching:
        return None
    keys_text = "1 key" if backtest.key_count == 1 else f"{backtest.key_count:,} different keys"
    if not backtest.superseded_keys:
        return f"Their runs have {keys_text}."
    return f"Their runs have {keys_text}. Debounce supersedes {len(backtest.superseded_keys):,} of these runs."
