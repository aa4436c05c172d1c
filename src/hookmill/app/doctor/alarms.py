"""Checks whether the destinations of alarms can be reached."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from hookmill.app import keys, now_us
from hookmill.app.alarm_destinations import AlarmPost
from hookmill.app.doctor.database import inspected_tables
from hookmill.domain.alarm_destination import EmailTarget, SlackTarget, Target, WebhookTarget, parsed_url
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.finding import Finding, listed, ok, problem, warning
from hookmill.settings import Settings
from hookmill.store import alarm_destinations

CHECK_SECONDS: Final = 120.0
"""The deadline of this check. It exceeds the time for an e-mail (`smtp_seconds`), and for `SERVERS_MAX` servers."""
CONNECTIONS_AT_ONCE: Final = 8
SERVERS_MAX: Final = 32
_MAIL_ADVICE: Final = (
    "Check smtp_host, smtp_port, smtp_security, smtp_user, smtp_password and alarm_ca_file, and whether a firewall "
    "lets this host connect."
)
_URL_ADVICE: Final = (
    "Check the name, the firewall and the certificate. alarm_ca_file trusts a certificate authority of your own, and "
    "alarm_private_addresses allows private addresses. If the URL has changed, add the destination again."
)


def check_alarm_destinations(settings: Settings) -> Iterator[Finding]:
    """Connect to each server once, however many destinations it has. Nothing is sent."""
    targets: dict[str, list[Target]] = {}
    with inspected_tables(settings) as tx:
        destinations = alarm_destinations.all_destinations(tx) if tx is not None else ()
        if tx is not None and destinations:
            ring = keys.key_ring(settings)
            for destination in destinations:
                target = alarm_destinations.target(tx, destination.id, ring)
                if target is not None:
                    targets.setdefault(_server_of(target, settings), []).append(target)
    if not destinations:
        yield ok("none: alarms are in the lists only")
        return
    checked = dict(list(targets.items())[:SERVERS_MAX])
    post = AlarmPost(settings, now_us)
    # Daemon threads aren't needed: each connection has a deadline.
    with ThreadPoolExecutor(CONNECTIONS_AT_ONCE) as executor:
        failures = list(executor.map(lambda of_server: _failure(post, of_server[0]), checked.values()))
    for (server, of_server), failure in zip(checked.items(), failures, strict=True):
        count = f"{len(of_server)} destination{'s' if len(of_server) > 1 else ''}"
        if failure is None:
            yield ok(f"{server} can be reached ({count})")
        else:
            advice = _MAIL_ADVICE if isinstance(of_server[0], EmailTarget) else _URL_ADVICE
            yield problem(f"{failure.removesuffix('.')} ({count})", advice)
    if others := list(targets)[SERVERS_MAX:]:
        yield warning(
            f"only {SERVERS_MAX} servers were checked, and not {listed(others)}",
            "Send a test to each of the others: hookmill alarm destination test ID",
        )


def _server_of(target: Target, settings: Settings) -> str:
    match target:
        case EmailTarget():
            return f"the mail server {settings.smtp_host}:{settings.effective_smtp_port}"
        case SlackTarget(url) | WebhookTarget(url, _):
            return parsed_url(url).origin


def _failure(post: AlarmPost, target: Target) -> str | None:
    try:
        post.check(target)
    except DestinationUnavailable as error:
        return str(error)
    return None
