"""The texts that destinations get about a run. An agent wrote parts of them, so nothing in them can act.

Comments and check runs are Markdown: `inert_text` says what acts there. Messages for Slack turn off its markup and its
links to names, and escape the three characters that remain. Compatible chats may ignore that and read Markdown, so
mentions and images are inert there, too. Programs get the text as it is.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.inert_text import fitted, inert, inert_in_chat, inert_line
from hookmill.domain.moment import iso
from hookmill.domain.run import RunState
from hookmill.domain.run_outputs import COMMENT_FILE, OutputText, RunOutputs, RunSummary, summary_of
from hookmill.domain.text import printable

COMMENT_CHARACTERS_MAX: Final = 65_536
"""The longest comment that GitHub accepts, with the marker."""
SLACK_CHARACTERS_MAX: Final = 3_000
"""A longer summary is cut."""
DESCRIPTION_CHARACTERS_MAX: Final = 140
"""The longest description of a status that GitHub accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a message says about a run. Times are in µs since 1970."""

    run: RunKey
    number: int
    """The position of the result in the automation's list."""
    has_ended: bool
    """False for the message about the start."""
    state: RunState
    attempt: int
    automation: str
    factory: str
    delivery_id: str | None
    at: int
    exit_status: int | None = None
    outputs: RunOutputs
    url: str
    """The page of the run."""


def marker(run: RunKey, number: int) -> str:
    """The first line of a comment, which is not displayed. It identifies the comment of this result."""
    return f"<!-- hookmill {run_id(run)} {number} -->"


def comment_body(result: RunResult, *, hidden_line: str = "", footer: str = "") -> str | None:
    """The comment; None if the run has neither a comment nor a summary. Raises `Invalid` for an unusable one.

    `hidden_line` follows the marker, and `footer` the text.
    """
    text = _comment_text(result.outputs)
    if text is None:
        return None
    head = f"{marker(result.run, result.number)}\n{hidden_line}"
    following = f"\n\n{footer}" if footer else ""
    characters_max = COMMENT_CHARACTERS_MAX - len(head)
    return head + fitted(text.text, characters_max, inert, is_cut=text.is_cut, following=following)


def _comment_text(outputs: RunOutputs) -> OutputText | RunSummary | None:
    comment = outputs.get(COMMENT_FILE)
    if comment is None:
        return summary_of(outputs)
    try:
        source = json.loads(comment.text) if not comment.is_cut else None
    except (ValueError, RecursionError):
        source = None
    if not isinstance(source, dict) or set(source) != {"body"} or not isinstance(source["body"], str):
        raise Invalid(
            f"The run's file outputs/{COMMENT_FILE} must be a JSON object with the text body and nothing else, of at "
            "most 65,536 bytes."
        )
    body = source["body"]
    return OutputText(text=body) if body.strip() else None


def state_text(state: RunState) -> str:
    """The final state of a run, as a sentence."""
    return _TEXT_BY_STATE.get(state, f"The run is {state.value}.")


_STATUS_BY_STATE: Final = {RunState.SUCCEEDED: "success", RunState.FAILED: "failure"}
_TEXT_BY_STATE: Final = {
    RunState.SUCCEEDED: "The run succeeded.",
    RunState.FAILED: "The run failed.",
    RunState.CANCELLED: "The run was cancelled.",
    RunState.INTERRUPTED: "The run was interrupted.",
    RunState.REPLACED: "A newer run replaced the run.",
}


def status_body(result: RunResult, context: str) -> dict[str, Any]:
    """The commit status: `pending`, `success`, `failure`, or `error` if the run ended in another way."""
    state = _STATUS_BY_STATE.get(result.state, "error") if result.has_ended else "pending"
    return {"state": state, "context": context, "description": status_description(result), "target_url": result.url}


def status_description(result: RunResult) -> str:
    """The first line of the run's summary, after the outcome unless the run succeeded. It is no Markdown."""
    if not result.has_ended:
        return "The run has started."
    outcome = state_text(result.state)
    summary = summary_of(result.outputs)
    line = _first_line(summary.text) if summary is not None else ""
    if not line:
        return outcome
    text = inert_line(line if result.state is RunState.SUCCEEDED else f"{outcome} {line}")
    return text if len(text) <= DESCRIPTION_CHARACTERS_MAX else text[: DESCRIPTION_CHARACTERS_MAX - 1] + "…"


_MARKUP: Final = re.compile(r"^[\s#>*+-]+|[*_`]{1,3}")


def _first_line(text: str) -> str:
    """The first line with text, without the marks of Markdown."""
    lines = (_MARKUP.sub("", line).strip() for line in text.splitlines())
    return next((line for line in lines if any(character.isalnum() for character in line)), "")


def slack_body(result: RunResult) -> dict[str, Any]:
    """The body for an incoming webhook of Slack. Slack decodes three entities, and nothing else."""
    lines = [f"{printable(result.automation)}: {_TEXT_BY_STATE.get(result.state, result.state.value)}"]
    if (summary := summary_of(result.outputs)) is not None:
        lines.append(fitted(summary.text, SLACK_CHARACTERS_MAX, inert_in_chat, is_cut=summary.is_cut))
    text = "\n\n".join((*lines, result.url))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": text, "mrkdwn": False, "link_names": False, "unfurl_links": False, "unfurl_media": False}


def webhook_body(result: RunResult) -> bytes:
    """The body for a signed webhook, with the fields that Standard Webhooks recommends. The summary is untrusted."""
    summary = summary_of(result.outputs) if result.has_ended else None
    event = result.state.value if result.has_ended else "started"
    fields = {
        "type": f"run.{event}",
        "timestamp": iso(result.at),
        "data": {
            "run_id": run_id(result.run),
            "state": result.state.value if result.has_ended else RunState.RUNNING.value,
            "attempt": result.attempt,
            "automation": result.automation,
            "factory": result.factory,
            "delivery_id": result.delivery_id,
            "exit_status": result.exit_status if result.has_ended else None,
            "summary": summary.text if summary is not None else None,
            "summary_is_cut": summary is not None and summary.is_cut,
            "summary_source": summary.source.value if summary is not None else None,
            "url": result.url,
        },
    }
    return json.dumps(fields, separators=(",", ":")).encode()
