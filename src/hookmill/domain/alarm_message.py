"""The messages that destinations get: as text, for Slack, and as JSON.

A notice contains names, which users chose. In a text, nothing of it can become a mention, a link or a command.
A notice about the installation contains only names of its hosts, which stay as they are: people copy them.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.alarm import ALARM_RULES, AlarmEvent, AlarmNotice, AlarmScope
from hookmill.domain.moment import iso, utc
from hookmill.domain.text import shown

FIELD_CHARACTERS_MAX: Final = 500
"""Longer texts of a notice are shortened."""
_ZERO_WIDTH_SPACE: Final = "\u200b"
_BREAK_POSITIONS: Final = re.compile(
    r"(?<=@)|(?<=:)(?=//)|(?<=\w)(?=\.[^\W\d_])|(?<=www)(?=\.)|(?<=mailto)(?=:)|(?<=\])(?=[(\[])", re.IGNORECASE
)
"""Where an invisible space keeps mail programs and chats from recognizing a mention or a link, such as a host name."""
_WORDS: Final = {AlarmEvent.RAISED: "Alarm", AlarmEvent.RESOLVED: "Resolved", AlarmEvent.TEST: "Test"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmMessage:
    """One message to one destination. `id` is the same in each attempt."""

    id: str
    notice: AlarmNotice
    more: int = 0
    """The number of other notices that this message replaces, if there are too many to send each."""


def inert(text: str) -> str:
    """The text on one line, and so that no program recognizes a mention or a link in it."""
    return _BREAK_POSITIONS.sub(_ZERO_WIDTH_SPACE, shown(text[:FIELD_CHARACTERS_MAX]))


def _subject(notice: AlarmNotice) -> str:
    """The subject, in which only the names of hosts can be copied: users chose the others."""
    if notice.kind is not None and ALARM_RULES[notice.kind].scope is AlarmScope.INSTALLATION:
        return shown(notice.subject[:FIELD_CHARACTERS_MAX])
    return inert(notice.subject)


def subject_line(message: AlarmMessage) -> str:
    """The subject of an e-mail."""
    notice = message.notice
    place = f" ({inert(notice.factory)})" if notice.factory is not None else ""
    more = f" and {message.more:,} more" if message.more else ""
    title = f"{ALARM_RULES[notice.kind].title}: " if notice.kind is not None else ""
    return f"[Hookmill] {_WORDS[notice.event]}: {title}{_subject(notice)}{place}{more}"


def as_text(message: AlarmMessage) -> str:
    """The message for people. Its only link is that to the alarm's page.

    It says what to do, unless the alarm is resolved.
    """
    notice = message.notice
    lines = [f"{_WORDS[notice.event]}: {inert(notice.summary)}"]
    if notice.action and notice.event is not AlarmEvent.RESOLVED:
        lines.append(inert(notice.action))
    if message.more:
        lines.append(f"And {message.more:,} more. There were too many for a message each.")
    lines.append("")
    if notice.factory is not None:
        lines.append(f"Factory: {inert(notice.factory)}")
    lines.append(f"Subject: {_subject(notice)}")
    lines.append(f"Time: {utc(notice.at)} UTC")
    if notice.url is not None:
        lines.append(f"Details: {notice.url}")
    return "\n".join(lines)


def as_slack(message: AlarmMessage) -> dict[str, Any]:
    """The body for an incoming webhook of Slack. Slack decodes three entities, and nothing else."""
    text = as_text(message).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": text, "mrkdwn": False, "link_names": False, "unfurl_links": False, "unfurl_media": False}


def as_json(message: AlarmMessage) -> bytes:
    """The body for a webhook, with the fields that Standard Webhooks recommends."""
    notice = message.notice
    fields = {
        "type": f"alarm.{notice.event.value}",
        "timestamp": iso(notice.at),
        "data": {
            "alarm_id": notice.id,
            "kind": notice.kind.value if notice.kind is not None else None,
            "factory": notice.factory,
            "subject": notice.subject,
            "summary": notice.summary,
            "action": notice.action,
            "url": notice.url,
            "more": message.more,
        },
    }
    return json.dumps(fields, separators=(",", ":")).encode()
