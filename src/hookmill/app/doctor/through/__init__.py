"""Checks of a deployment through its proxies: deliveries are sent to a URL, and compared with what arrived.

The requests go to temporary webhooks, which are removed at the end. Without the settings of the installation, they go
to one webhook that exists, and only the responses can be checked.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from hookmill.app import open_store
from hookmill.app.doctor.exchange import HTTP_PORT, NoResponse, Origin, tls_context
from hookmill.app.doctor.through import advice, connections, deliveries, responses
from hookmill.app.doctor.through.deployment import (
    Deployment,
    OutOfTime,
    ProbedInstallation,
    ProbeWebhook,
    ProbeWebhooks,
    TooManyRequests,
)
from hookmill.app.doctor.through.temporary import temporary_webhooks
from hookmill.domain.errors import HookmillError
from hookmill.domain.finding import Examination, Finding, Status, problem
from hookmill.settings import Settings

SECONDS_MAX: Final = 60.0
"""The deadline of all requests together."""
PAUSES_SECONDS: Final = (8.0, 8.0)
"""The pauses in a slow body, which may take 30 seconds in all."""

SLOW_BODY: Final = "slow body"

_Check = tuple[str, Callable[[Deployment], Iterator[Finding]]]
_Report = Callable[[Finding], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a deployment is checked."""

    ca_file: Path | None = None
    """Certificate authorities to trust in addition to the system's."""
    factory: str | None = None
    """The factory of the temporary webhooks; None for the first one that has room."""
    http_port: int = HTTP_PORT
    """The port without TLS, beside an https URL."""
    pauses_seconds: Sequence[float] = PAUSES_SECONDS
    only: frozenset[str] | None = None
    """The names of the checks to make, besides the first delivery; None for all."""

    def includes(self, name: str) -> bool:
        return self.only is None or name in self.only


def examine_through(settings: Settings, url: str, options: Options, report: _Report = lambda _: None) -> Examination:
    """Check a deployment with temporary webhooks of the installation that the settings name.

    They are removed in any case. `report` is called with each finding as soon as it is known. Raises `Invalid` for an
    unusable URL, `Conflict` if no temporary webhook can be created, and like `open_store`.
    """
    origin = Origin.of(url)
    with (
        _stopping_at_sigterm(),
        closing(open_store(settings)) as store,
        temporary_webhooks(settings, store, options.factory) as webhooks,
    ):
        return _examine(origin, webhooks, webhooks, options, report)


@dataclass(frozen=True, slots=True)
class OneWebhook:
    """A webhook of the caller, to which all requests go."""

    webhook: ProbeWebhook

    def for_delivery(self) -> ProbeWebhook:
        return self.webhook

    def for_failure(self) -> ProbeWebhook:
        return self.webhook


def examine_from_outside(
    origin: Origin, webhook: ProbeWebhook, options: Options, report: _Report = lambda _: None
) -> Examination:
    """Check a deployment with a webhook that exists. The deliveries start runs like any others."""
    return _examine(origin, OneWebhook(webhook), None, options, report)


def _examine(
    origin: Origin, webhooks: ProbeWebhooks, installation: ProbedInstallation | None, options: Options, report: _Report
) -> Examination:
    verifying = tls_context(options.ca_file)
    findings: list[Finding] = []

    def make(name: str, check: Callable[[Deployment], Iterator[Finding]]) -> bool:
        """Make one check. Returns whether it has a problem."""
        results = list(_results_of(name, check, deployment))
        findings.extend(results)
        for finding in results:
            report(finding)
        return any(finding.status is Status.PROBLEM for finding in results)

    # With an invalid certificate, which is reported, the other checks are still useful. But the secret of a webhook
    # that is not temporary must not be sent then.
    verifies = installation is None
    deployment = Deployment(
        origin,
        webhooks,
        installation,
        tls=verifying if verifies else tls_context(verifies=False),
        http2=tls_context(options.ca_file, verifies=verifies, protocols=("h2", "http/1.1")),
        seconds=SECONDS_MAX,
    )
    has_problem = make("TLS", partial(connections.check_tls, verifying=verifying))
    is_stopped = (
        (has_problem and installation is None)
        or make("delivery", deliveries.check_delivery)
        # A cached answer would be taken for that of another delivery.
        or make("caching", responses.check_caching)
    )
    checks = [(name, check) for name, check in _checks(options) if options.includes(name)]
    not_checked: list[str] = []
    if is_stopped:
        slow_body = [SLOW_BODY] if options.includes(SLOW_BODY) else []
        not_checked = [*(name for name, _ in checks), *slow_body, *(name for name, _ in _FINAL_CHECKS)]
    else:
        if options.includes(SLOW_BODY):
            slow_delivery = connections.SlowDelivery(deployment, options.pauses_seconds)
            # The other checks are made meanwhile.
            checks.append((SLOW_BODY, slow_delivery.check))
        for name, check in [*checks, *_FINAL_CHECKS]:
            if deployment.deadline.remaining() <= 0:
                not_checked.append(name)
            else:
                make(name, check)
    return Examination(findings=tuple(findings), not_checked=tuple(not_checked))


_FINAL_CHECKS: Final[Sequence[_Check]] = (
    ("cookies", responses.check_cookies),
    ("repetitions", responses.check_repetitions),
)
"""Checks that send nothing. They evaluate the responses and log rows that the other checks caused."""


def _checks(options: Options) -> Sequence[_Check]:
    """The checks that send requests, after the first delivery."""
    return (
        ("body", deliveries.check_bodies),
        ("chunked body", deliveries.check_chunked),
        ("too large", deliveries.check_too_large),
        ("headers", deliveries.check_headers),
        ("firewall", deliveries.check_user_agent),
        ("URL token", deliveries.check_url_token),
        ("path", deliveries.check_path),
        ("query", deliveries.check_query),
        ("methods", responses.check_methods),
        ("error responses", responses.check_errors),
        ("429", responses.check_rate_limit),
        ("404", responses.check_states),
        ("compression", responses.check_compression),
        ("Expect", connections.check_expect),
        ("keep-alive", connections.check_keep_alive),
        ("framing", connections.check_framing),
        ("HTTP/2", connections.check_http2),
        ("client address", connections.check_client_address),
        ("without TLS", partial(connections.check_redirect, http_port=options.http_port)),
        ("dashboard", responses.check_dashboard),
    )


def _results_of(
    name: str, check: Callable[[Deployment], Iterator[Finding]], deployment: Deployment
) -> Iterator[Finding]:
    """The findings of the check. An error is a problem."""
    try:
        yield from check(deployment)
    except NoResponse as error:
        yield problem(name, f"{deployment.origin} {error}", advice.REACH)
    except OutOfTime as error:
        yield problem(name, str(error), "Run the command again on a host that is nearer to the proxy.")
    except TooManyRequests as error:
        yield problem(name, str(error), "Report this as a fault of `hookmill doctor`.")
    except HookmillError as error:
        yield problem(name, str(error), "")


@contextmanager
def _stopping_at_sigterm() -> Iterator[None]:
    """Let SIGTERM end the program like Ctrl-C, so that temporary webhooks are removed."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
