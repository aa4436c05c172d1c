"""Sends one message to one destination."""

import json
import ssl
from collections.abc import Callable
from typing import Final

from hookmill.domain.alarm_destination import EmailTarget, SlackTarget, Target, WebhookTarget, parsed_url
from hookmill.domain.alarm_message import AlarmMessage, as_json, as_slack
from hookmill.domain.errors import DestinationUnavailable, Invalid
from hookmill.domain.networks import Address
from hookmill.domain.secret import SecretValue
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import sign
from hookmill.notices import mail
from hookmill.notices.mail import MailServer
from hookmill.outbound import http
from hookmill.outbound.addresses import is_public_host
from hookmill.outbound.connection import MessageDeadline

SEND_SECONDS: Final = 10.0
"""The time limit for one message, from the look-up of the host's name to the response."""
SIGNATURE_SCHEME: Final = "standard_webhooks"


class Outgoing:
    """Sends messages. Threads may share it."""

    def __init__(
        self,
        *,
        mail_server: MailServer | None,
        tls: Callable[[], ssl.SSLContext],
        allows_private: bool,
        now_us: Callable[[], int],
        seconds: float = SEND_SECONDS,
        mail_seconds: float = SEND_SECONDS,
    ) -> None:
        """`tls`: creates the context, when it is first needed. `allows_private`: whether URLs may lead to addresses
        that are not public. `now_us`: the time in µs since 1970. `seconds` and `mail_seconds`: the time limits for a
        message by HTTP, and for an e-mail."""
        self._mail_server = mail_server
        self._create_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._allows_private = allows_private
        self._now_us = now_us
        self._seconds = seconds
        self._mail_seconds = mail_seconds

    def send(self, target: Target, message: AlarmMessage) -> None:
        """Send the message. Raises `DestinationUnavailable`; then it may have arrived nevertheless."""
        match target:
            case EmailTarget(to):
                mail.send(message, to, self._server(), MessageDeadline(self._mail_seconds), tls=self._tls_context)
            case SlackTarget(url):
                self._post(url, json.dumps(as_slack(message)).encode(), {})
            case WebhookTarget(url, signing_secret):
                body = as_json(message)
                scheme = scheme_named(SIGNATURE_SCHEME, None)
                signed = sign(scheme, signing_secret.reveal(), body, "", self._now_us(), message.id)
                self._post(url, signed.body, dict(signed.headers))

    def check(self, target: Target) -> None:
        """Connect to the destination, and sign in to the mail server, but send nothing.

        Raises `DestinationUnavailable`.
        """
        match target:
            case EmailTarget():
                mail.check(self._server(), MessageDeadline(self._mail_seconds), tls=self._tls_context)
            case SlackTarget(url) | WebhookTarget(url, _):
                http.check(
                    parsed_url(url), MessageDeadline(self._seconds), tls=self._tls_context, permits=self._permits
                )

    def _server(self) -> MailServer:
        if self._mail_server is None:
            raise DestinationUnavailable("No mail server is configured. Set smtp_host and smtp_sender.")
        return self._mail_server

    def _post(self, url: SecretValue, body: bytes, headers: dict[str, str]) -> None:
        http.post(
            parsed_url(url),
            body,
            {"Content-Type": "application/json", **headers},
            MessageDeadline(self._seconds),
            tls=self._tls_context,
            permits=self._permits,
        )

    @property
    def _permits(self) -> Callable[[Address], bool] | None:
        return None if self._allows_private else is_public_host

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            try:
                self._tls = self._create_tls()
            except Invalid as error:
                raise DestinationUnavailable(str(error)) from None
        return self._tls
