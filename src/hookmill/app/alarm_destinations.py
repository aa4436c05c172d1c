"""Creates what sends messages to the destinations of alarms, from the settings."""

from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hookmill.app.tls import client_context
from hookmill.domain.secret import SecretValue
from hookmill.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookmill.domain.alarm_destination import Target
    from hookmill.domain.alarm_message import AlarmMessage
    from hookmill.notices.outgoing import Outgoing


class AlarmPost:
    """Sends messages. The first one loads the modules, which few processes need."""

    def __init__(self, settings: Settings, now_us: "Callable[[], int]") -> None:
        self._outgoing = cache(lambda: _outgoing(settings, now_us))

    def __call__(self, target: "Target", message: "AlarmMessage") -> None:
        """Send the message. Raises `DestinationUnavailable`."""
        self._outgoing().send(target, message)

    def check(self, target: "Target") -> None:
        """Connect to the destination without sending anything. Raises `DestinationUnavailable`."""
        self._outgoing().check(target)


def _outgoing(settings: Settings, now_us: "Callable[[], int]") -> "Outgoing":
    from hookmill.notices.mail import MailServer, SmtpSecurity
    from hookmill.notices.outgoing import Outgoing

    mail_server = None
    if settings.smtp_host is not None and settings.smtp_sender is not None:
        password = settings.smtp_password
        mail_server = MailServer(
            host=settings.smtp_host,
            port=settings.effective_smtp_port,
            security=SmtpSecurity(settings.smtp_security),
            user=settings.smtp_user,
            password=SecretValue(password.get_secret_value()) if password is not None else None,
            sender=settings.smtp_sender,
            service_host=urlsplit(settings.base_url or "").hostname,
        )
    return Outgoing(
        mail_server=mail_server,
        tls=lambda: client_context(settings.alarm_ca_file, "alarm_ca_file"),
        allows_private=settings.alarm_private_addresses,
        now_us=now_us,
        mail_seconds=settings.smtp_seconds,
    )
