"""The comment about a run on an issue or a pull request: the text of the run with hidden lines and a footer.

The second hidden line names the automation, whose next run updates the comment.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.alarm import duration_text
from hookmill.domain.ids import run_id
from hookmill.domain.result_text import RunResult, comment_body

_HIDDEN_LINES: Final = re.compile(
    r"<!-- hookmill (?P<run>run_[0-9a-f]{32}) [0-9]+ -->\r?\n<!-- hookmill automation (?P<automation>\w{1,80}) -->\r?\n"
)


class HiddenLines(NamedTuple):
    """Which run has written a comment, and for which automation."""

    run: str
    automation: str


def hidden_lines_of(comment: object) -> HiddenLines | None:
    """The hidden lines at the beginning of a comment. Anybody can copy them, so its author must be checked, too."""
    match = _HIDDEN_LINES.match(comment) if isinstance(comment, str) else None
    return HiddenLines(match["run"], match["automation"]) if match is not None else None


def run_comment(result: RunResult, *, automation: str | None, footer: str) -> str | None:
    """The comment; None if the run has no text for one. Raises `Invalid` for an unusable text.

    `automation`: the id of the automation whose next run updates the comment. None: no run updates it.
    """
    hidden_line = f"<!-- hookmill automation {automation} -->\n" if automation is not None else ""
    return comment_body(result, hidden_line=hidden_line, footer=footer)


def footer_text(result: RunResult, *, started_at: int, url: str | None, reports: Sequence[AgentReport]) -> str:
    """The last line of a comment: the run, its duration, its cost and its model. `url`: None if nobody can open it."""
    name = run_id(result.run)
    parts = [
        f"[{name}]({url})" if url is not None else name,
        duration_text(max(result.at - started_at, 0) // 1_000_000),
    ]
    costs = [report.cost_microusd for report in reports if report.cost_microusd is not None]
    if costs:
        parts.append(_cost(sum(costs)))
    parts += [f"`{report.model}`" for report in reports[-1:] if report.model is not None]
    return "---\n" + " · ".join(parts)


def _cost(microusd: int) -> str:
    return f"${microusd / 1_000_000:.{2 if microusd >= 10_000 else 4}f}"
