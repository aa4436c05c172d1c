"""E-mails arrive at a real SMTP server, with STARTTLS or TLS, and with a sign-in."""

import socket
import ssl
import threading
import time
from email import message_from_bytes, policy
from typing import Any

import pytest

from hookmill.domain.alarm_destination import EmailTarget
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.secret import SecretValue
from hookmill.notices import mail
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
    user: str = "hookmill",
    mail_sender: str = "hookmill@example.com",
) -> Outgoing:
    server = MailServer(
        host=host,
        port=port,
        security=SmtpSecurity(security),
        user=user if password is not None else None,
        password=SecretValue(password) if password is not None else None,
        sender=mail_sender,
        service_host="hooks.example.com",
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
def test_email_arrives_encrypted_after_a_sign_in(security, certificate, tls):
    with mail_server(certificate, security, PASSWORD) as mailbox:
        sender = outgoing(mailbox.port, security, tls)
        sender.send(EmailTarget("ops@example.com"), MESSAGE)
        sender.send(EmailTarget("ops@example.com"), MESSAGE)
        for address, refusal in (
            ("unknown@example.com", 'refused the recipient: "550 <unknown@example.com>: no such\\u001b user".'),
            ("full@example.com", 'refused the message: "452 4.2.2 Mailbox full".'),
        ):
            with pytest.raises(DestinationUnavailable) as failure:
                sender.send(EmailTarget(address), MESSAGE)
            assert str(failure.value) == f"localhost:{mailbox.port} {refusal}"
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
    # Relays refuse an address of this host, such as [127.0.0.1].
    assert {name and name.lower() for name in mailbox.client_names} <= {
        socket.gethostname().lower(),
        "hooks.example.com",
    }
    email = message_from_bytes(first[2], policy=policy.default)
    assert email["Subject"] == "[Hookmill] Alarm: No deliveries: orders (shop)"
    assert email["From"] == "Hookmill <hookmill@example.com>"
    assert email["Message-ID"] == "<ntc_1@example.com>"
    assert "Details: https://hooks.test/f/shop/alarms/alm_1?a=1&b=2" in email.get_content().splitlines()


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
def test_addresses_and_passwords_may_have_any_letters(certificate, tls):
    with mail_server(certificate, "tls", "pässwörd-漢字", "jörg") as mailbox:
        sender = outgoing(
            mailbox.port, "tls", tls, user="jörg", password="pässwörd-漢字", mail_sender="jörg@xn--exmple-cua.com"
        )
        for address in ("öps@example.com", "a..b.@example.jp"):
            sender.send(EmailTarget(address), MESSAGE)

    assert [envelope[:2] for envelope in mailbox.envelopes] == [
        ("jörg@xn--exmple-cua.com", ["öps@example.com"]),
        ("jörg@xn--exmple-cua.com", ["a..b.@example.jp"]),
    ]
    assert "From: Hookmill <jörg@xn--exmple-cua.com>".encode() in mailbox.envelopes[0][2]


class ScriptedServer:
    """An SMTP server that sends these replies, one for its greeting and one for each command, and then closes."""

    def __init__(self, *replies: str):
        self.commands: list[str] = []
        self._replies = replies
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        with self._listener, self._listener.accept()[0] as connection, connection.makefile("rb") as lines:
            for reply in self._replies:
                connection.sendall(f"{reply}\r\n".encode())
                if reply is self._replies[-1] or not (line := lines.readline()):
                    return
                self.commands.append(line.decode().strip())

    def refusal(self, **options: Any) -> str:
        with pytest.raises(DestinationUnavailable) as failure:
            outgoing(self.port, "none", host="127.0.0.1", **options).send(EmailTarget("ops@example.com"), MESSAGE)
        self._thread.join()
        return str(failure.value).removeprefix(f"127.0.0.1:{self.port} ")


DISABLED = "535 5.7.139 SmtpClientAuthentication is disabled for the Tenant."
AUTH = "250-example.com\r\n250 AUTH {}"


@pytest.mark.parametrize(
    ("replies", "refusal"),
    [
        (("421 4.3.2 Try again later",), 'refused the connection: "421 4.3.2 Try again later".'),
        (("220 hello", "554 no", "554 5.7.1 Your name is refused"), 'refused the message: "554 5.7.1 Your name is re'),
        (("220 hello", AUTH.format("PLAIN"), DISABLED), f'refused smtp_user and smtp_password: "{DISABLED}".'),
        (
            ("220 hello", AUTH.format("LOGIN PLAIN"), "504 no", DISABLED),
            f'refused smtp_user and smtp_password: "{DISABLED}".',
        ),
        (("220 hello", AUTH.format("LOGIN"), DISABLED), f'refused smtp_user and smtp_password: "{DISABLED}".'),
        (
            ("220 hello", AUTH.format("LOGIN"), "334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6", DISABLED),
            f'refused smtp_user and smtp_password: "{DISABLED}".',
        ),
        (
            ("220 hello", AUTH.format("CRAM-MD5"), "334 PDEyMz4=", DISABLED),
            f'refused smtp_user and smtp_password: "{DISABLED}".',
        ),
        (("220 hello", AUTH.format("CRAM-MD5"), "334 x"), "closed the connection, or did not give a valid response."),
        (("220 hello", AUTH.format("XOAUTH2")), "does not support a sign-in with PLAIN, LOGIN or CRAM-MD5."),
        (
            ("220 hello", AUTH.format("PLAIN"), f"535 wrong: {PASSWORD}"),
            "refused smtp_user and smtp_password: its text contains a part of the credential and is not shown.",
        ),
        (("220 hello", "250 example.com"), "does not support a sign-in with PLAIN, LOGIN or CRAM-MD5."),
    ],
)
def test_words_of_a_server_that_refuses_are_shown(replies, refusal):
    assert ScriptedServer(*replies).refusal().startswith(refusal)


def test_address_that_the_server_cannot_have_is_reported():
    server = ScriptedServer("220 hello", "250 example.com")

    assert server.refusal(password=None, mail_sender="jörg@example.com") == (
        "does not support SMTPUTF8, which the address of the sender or the recipient needs."
    )


@pytest.mark.parametrize(
    ("host_names", "address", "name"),
    [
        (["mail.example.com", "hooks.example.com"], "192.0.2.7", "mail.example.com"),
        (["Hooks-1.Example.com", ""], "192.0.2.7", "hooks-1.example.com"),
        (["a9df31c2", "hooks.example.com"], "192.0.2.7", "hooks.example.com"),
        (["hookmill", "localhost"], "192.0.2.7", "[192.0.2.7]"),
        (["localhost.localdomain", ""], "192.0.2.7", "[192.0.2.7]"),
        (["laptop.local", ""], "192.0.2.7", "[192.0.2.7]"),
        (["my_host.example.com", "192.0.2.9"], "192.0.2.7", "[192.0.2.7]"),
        (["hookmill", "::1"], "fe80::1%eth0", "[IPv6:fe80::1]"),
    ],
)
def test_client_introduces_itself_with_its_full_name_or_its_address(host_names, address, name):
    assert mail._local_name(host_names, address) == name


def test_nothing_is_sent_unencrypted_if_the_server_has_no_starttls(certificate, tls):
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
