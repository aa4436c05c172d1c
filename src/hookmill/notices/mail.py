"""Sends an e-mail through the operator's SMTP server."""

import smtplib
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from enum import StrEnum
from typing import Final

from hookmill.domain.alarm_message import AlarmMessage, as_text, subject_line
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.moment import date_of
from hookmill.domain.secret import SecretValue
from hookmill.outbound.connection import MessageDeadline, connected, reporting_failures, with_tls

_LOCAL_NAME: Final = "[127.0.0.1]"
"""The name in EHLO. Looking up the real one can take long, and servers don't verify it."""
_OK: Final = 250


class SmtpSecurity(StrEnum):
    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """The operator's SMTP server."""

    host: str
    port: int
    security: SmtpSecurity
    user: str | None
    password: SecretValue | None
    sender: str
    """The e-mail address in `From`."""


class _Client(smtplib.SMTP):
    """A client on a connection that is open already."""

    def __init__(self, host: str, stream: socket.socket) -> None:
        super().__init__(local_hostname=_LOCAL_NAME)
        # STARTTLS compares the certificate with this name.
        self._host = host
        self.sock = stream
        code, answer = self.getreply()
        if code != 220:
            raise smtplib.SMTPConnectError(code, answer)


def email_of(message: AlarmMessage, server: MailServer, to: str) -> EmailMessage:
    """The e-mail. The classes of `email` refuse line breaks in headers, and the message's texts contain none."""
    email = EmailMessage(policy=SMTP)
    email["From"] = Address("Hookmill", addr_spec=server.sender)
    email["To"] = Address(addr_spec=to)
    email["Subject"] = subject_line(message)
    email["Date"] = format_datetime(date_of(message.notice.at))
    # Mail programs show the message once if several attempts have delivered it.
    email["Message-ID"] = f"<{message.id}@{server.sender.partition('@')[2]}>"
    email["Auto-Submitted"] = "auto-generated"
    email.set_content(as_text(message) + "\n", cte="quoted-printable")
    return email


def send(
    message: AlarmMessage, to: str, server: MailServer, deadline: MessageDeadline, *, tls: Callable[[], ssl.SSLContext]
) -> None:
    """Send the e-mail. Raises `DestinationUnavailable`."""
    email = email_of(message, server, to)
    with _signed_in(server, deadline, tls) as client:
        # Without QUIT: the message is accepted, and a failure after that must not repeat it.
        client.send_message(email)


def check(server: MailServer, deadline: MessageDeadline, *, tls: Callable[[], ssl.SSLContext]) -> None:
    """Connect and sign in like `send`, but send no message. Raises `DestinationUnavailable`."""
    with _signed_in(server, deadline, tls) as client:
        # Some servers refuse a client only at its first command.
        client.ehlo_or_helo_if_needed()
        code, answer = client.noop()
        if code != _OK:
            raise smtplib.SMTPConnectError(code, answer)


@contextmanager
def _signed_in(server: MailServer, deadline: MessageDeadline, tls: Callable[[], ssl.SSLContext]) -> Iterator[_Client]:
    """A client that is connected as the settings require. Converts its errors to `DestinationUnavailable`."""
    where = f"{server.host}:{server.port}"
    with (
        # The operator has chosen this server, so it may have any address.
        connected(server.host, server.port, deadline, where=where) as connection,
        reporting_failures(where, deadline),
    ):
        try:
            stream = with_tls(connection, tls(), server.host) if server.security is SmtpSecurity.TLS else connection
            client = _Client(server.host, stream)
            try:
                if server.security is SmtpSecurity.STARTTLS:
                    client.starttls(context=tls())
                if server.user is not None and server.password is not None:
                    client.login(server.user, server.password.reveal())
                yield client
            finally:
                client.close()
        except smtplib.SMTPNotSupportedError:
            what = "STARTTLS" if server.security is SmtpSecurity.STARTTLS else "the sign-in"
            raise DestinationUnavailable(f"{where} does not support {what} as the settings require it.") from None
        except smtplib.SMTPAuthenticationError:
            raise DestinationUnavailable(f"{where} refused smtp_user and smtp_password.") from None
        except smtplib.SMTPRecipientsRefused:
            raise DestinationUnavailable(f"{where} refused the recipient.") from None
        except smtplib.SMTPConnectError as error:
            raise DestinationUnavailable(f"{where} refused the connection with the code {error.smtp_code}.") from None
        except smtplib.SMTPResponseException as error:
            raise DestinationUnavailable(f"{where} refused the message with the code {error.smtp_code}.") from None
        except smtplib.SMTPException:
            if deadline.is_over:
                raise deadline.timeout_error(where) from None
            raise DestinationUnavailable(f"{where} closed the connection, or did not give a valid response.") from None
