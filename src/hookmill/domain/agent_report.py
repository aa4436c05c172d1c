"""What an agent reports about one attempt at a run: its result, and what the attempt cost.

The values are the agent's own. An agent that follows instructions in a payload may report anything, so they are shown
to people, and decide nothing.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from hookmill.domain.text import printable

RESULT_CHARACTERS_MAX: Final = 16_384
"""A longer result is cut after this many characters."""
ERROR_CHARACTERS_MAX: Final = 500
"""A longer error is cut after this many characters."""
TOKENS_MAX: Final = 10**15
COST_MICROUSD_MAX: Final = 10**15
MODEL_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:/\[\]-]{0,99}"
_MODEL: Final = re.compile(rf"{MODEL_PATTERN}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """The report about one attempt. None: the agent did not report this value."""

    result: str | None = None
    """The agent's last message. It has at most `RESULT_CHARACTERS_MAX` characters, all of them printable."""
    is_result_cut: bool = False
    cost_microusd: int | None = None
    """In millionths of a US dollar."""
    input_tokens: int | None = None
    """Includes tokens that were read from a cache or written to it."""
    output_tokens: int | None = None
    model: str | None = None
    """The name of the model. It has only the characters of `MODEL_PATTERN`."""

    def with_result(self, text: str) -> "AgentReport":
        """The report with another text as its result."""
        shown = printable(text)
        is_cut = len(shown) > RESULT_CHARACTERS_MAX
        return replace(self, result=shown[:RESULT_CHARACTERS_MAX], is_result_cut=is_cut)


def agent_report(
    result: Any = None,
    *,
    cost_usd: Any = None,
    input_tokens: Any = None,
    output_tokens: Any = None,
    model: Any = None,
) -> AgentReport | None:
    """A report from values of any type. Values that are not usable are left out. None if no value is left."""
    report = AgentReport(
        cost_microusd=_microusd(cost_usd),
        input_tokens=count_of(input_tokens),
        output_tokens=count_of(output_tokens),
        model=model if isinstance(model, str) and _MODEL.match(model) else None,
    )
    if isinstance(result, str) and result.strip():
        report = report.with_result(result)
    return report if report != _EMPTY else None


_EMPTY: Final = AgentReport()


def count_of(value: Any) -> int | None:
    """The value if it can be a number of tokens, else None."""
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def sum_of_counts(values: Iterable[Any]) -> int | None:
    """The sum of those values that can be numbers of tokens; None if there are none."""
    counts = [count for value in values if (count := count_of(value)) is not None]
    return sum(counts) if counts else None


def reason_with_error(reason: str | None, error: str, mask: Callable[[str], str] = lambda text: text) -> str:
    """The reason of a run, with the error that its agent reported. The error is quoted, on one line, and comes last.

    `mask` masks secrets. It is called again for the line, because joining lines could complete a secret.
    """
    line = mask(" ".join(printable(mask(error)).split()))
    if len(line) > ERROR_CHARACTERS_MAX:
        line = f"{line[:ERROR_CHARACTERS_MAX]}…"
    quoted = line.replace('"', "'")
    return f'{reason or "The run failed."} The agent\'s error: "{quoted}"'


def is_cost(value: Any) -> bool:
    """Whether the value can be a cost in US dollars. Numbers that are too large for a float can't."""
    return type(value) in (int, float) and 0 <= value <= COST_MICROUSD_MAX // 1_000_000


def _microusd(cost_usd: Any) -> int | None:
    return round(cost_usd * 1_000_000) if is_cost(cost_usd) else None
