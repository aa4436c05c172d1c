"""Checks of the destinations of results."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from hookmill.app import now_us
from hookmill.app.tls import client_context
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.finding import Finding, listed, ok, problem, warning
from hookmill.results.delivery import ResultDelivery
from hookmill.settings import Settings

CHECK_SECONDS: Final = 60.0
"""It exceeds the time for `DESTINATIONS_MAX` destinations."""
DESTINATION_SECONDS: Final = 10.0
"""How long one destination may take to answer."""
CONNECTIONS_AT_ONCE: Final = 8
DESTINATIONS_MAX: Final = 32
_ADVICE: Final = (
    "Check its settings, the variable with its credential, the firewall and the certificate. results_ca_file trusts a "
    "certificate authority of your own."
)


def check_destinations(settings: Settings) -> Iterator[Finding]:
    """Whether each destination can be reached, and whether GitHub or Gitea accepts its credential. Nothing is sent."""
    names = sorted(settings.destinations)
    delivery = ResultDelivery(
        settings.destinations, tls=partial(client_context, settings.results_ca_file, "results_ca_file"), now_us=now_us
    )

    def finding(name: str) -> Finding:
        if not settings.performs_runs and settings.destinations[name].secret() is None:
            return warning(
                f"the destination {name} was not checked, because its variable is not set",
                "performs_runs is off, so check it on the hosts of the workers.",
            )
        try:
            return ok(f"the destination {name} {delivery.check(name, DESTINATION_SECONDS)}")
        except DestinationUnavailable as error:
            return problem(f"the destination {name}: {str(error).removesuffix('.')}", _ADVICE)

    # Daemon threads aren't needed: each connection has a deadline.
    with ThreadPoolExecutor(CONNECTIONS_AT_ONCE) as executor:
        yield from executor.map(finding, names[:DESTINATIONS_MAX])
    if others := names[DESTINATIONS_MAX:]:
        yield warning(
            f"only {DESTINATIONS_MAX} destinations were checked, and not {listed(others)}",
            "Start a run with a result for each of the others.",
        )
