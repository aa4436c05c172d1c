"""The comment about a run on an issue or a pull request, and the description of a commit status.

`result_text` makes the text of the run inert. Here, hidden lines and a footer are added. The second hidden line names
the automation, whose next run updates the comment.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.alarm import duration_text
from hookmill.domain.ids import run_id
from hookmill.domain.result_text import (
    COMMENT_CHARACTERS_MAX,
    DESCRIPTION_CHARACTERS_MAX,
    RunResult,
    comment_body,
    inert,
    state_text,
)
from hookmill.domain.run import RunState
from hookmill.domain.run_outputs import summary_of

_HIDDEN_LINES: Final = re.compile(
    r"<!-- hookmill (?P<run>run_[0-9a-f]{32}) [0-9]+ -->\r?\n<!-- hookmill automation (?P<automation>\w{1,80}) -->\r?\n"
)
_CUT: Final = "\n\n…"
_MARKUP: Final = re.compile(r"^[\s#>*+-]+|[*_`]{1,3}")


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
    body = comment_body(result)
    if body is None:
        return None
    first_line, _, text = body.rstrip().partition("\n")
    second_line = f"<!-- hookmill automation {automation} -->\n" if automation is not None else ""
    head, end = f"{first_line}\n{second_line}", f"\n\n{footer}"
    characters_max = COMMENT_CHARACTERS_MAX - len(head) - len(end)
    if len(text) > characters_max:
        text = text[: characters_max - len(_CUT)] + _CUT
    return f"{head}{text}{end}"


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


def status_description(result: RunResult) -> str:
    """The first line of the run's summary, after the outcome unless the run succeeded."""
    if not result.has_ended:
        return "The run has started."
    outcome = state_text(result.state)
    summary = summary_of(result.outputs)
    line = _first_line(summary.text) if summary is not None else ""
    if not line:
        return outcome
    text = inert(line if result.state is RunState.SUCCEEDED else f"{outcome} {line}")
    return text if len(text) <= DESCRIPTION_CHARACTERS_MAX else text[: DESCRIPTION_CHARACTERS_MAX - 1] + "…"


def _first_line(text: str) -> str:
    """The first line with text, without the marks of Markdown."""
    lines = (_MARKUP.sub("", line).strip() for line in text.splitlines())
    return next((line for line in lines if any(character.isalnum() for character in line)), "")


def _cost(microusd: int) -> str:
    return f"${microusd / 1_000_000:.{2 if microusd >= 10_000 else 4}f}"
