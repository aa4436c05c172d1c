"""The texts that destinations get about a run. An agent wrote parts of them, so nothing in them can act.

In a comment or a chat, no text of a run can mention anybody, create a link, load an image, refer to another issue, give
a command to a bot, or forge the hidden marker. Zero-width spaces break such texts, and people read them unchanged.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.moment import iso
from hookmill.domain.run import RunState
from hookmill.domain.run_outputs import COMMENT_FILE, RunOutputs, RunSummary, summary_of
from hookmill.domain.text import printable

COMMENT_CHARACTERS_MAX: Final = 65_536
"""The longest comment that GitHub accepts, with the marker."""
SLACK_CHARACTERS_MAX: Final = 3_000
"""A longer summary is cut."""
DESCRIPTION_CHARACTERS_MAX: Final = 140
"""The longest description of a status that GitHub accepts."""
_ZERO_WIDTH_SPACE: Final = "\u200b"
_CUT: Final = "\n\n…"
_ACTS: Final = re.compile(
    r"""
    (?<=@)                                          # a mention, also of a team, and an e-mail address
    | (?<=:)(?=\\?/) | (?<=www)(?=\\?\.)            # an address that becomes a link by itself
    | (?<=mailto)(?=:) | (?<=xmpp)(?=:)
    | (?<=\])(?=[(\[:])                             # a link, an image, and the definition of a link
    | (?<=<)(?=[a-z/!?])                            # HTML
    | (?<=&)(?=\#|[a-z][a-z0-9]{0,40};)             # an entity, which could be any of these characters
    | (?<=[\#!])(?=[0-9]) | (?<=gh)(?=\\?-[0-9])     # a reference to another issue or pull request
    | (?m:^)(?=[ \t]*/[a-z])                        # a command to a bot, at the beginning of a line
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Where GitHub, Gitea and Slack would find something that acts."""


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


def inert(text: str) -> str:
    """The text, so that nothing in it acts in a comment or a chat."""
    return _ACTS.sub(_ZERO_WIDTH_SPACE, text)


def marker(run: RunKey, number: int) -> str:
    """The first line of a comment, which is not displayed. It identifies the comment of this result."""
    return f"<!-- hookmill {run_id(run)} {number} -->"


def comment_body(result: RunResult) -> str | None:
    """The comment; None if the run has neither a comment nor a summary. Raises `Invalid` for an unusable one."""
    text = _comment_text(result.outputs)
    if text is None:
        return None
    head = f"{marker(result.run, result.number)}\n"
    return head + _cut(inert(text), COMMENT_CHARACTERS_MAX - len(head))


def _comment_text(outputs: RunOutputs) -> str | None:
    comment = outputs.get(COMMENT_FILE)
    if comment is None:
        summary = summary_of(outputs)
        return _shown_summary(summary) if summary is not None else None
    try:
        source = json.loads(comment.text) if not comment.is_cut else None
    except (ValueError, RecursionError):
        source = None
    if not isinstance(source, dict) or set(source) != {"body"} or not isinstance(source["body"], str):
        raise Invalid(
            f"The run's file outputs/{COMMENT_FILE} must be a JSON object with the text body and nothing else, of at "
            "most 65,536 bytes."
        )
    body = printable(source["body"])
    return body if body.strip() else None


def _shown_summary(summary: RunSummary) -> str:
    return summary.text + (_CUT if summary.is_cut else "")


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
    text = state_text(result.state) if result.has_ended else "It runs."
    return {
        "state": state,
        "context": context,
        "description": text[:DESCRIPTION_CHARACTERS_MAX],
        "target_url": result.url,
    }


def slack_body(result: RunResult) -> dict[str, Any]:
    """The body for an incoming webhook of Slack. Slack decodes three entities, and nothing else."""
    lines = [f"{printable(result.automation)}: {_TEXT_BY_STATE.get(result.state, result.state.value)}"]
    if (summary := summary_of(result.outputs)) is not None:
        lines.append(_cut(_shown_summary(summary), SLACK_CHARACTERS_MAX))
    text = inert("\n\n".join(lines)) + f"\n\n{result.url}"
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


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - len(_CUT)] + _CUT
