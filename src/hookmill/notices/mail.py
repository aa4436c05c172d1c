"""Sends an e-mail through the operator's SMTP server."""

import base64
import hmac
import re
import smtplib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
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
from hookmill.outbound.answer_text import quoted
from hookmill.outbound.connection import MessageDeadline, connected, reporting_failures

_OK: Final = 250
_CONTINUE: Final = 334
_SIGNED_IN: Final = 235
_REFUSED: Final = range(400, 600)
_WITHOUT_METHOD: Final = frozenset({500, 501, 502, 503, 504, 534})
"""The server does not know a method that it has offered, or requires another one."""
_FULL_NAME: Final = re.compile(r"(?=.{4,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])\Z")


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
    service_host: str | None = None
    """The host of the service's public URL."""


class _Client(smtplib.SMTP):
    """A client on a connection that is open already."""

    def __init__(self, server: MailServer, stream: socket.socket) -> None:
        names = [socket.gethostname(), server.service_host or ""]
        super().__init__(local_hostname=_local_name(names, stream.getsockname()[0]))
        self.last_reply: tuple[int, bytes] = 0, b""
        # STARTTLS compares the certificate with this name.
        self._host = server.host
        self.sock = stream
        code, answer = self.getreply()
        if code != 220:
            self.close()
            raise smtplib.SMTPConnectError(code, answer)

    def getreply(self) -> tuple[int, bytes]:
        self.last_reply = super().getreply()
        return self.last_reply

    def sign_in(self, user: str, password: str) -> None:
        """Like `login`, but in UTF-8. After a refused password, no other method is tried."""
        self.ehlo_or_helo_if_needed()
        offered = self.esmtp_features.get("auth", "").upper().split()
        code, answer = 0, b""
        # The connection is encrypted, unless the server is on this host.
        for method in ("PLAIN", "LOGIN", "CRAM-MD5"):
            if method in offered and (code == 0 or code in _WITHOUT_METHOD):
                code, answer = self._sign_in_with(method, user, password)
        if code == 0:
            raise smtplib.SMTPNotSupportedError
        if code != _SIGNED_IN:
            raise smtplib.SMTPAuthenticationError(code, answer)

    def _sign_in_with(self, method: str, user: str, password: str) -> tuple[int, bytes]:
        if method == "PLAIN":
            return self.docmd("AUTH", "PLAIN " + _base64(f"\0{user}\0{password}"))
        code, answer = self.docmd("AUTH", method)
        if method == "LOGIN":
            responses = [user, password]
        else:
            challenge = base64.b64decode(answer) if code == _CONTINUE else b""
            responses = [f"{user} {hmac.new(password.encode(), challenge, 'md5').hexdigest()}"]
        for response in responses:
            if code == _CONTINUE:
                code, answer = self.docmd(_base64(response))
        return code, answer


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _local_name(host_names: Sequence[str], address: str) -> str:
    """The name in EHLO: the first of the host's names that is a full one, or the address of the connection.

    Nothing is looked up, because this can take long.
    """
    for name in map(str.lower, host_names):
        if _FULL_NAME.match(name) and not name.endswith((".localdomain", ".local", ".internal")):
            return name
    return f"[IPv6:{address.partition('%')[0]}]" if ":" in address else f"[{address}]"


def email_of(message: AlarmMessage, server: MailServer, to: str) -> EmailMessage:
    """The e-mail. The classes of `email` refuse line breaks in headers, and the message's texts contain none."""
    email = EmailMessage(policy=SMTP)
    email["From"] = _address("Hookmill", server.sender)
    email["To"] = _address("", to)
    email["Subject"] = subject_line(message)
    email["Date"] = format_datetime(date_of(message.notice.at))
    # Mail programs show the message once if several attempts have delivered it.
    email["Message-ID"] = f"<{message.id}@{server.sender.rpartition('@')[2]}>"
    email["Auto-Submitted"] = "auto-generated"
    email.set_content(as_text(message) + "\n", cte="quoted-printable")
    return email


def _address(name: str, text: str) -> Address:
    # An address that is given as one text is parsed, and this refuses some that exist.
    user, _, domain = text.rpartition("@")
    return Address(name, user, domain)


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
        client: _Client | None = None
        needed = ""
        try:
            if server.security is SmtpSecurity.TLS:
                client = _Client(server, tls().wrap_socket(connection, server_hostname=server.host))
            else:
                client = _Client(server, connection)
            try:
                if server.security is SmtpSecurity.STARTTLS:
                    needed = "STARTTLS as the settings require it"
                    client.starttls(context=tls())
                if server.user is not None and server.password is not None:
                    needed = "a sign-in with PLAIN, LOGIN or CRAM-MD5"
                    client.sign_in(server.user, server.password.reveal())
                needed = "SMTPUTF8, which the address of the sender or the recipient needs"
                yield client
            finally:
                client.close()
        except smtplib.SMTPNotSupportedError:
            raise DestinationUnavailable(f"{where} does not support {needed}.") from None
        except smtplib.SMTPAuthenticationError as error:
            raise _refusal(server, "smtp_user and smtp_password", error.smtp_code, error.smtp_error) from None
        except smtplib.SMTPRecipientsRefused as error:
            raise _refusal(server, "the recipient", *next(iter(error.recipients.values()))) from None
        except smtplib.SMTPConnectError as error:
            raise _refusal(server, "the connection", error.smtp_code, error.smtp_error) from None
        except smtplib.SMTPResponseException as error:
            raise _refusal(server, "the message", error.smtp_code, error.smtp_error) from None
        except (smtplib.SMTPException, ValueError) as error:
            if isinstance(error, OSError):
                raise
            if deadline.is_over:
                raise deadline.timeout_error(where) from None
            if client is not None and client.last_reply[0] in _REFUSED:
                raise _refusal(server, "the connection", *client.last_reply) from None
            raise DestinationUnavailable(f"{where} closed the connection, or did not give a valid response.") from None


def _refusal(server: MailServer, what: str, code: int, answer: bytes | str) -> DestinationUnavailable:
    reply = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    credentials = []
    if server.user is not None and server.password is not None:
        password = server.password.reveal()
        credentials = [password, _base64(password), _base64(f"\0{server.user}\0{password}")]
    words = quoted(f"{code} {reply}", credentials)
    return DestinationUnavailable(f"{server.host}:{server.port} refused {what}: {words}.")
