"""Checks of a deployment through its proxies: deliveries are sent to a URL, and compared with what arrived.

The requests go to temporary webhooks, which are removed at the end.
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
from hookmill.app.doctor.proxy_checks import advice, checks
from hookmill.app.doctor.proxy_checks.deployment import Deployment, temporary_webhooks
from hookmill.domain.errors import HookmillError
from hookmill.domain.finding import Examination, Finding, Status, ok, problem
from hookmill.settings import Settings

SECONDS_MAX: Final = 60.0
"""No check begins later."""
PAUSES_SECONDS: Final = (8.0, 8.0)
"""The pauses in a slow body, which may take 30 seconds in all."""

SLOW_BODY: Final = "slow body"

_Check = Callable[[Deployment], Iterator[Finding]]


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
    """The names of the checks to make, besides TLS and the first delivery; None for all."""


def examine_through(
    settings: Settings, url: str, options: Options, report: Callable[[Finding], None] = lambda _: None
) -> Examination:
    """Check a deployment with temporary webhooks of the installation that the settings name.

    They are removed in any case. `report` is called with each finding as soon as it is known. Raises `Invalid` for an
    unusable URL, `Conflict` if no temporary webhook can be created, and like `open_store`.
    """
    origin = Origin.of(url)
    verifying_tls = tls_context(options.ca_file)
    findings: list[Finding] = []
    not_checked: list[str] = []
    with (
        _stopping_at_sigterm(),
        closing(open_store(settings)) as store,
        temporary_webhooks(settings, store, options.factory) as installation,
    ):
        # With an invalid certificate, which is reported, the other checks are still useful.
        deployment = Deployment(origin, installation, tls=tls_context(verifies=False), seconds=SECONDS_MAX)
        all_checks = _checks(options, partial(checks.check_tls, tls=verifying_tls, http_port=options.http_port))
        for name, (check, text) in all_checks.items():
            arrives = not any(finding.check == "delivery" and finding.status is not Status.OK for finding in findings)
            if not arrives or deployment.deadline.remaining <= 0:
                not_checked.append(name)
                continue
            for result in _results_of(name, check, text, deployment):
                finding = result.of_check(name)
                findings.append(finding)
                report(finding)
    return Examination(findings=tuple(findings), not_checked=tuple(not_checked))


def _checks(options: Options, check_tls: _Check) -> dict[str, tuple[_Check, str]]:
    """The checks to make by name, each with its text if it finds nothing. The first two are always made."""
    slow_text = f"a body that took {sum(options.pauses_seconds):g} s arrived unchanged"
    named: dict[str, tuple[_Check, str]] = {
        "TLS": (check_tls, ""),
        "delivery": (checks.check_delivery, "a delivery was answered 202 and recorded"),
        "body": (checks.check_body, "bodies with CRLF, UTF-8 and escapes, and chunked bodies, arrived unchanged"),
        "large body": (checks.check_large_body, "bodies of 262,144 bytes arrived unchanged"),
        "firewall": (checks.check_firewall, "texts that look like attacks, and no User-Agent, were accepted"),
        "headers": (checks.check_headers, "signed deliveries were verified, and unusual headers were passed"),
        "path": (checks.check_path, "paths and queries arrive as they were sent, without normalization"),
        "responses": (checks.check_responses, "the responses 202, 400, 401, 404 and 405 arrive as Hookmill wrote them"),
        "client address": (checks.check_client_address, ""),
        SLOW_BODY: (partial(checks.check_slow_body, pauses_seconds=options.pauses_seconds), slow_text),
    }
    only = options.only
    return {
        name: check
        for name, check in named.items()
        if only is None or name in {"TLS", "delivery"} or name in only
    }  # fmt: skip


def _results_of(name: str, check: _Check, text: str, deployment: Deployment) -> Iterator[Finding]:
    """The findings of the check, or that it found nothing. An error is a problem."""
    has_finding = False
    try:
        for finding in check(deployment):
            has_finding = True
            yield finding
    except NoResponse as error:
        yield problem(f"{deployment.origin} {error}", advice.SLOW_BODY if name == SLOW_BODY else advice.REACH)
    except HookmillError as error:
        yield problem(str(error), "")
    else:
        if text and not has_finding:
            yield ok(text)


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
