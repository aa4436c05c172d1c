"""The report of an agent platform about an attempt: whether the work succeeded, and its cost."""

import json
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.agent_report import AgentReport, agent_report
from hookmill.domain.run import Ended, RunState
from hookmill.domain.text import printable

REASON_CHARACTERS_MAX: Final = 500
"""A longer reason is cut after this many characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformReport:
    """The end of an attempt, as the platform reported it."""

    succeeded: bool
    reason: str | None = None
    """Why it failed. It has at most `REASON_CHARACTERS_MAX` characters, all of them printable."""
    agent: AgentReport | None = None

    @property
    def ended(self) -> Ended:
        """The result of the attempt."""
        if self.succeeded:
            return Ended(state=RunState.SUCCEEDED, report=self.agent)
        reason = (
            f"The platform reported a failure: {self.reason}" if self.reason else "The platform reported a failure."
        )
        return Ended(state=RunState.FAILED, reason=reason, report=self.agent)

    def stored(self) -> str:
        """The report as text, for `report_from_stored`. Equal reports have equal texts."""
        agent = self.agent or AgentReport()
        return json.dumps(
            {
                "succeeded": self.succeeded,
                "reason": self.reason,
                "result": agent.result,
                "is_result_cut": agent.is_result_cut,
                "cost_microusd": agent.cost_microusd,
                "input_tokens": agent.input_tokens,
                "output_tokens": agent.output_tokens,
            }
        )


def platform_report(
    *,
    succeeded: bool,
    reason: str | None = None,
    result: str | None = None,
    cost_usd: float | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
) -> PlatformReport:
    """A report from the values that a platform sent."""
    return PlatformReport(
        succeeded=succeeded,
        reason=printable(reason.strip())[:REASON_CHARACTERS_MAX] or None if reason is not None else None,
        agent=agent_report(result, cost_usd=cost_usd, input_tokens=input_tokens, output_tokens=output_tokens),
    )


def report_from_stored(text: str) -> PlatformReport:
    fields: dict[str, Any] = json.loads(text)
    succeeded, reason = fields.pop("succeeded"), fields.pop("reason")
    agent = AgentReport(**fields)
    return PlatformReport(succeeded=succeeded, reason=reason, agent=agent if agent != AgentReport() else None)
