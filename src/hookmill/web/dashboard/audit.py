"""The pages of the audit log."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import audit_entry_id
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management import AuditEntry
from hookmill.web.dashboard.access import require_admin, require_manager
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.urls import url

PAGE_SIZE: Final = 50

ACTION_PHRASES: Final = {
    "alarm.snooze": "snoozed an alarm of",
    "alarm.wake": "woke an alarm of",
    "alarm_destination.create": "created alarm destination",
    "alarm_destination.delete": "deleted alarm destination",
    "alarm_destination.test": "sent a test to alarm destination",
    "automation.change": "changed automation",
    "automation.create": "created automation",
    "automation.delete": "deleted automation",
    "automation.disable": "disabled automation",
    "automation.enable": "enabled automation",
    "automation.pause": "paused automation",
    "automation.run": "started a run of",
    "delivery.replay": "replayed a delivery of",
    "factory.cancel_runs": "cancelled runs in factory",
    "factory.create": "created factory",
    "factory.define_by_files": "enabled definition files for factory",
    "factory.set_max_running": "changed the limit of running runs of factory",
    "installation.restore": "restored this installation from",
    "key.create": "created API key",
    "key.revoke": "revoked API key",
    "master_key.rotate": "rotated the master key to",
    "member.add": "added member",
    "member.change": "changed the profile of",
    "member.change_password": "changed the password of",
    "member.choose_password": "used the sign-in link of",
    "member.connect": "connected an OpenID Connect identity to",
    "member.link": "created a sign-in link for",
    "member.remove": "removed member",
    "member.set_admin": "changed the admin role of",
    "member.set_role": "changed the role of",
    "member.sign_in": "signed in as",
    "member.use_link": "signed in by link as",
    "run.cancel": "cancelled a run of",
    "secret.create": "created secret",
    "secret.delete": "deleted secret",
    "secret.replace": "replaced the value of secret",
    "webhook.change": "changed webhook",
    "webhook.create": "created webhook",
    "webhook.delete": "deleted webhook",
    "webhook.disable": "disabled webhook",
    "webhook.enable": "enabled webhook",
    "webhook.rotate": "rotated the secret of webhook",
    "webhook.sync": "synced the secret of webhook",
}
"""The phrase before the subject's name. A test checks that every audited operation is in this table."""

_DETAIL_LABELS: Final = {
    "is_admin": "admin",
    "alarm_kinds": "alarms",
    "includes_factories": "includes factories",
    "expires_at": "expires",
    "until_at": "until",
}
_EMPTY_IN_WORDS: Final = {"allowed_networks": "every network", "alarm_kinds": "all kinds"}
"""The meaning of an empty list. Other details with an empty list are not shown."""
_CHANNEL_NAMES: Final = {
    "cli": "command line",
    "api": "API",
    "mcp": "MCP",
    "files": "definition files",
    "dashboard": "dashboard",
    "service": "service",
}
_ACTOR_KIND_NAMES: Final = {"key": "API key", "operator": "operator", "service": "policy"}
"""The service is the actor if a run policy pauses an automation, or if groups at a provider decide a member's roles."""
_PATH_SEGMENTS: Final = {
    "webhook": "webhooks",
    "automation": "automations",
    "delivery": "deliveries",
    "run": "runs",
    "alarm": "alarms",
}
_ENTRY_ID: Final = re.compile(r"aud_[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An audit log entry, prepared for the template."""

    entry: AuditEntry
    action: str
    """A phrase of `ACTION_PHRASES`."""
    subject_url: str | None
    """The page of the subject; None if it has no page."""
    actor_kind: str | None
    """None for a member: the member's e-mail address needs no explanation."""
    channel: str
    details: tuple[tuple[str, str | int], ...]
    """Names and values. An integer value is a time in microseconds."""


def of_factory(context: PageContext, may: MayManage) -> Response:
    entries = context.management.audit.of_factory(may, before=_key_before_page(context), limit=PAGE_SIZE + 1)
    return _entries_page(context, entries, lambda **query: url("f", may.factory.name, "audit", **query), "audit.html")


def of_team(context: PageContext, may: MayAdminister) -> Response:
    entries = context.management.audit.of_team(may, before=_key_before_page(context), limit=PAGE_SIZE + 1)
    return _entries_page(context, entries, lambda **query: url("team", "audit", **query), "team-audit.html")


def _key_before_page(context: PageContext) -> bytes | None:
    """The key of the last entry of the previous page; None for the first page."""
    entry_id = context.query.get("before", "")
    if entry_id and not _ENTRY_ID.match(entry_id):
        raise Invalid("The URL contains no valid entry of the audit log. Start at the first page.")
    return bytes.fromhex(entry_id.removeprefix("aud_")) if entry_id else None


def _entries_page(
    context: PageContext, entries: Sequence[AuditEntry], page_url: Callable[..., str], template: str
) -> Response:
    """A page of the log. `entries` contains an entry of the next page if there is one."""
    page_entries = entries[:PAGE_SIZE]
    return context.page(
        template,
        rows=[row_of(entry) for entry in page_entries],
        newest_url=page_url() if "before" in context.query else None,
        older_url=page_url(before=audit_entry_id(page_entries[-1].key)) if len(entries) > PAGE_SIZE else None,
    )


def row_of(entry: AuditEntry) -> AuditRow:
    return AuditRow(
        entry=entry,
        action=ACTION_PHRASES.get(entry.action, entry.action),
        subject_url=_subject_url(entry),
        actor_kind=_ACTOR_KIND_NAMES.get(entry.actor_kind),
        channel=_CHANNEL_NAMES.get(entry.channel, entry.channel),
        details=tuple(_details(entry)),
    )


def _subject_url(entry: AuditEntry) -> str | None:
    kind = entry.subject_kind
    if kind in _PATH_SEGMENTS and entry.factory_name is not None:
        return url("f", entry.factory_name, _PATH_SEGMENTS[kind], entry.subject_id)
    if kind == "factory":
        return url("f", entry.subject_name)
    return None


def _details(entry: AuditEntry) -> Iterator[tuple[str, str | int]]:
    before = entry.details.get("before")
    values_before = before if isinstance(before, dict) else {}
    for name, value in entry.details.items():
        label = _DETAIL_LABELS.get(name, name.replace("_", " "))
        if name in values_before:
            yield label, f"{_words_of(name, value)} (before: {_words_of(name, values_before[name])})"
        elif value is values_before or value is None or (value == [] and name not in _EMPTY_IN_WORDS):
            continue
        elif name.endswith("_at") and isinstance(value, int):
            yield label, value
        else:
            yield label, _words_of(name, value)
    if entry.action == "member.set_role" and entry.details.get("role") is None:
        yield "role", "none"


def _words_of(name: str, value: Any) -> str:
    return "none" if value is None else _in_words(value) or _EMPTY_IN_WORDS.get(name, "")


def _in_words(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case list():
            return ", ".join(_in_words(item) for item in value)
        case _:
            return json.dumps(value)


PAGES: Final = (
    Page("GET", "/f/{factory}/audit", of_factory, require_manager),
    Page("GET", "/team/audit", of_team, require_admin),
)
