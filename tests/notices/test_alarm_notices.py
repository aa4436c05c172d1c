"""From the cause of an alarm to its destinations, which get a notice when it is raised, and one when it is resolved."""

import ssl
import time
from email import message_from_bytes, policy

import pytest
from standardwebhooks import Webhook

from hookmill.alarm_watch import AlarmConfig, AlarmEvaluator
from hookmill.domain.alarm_destination import DestinationKind
from hookmill.notices.mail import MailServer, SmtpSecurity
from hookmill.notices.outgoing import Outgoing
from hookmill.notices.sender import NoticeSender
from tests.alarms.test_webhooks import fail
from tests.notices.receivers import Mailbox, mail_server
from tests.support.world import PUBLIC_URL, World, world_for_test


@pytest.fixture
def private_world(store_url):
    """A world whose destinations may have private addresses."""
    yield from world_for_test(store_url, allows_private_addresses=True)


@pytest.fixture
def mailbox(certificate):
    with mail_server(certificate, "starttls") as mailbox:
        yield mailbox


def sender_of(world: World, mailbox: Mailbox, tls: ssl.SSLContext) -> NoticeSender:
    server = MailServer(
        host="localhost",
        port=mailbox.port,
        security=SmtpSecurity.STARTTLS,
        user=None,
        password=None,
        sender="hookmill@example.com",
    )
    outgoing = Outgoing(
        mail_server=server, tls=lambda: tls, allows_private=True, now_us=lambda: time.time_ns() // 1_000
    )
    return NoticeSender(
        world.database,
        world.key,
        outgoing.send,
        world.clock,
        report_failure=lambda component, error: world.failures.append((component, str(error))),
    )


def test_alarm_reaches_an_email_address_and_a_webhook_once_raised_and_once_resolved(
    private_world, receiver, mailbox, tls
):
    world = private_world
    destinations = world.management.alarm_destinations
    team = world.management.access.operator_of_team()
    secret = destinations.create(world.may, DestinationKind.WEBHOOK, url=receiver.url()).signing_secret
    destinations.create(team, DestinationKind.EMAIL, to="ops@example.com", includes_factories=True)
    assert secret is not None
    evaluator = AlarmEvaluator(world.database, AlarmConfig(public_url=PUBLIC_URL), world.clock)
    sender = sender_of(world, mailbox, tls)
    source = world.webhook()

    def evaluate_and_send(*, minutes):
        for _ in range(minutes):
            world.clock.advance(seconds=60)
            evaluator.evaluate()
        while sender.send_next():
            pass

    fail(world, source, 5)
    evaluate_and_send(minutes=2)
    world.post(source, b"{}")
    evaluate_and_send(minutes=12)

    events = [Webhook(secret.reveal()).verify(request.body, request.headers) for request in receiver.requests]
    [raised, resolved] = [event["data"] for event in events]
    assert [event["type"] for event in events] == ["alarm.raised", "alarm.resolved"]
    assert (raised["kind"], raised["factory"], raised["subject"]) == ("authentication_failing", "default", "source")
    assert raised["url"] == f"{PUBLIC_URL}/f/default/alarms/{raised['alarm_id']}"
    assert resolved["alarm_id"] == raised["alarm_id"]
    emails = [message_from_bytes(content, policy=policy.default) for _, _, content in mailbox.envelopes]
    assert [email["Subject"] for email in emails] == [
        "[Hookmill] Alarm: Authentication fails: source (default)",
        "[Hookmill] Resolved: Authentication fails: source (default)",
    ]
    assert raised["url"] in emails[0].get_content()
