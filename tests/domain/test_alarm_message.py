"""Messages about alarms: names, which users chose, are inert in every format."""

import html
import json
import re
from dataclasses import replace
from email import message_from_bytes, policy
from typing import Final

import pytest

from hookmill.domain.alarm import AlarmEvent, AlarmKind, AlarmNotice
from hookmill.domain.alarm_message import AlarmMessage, as_json, as_slack, as_text, subject_line
from hookmill.notices.mail import MailServer, SmtpSecurity, email_of

NOTICE: Final = AlarmNotice(
    id="alm_1",
    kind=AlarmKind.WEBHOOK_QUIET,
    event=AlarmEvent.RAISED,
    factory="shop",
    subject="orders",
    summary="The webhook has accepted no delivery for more than 2 h.",
    action="Check whether the sender still sends.",
    at=1_900_000_000_000_000,
    url="https://hooks.test/f/shop/alarms/alm_1?a=1&b=2",
)
MESSAGE: Final = AlarmMessage(id="ntc_1", notice=NOTICE)
SERVER: Final = MailServer(
    host="h", port=25, security=SmtpSecurity.NONE, user=None, password=None, sender="hookmill@example.com"
)
HOSTILE_NAMES: Final = (
    "<!channel>",
    "<!here|x>",
    "@here @channel @everyone @all",
    "<@U012AB3CD>",
    "<https://evil.example|click>",
    "https://evil.example/x",
    "www.evil.example",
    "evil.example.com",
    "evil.xn--p1ai/x.html",
    "mailto:evil@evil.example",
    "![click](https://evil.example)",
    "```@here",
    "[click](https://evil.example)",
    "&lt;!channel&gt;",
    "<script>alert(1)</script>",
    "x\r\nBcc: evil@evil.example",
    "x\n\nevil body",
    "x\u2028Bcc: evil@evil.example",
    "\u202egnp.exe",
    "=?utf-8?q?evil?=",
    "\x1b[2J",
)


def test_text_says_what_happened_and_what_to_do():
    assert as_text(MESSAGE).splitlines() == [
        "Alarm: The webhook has accepted no delivery for more than 2 h.",
        "Check whether the sender still sends.",
        "",
        "Factory: shop",
        "Subject: orders",
        "Time: 2030-03-17 17:46:40 UTC",
        "Details: https://hooks.test/f/shop/alarms/alm_1?a=1&b=2",
    ]
    assert subject_line(MESSAGE) == "[Hookmill] Alarm: No deliveries: orders (shop)"


def test_message_for_several_notices_says_how_many():
    message = AlarmMessage(id="ntc_1", notice=replace(NOTICE, event=AlarmEvent.RESOLVED, factory=None), more=1_200)

    assert subject_line(message) == "[Hookmill] Resolved: No deliveries: orders and 1,200 more"
    assert NOTICE.action not in as_text(message)
    assert "And 1,200 more. There were too many for a message each." in as_text(message)
    assert json.loads(as_json(message))["data"]["more"] == 1_200


def test_json_has_every_field_of_the_notice():
    assert json.loads(as_json(MESSAGE)) == {
        "type": "alarm.raised",
        "timestamp": "2030-03-17T17:46:40.000000Z",
        "data": {
            "alarm_id": "alm_1",
            "kind": "webhook_quiet",
            "factory": "shop",
            "subject": "orders",
            "summary": NOTICE.summary,
            "action": NOTICE.action,
            "url": NOTICE.url,
            "more": 0,
        },
    }


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_name_is_inert_in_every_format(name):
    summary, action = f"Webhook {name} is quiet.", f"Look at {name}."
    message = AlarmMessage(
        id="ntc_1", notice=replace(NOTICE, factory=name, subject=name, summary=summary, action=action, url=None)
    )

    slack = as_slack(message)
    email = email_of(message, SERVER, "ops@example.com").as_bytes()
    parsed = message_from_bytes(email, policy=policy.default)

    # Slack decodes three entities. A mention or link begins with an unescaped <.
    assert not set(slack["text"]) & set("<>")
    assert html.unescape(slack["text"]) == as_text(message)
    assert (slack["mrkdwn"], slack["link_names"]) == (False, False)
    assert parsed.get_content().replace("\r\n", "\n") == as_text(message) + "\n"
    for text in (as_text(message), subject_line(message), str(parsed["Subject"])):
        # A reader sees what was changed.
        assert not set(text) & set("\r\x00\x1b\u200b\u202e\u2028")
    assert re.search(r"@\w|://\w|www\.|!\[", as_text(message)) is None
    assert as_text(message).count("\n") == as_text(MESSAGE).count("\n") - 1
    # The name adds no header and no line to the e-mail.
    assert (
        parsed.keys()
        == message_from_bytes(email_of(MESSAGE, SERVER, "ops@example.com").as_bytes(), policy=policy.default).keys()
    )
    assert parsed["To"] == "ops@example.com"
    # In JSON, it is data, byte for byte.
    assert json.loads(as_json(message))["data"]["subject"] == name


def test_name_of_a_host_can_be_copied_from_a_message():
    subject = "disk of db1.example.com"
    notice = replace(NOTICE, kind=AlarmKind.DISK_LOW, factory=None, subject=subject)
    message = AlarmMessage(id="ntc_1", notice=notice)

    assert f"\nSubject: {subject}\n" in as_text(message)
    assert subject_line(message) == f"[Hookmill] Alarm: Disk almost full: {subject}"


def test_long_names_are_shortened():
    message = AlarmMessage(id="ntc_1", notice=replace(NOTICE, summary="x" * 100_000))

    assert len(as_text(message)) < 1_000
