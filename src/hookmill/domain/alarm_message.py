"""The messages that destinations get: as text, for Slack, and as JSON.

A notice contains names, which users chose. In a text, none of them can mention people, load an image or hide a link.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.alarm import ALARM_RULES, AlarmEvent, AlarmNotice
from hookmill.domain.inert_text import inert_names
from hookmill.domain.moment import iso, utc
from hookmill.domain.text import shown

FIELD_CHARACTERS_MAX: Final = 500
"""Longer texts of a notice are shortened."""
_WORDS: Final = {AlarmEvent.RAISED: "Alarm", AlarmEvent.RESOLVED: "Resolved", AlarmEvent.TEST: "Test"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmMessage:
    """One message to one destination. `id` is the same in each attempt."""

    id: str
    notice: AlarmNotice
    more: int = 0
    """The number of other notices that this message replaces, if there are too many to send each."""


def _on_one_line(text: str) -> str:
    return shown(text[:FIELD_CHARACTERS_MAX])


def subject_line(message: AlarmMessage) -> str:
    """The subject of an e-mail, in which nothing but control characters could act."""
    notice = message.notice
    place = f" ({_on_one_line(notice.factory)})" if notice.factory is not None else ""
    more = f" and {message.more:,} more" if message.more else ""
    title = f"{ALARM_RULES[notice.kind].title}: " if notice.kind is not None else ""
    return f"[Hookmill] {_WORDS[notice.event]}: {title}{_on_one_line(notice.subject)}{place}{more}"


def as_text(message: AlarmMessage) -> str:
    """The message for people. Its only link is that to the alarm's page.

    It says what to do, unless the alarm is resolved.
    """
    notice = message.notice
    lines = [f"{_WORDS[notice.event]}: {_on_one_line(notice.summary)}"]
    if notice.action and notice.event is not AlarmEvent.RESOLVED:
        lines.append(_on_one_line(notice.action))
    if message.more:
        lines.append(f"And {message.more:,} more. There were too many for a message each.")
    lines.append("")
    if notice.factory is not None:
        lines.append(f"Factory: {_on_one_line(notice.factory)}")
    lines.append(f"Subject: {_on_one_line(notice.subject)}")
    lines.append(f"Time: {utc(notice.at)} UTC")
    # Each line alone, so that a backquote in one of them has no effect on another.
    lines = [inert_names(line) for line in lines]
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
