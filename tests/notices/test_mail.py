"""E-mails arrive at a real SMTP server, with STARTTLS or TLS, and with a sign-in."""

import socket
import ssl
import time
from email import message_from_bytes, policy
from pathlib import Path

import pytest

from hookmill.domain.alarm_destination import EmailTarget
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.secret import SecretValue
from hookmill.notices.mail import MailServer, SmtpSecurity
from hookmill.notices.outgoing import Outgoing
from tests.domain.test_alarm_message import MESSAGE
from tests.notices.receivers import closed_port, mail_server

PASSWORD = "password-of-the-mail-server"


def outgoing(
    port: int,
    security: str,
    tls: ssl.SSLContext | None = None,
    *,
    password: str | None = PASSWORD,
    host: str = "localhost",
    seconds: float = 10,
) -> Outgoing:
    server = MailServer(
        host=host,
        port=port,
        security=SmtpSecurity(security),
        user="hookmill" if password is not None else None,
        password=SecretValue(password) if password is not None else None,
        sender="hookmill@example.com",
    )
    return Outgoing(
        mail_server=server,
        tls=lambda: tls or ssl.create_default_context(),
        allows_private=False,
        now_us=lambda: 0,
        mail_seconds=seconds,
    )


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_email_arrives_encrypted_after_a_sign_in(security: str, certificate: tuple[Path, Path], tls: ssl.SSLContext):
    with mail_server(certificate, security, PASSWORD) as mailbox:
        sender = outgoing(mailbox.port, security, tls)
        sender.send(EmailTarget("ops@example.com"), MESSAGE)
        sender.send(EmailTarget("ops@example.com"), MESSAGE)
        for address, code in (
            ("unknown@example.com", "the recipient"),
            ("full@example.com", "the message with the co"),
        ):
            with pytest.raises(DestinationUnavailable, match=f"refused {code}") as failure:
                sender.send(EmailTarget(address), MESSAGE)
            assert "secret-of-the-server" not in str(failure.value)
        sender.check(EmailTarget("ops@example.com"))
        for problem, wrong in (
            ("refused smtp_user and smtp_password", outgoing(mailbox.port, security, tls, password="wrong")),
            (r"The certificate of .* is not valid", outgoing(mailbox.port, security)),
        ):
            with pytest.raises(DestinationUnavailable, match=problem):
                wrong.send(EmailTarget("ops@example.com"), MESSAGE)
            with pytest.raises(DestinationUnavailable, match=problem):
                wrong.check(EmailTarget("ops@example.com"))

    first, second, _full = mailbox.envelopes
    assert first == second
    assert first[:2] == ("hookmill@example.com", ["ops@example.com"])
    assert all(mailbox.had_tls)
    email = message_from_bytes(first[2], policy=policy.default)
    assert email["Subject"] == "[Hookmill] Alarm: orders (shop)"
    assert email["From"] == "Hookmill <hookmill@example.com>"
    assert email["Message-ID"] == "<ntc_1@example.com>"
    assert "Details: https://hooks.test/f/shop/alarms/alm_1?a=1&b=2" in email.get_content().splitlines()


def test_nothing_is_sent_unencrypted_if_the_server_has_no_starttls(certificate: tuple[Path, Path], tls: ssl.SSLContext):
    with mail_server(certificate, "none") as mailbox:
        with pytest.raises(DestinationUnavailable, match="does not support STARTTLS"):
            outgoing(mailbox.port, "starttls", tls).send(EmailTarget("ops@example.com"), MESSAGE)
        outgoing(mailbox.port, "none", password=None).send(EmailTarget("ops@example.com"), MESSAGE)

    assert mailbox.had_tls == [False]


def test_server_that_never_answers_is_cut_off():
    began_at = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for security in ("starttls", "tls"):
            with pytest.raises(DestinationUnavailable, match=f"127.0.0.1:{port} did not answer within 0.4 s"):
                outgoing(port, security, host="127.0.0.1", seconds=0.4).send(EmailTarget("ops@example.com"), MESSAGE)

    assert time.monotonic() - began_at < 10


def test_server_that_is_down_is_reported():
    with closed_port() as port, pytest.raises(DestinationUnavailable, match="Could not connect to localhost:"):
        outgoing(port, "starttls").send(EmailTarget("ops@example.com"), MESSAGE)


def test_email_without_a_mail_server_is_reported():
    sender = Outgoing(mail_server=None, tls=ssl.create_default_context, allows_private=False, now_us=lambda: 0)

    with pytest.raises(DestinationUnavailable, match="No mail server is configured"):
        sender.send(EmailTarget("ops@example.com"), MESSAGE)
