"""Checks of the host: versions, the limit of open files, and the port."""

import errno
import platform
import resource
import socket
from collections.abc import Iterator
from typing import Final

from hookmill import __version__
from hookmill.app.doctor.exchange import Connection, NoResponse, Origin, Response, request_head
from hookmill.app.open_files import CONNECTIONS_MAX, FILES_MIN, FILES_RESERVED
from hookmill.build import build_id
from hookmill.domain.finding import Finding, ok, problem, warning
from hookmill.outbound.proxies import proxies_in_environment
from hookmill.settings import Settings
from hookmill.store.inspection import sqlite_version

FILES_WARNED: Final = 1_024
"""Below this limit, a burst of a few hundred clients makes others wait."""
LOCAL_SECONDS: Final = 4.0
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - looked up, not bound


def check_version() -> Iterator[Finding]:
    yield ok(
        f"Hookmill {__version__} (build {build_id()}), Python {platform.python_version()}, SQLite {sqlite_version()}, "
        f"{platform.system()} {platform.release()}",
    )


def check_open_files() -> Iterator[Finding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = CONNECTIONS_MAX + FILES_RESERVED if hard == resource.RLIM_INFINITY else hard
    advice = "Raise the limit: `ulimit -n 4096` in the shell, or LimitNOFILE=4096 in the service's systemd unit."
    if limit < FILES_MIN:
        yield problem(f"a process may open {limit} files, and the service needs {FILES_MIN}", advice)
        return
    connections = min(CONNECTIONS_MAX, limit - FILES_RESERVED)
    text = f"a process started from here may open {limit:,} files, and serve {connections:,} connections"
    yield warning(text, advice) if limit < FILES_WARNED else ok(text)


def check_proxies() -> Iterator[Finding]:
    """Name the proxies that requests to other hosts use."""
    for proxy, text in proxies_in_environment():
        if proxy is None:
            yield problem(text.removesuffix("."), "See docs/outgoing.md for what uses proxies.")
        else:
            yield ok(f"requests to other hosts may use the proxy {proxy} of {text}")


def check_port(settings: Settings) -> Iterator[Finding]:
    place = f"{settings.host} port {settings.port}"
    try:
        ready = _get(settings, "/readyz")
    except NoResponse as error:
        yield _finding_without_answer(settings, error)
        return
    if ready.status == 200 and ready.body == b"ok\n":
        yield ok(f"a Hookmill answers at {place}, and is ready")
    elif ready.status == 503 and ready.body == b"not ready\n":
        yield problem(
            f"the Hookmill at {place} is not ready: its database does not answer or accepts no writes, its disk is "
            "full, or it has just started",
            "Look at the other results, and into the service's log.",
        )
    else:
        yield problem(
            f"another program listens at {place}",
            "Stop that program, or set HOOKMILL_PORT.",
        )


def _finding_without_answer(settings: Settings, no_response: NoResponse) -> Finding:
    place = f"{settings.host} port {settings.port}"
    # A starting service retries for `PORT_SECONDS`, so this probe does not disturb it.
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return problem(
                f"{place} is in use, but {no_response}",
                "If this is Hookmill, look into its log. Otherwise stop the other program, or set HOOKMILL_PORT.",
            )
        advice = {
            errno.EACCES: "Ports below 1024 need a privilege: set HOOKMILL_PORT, and put a proxy in front.",
            errno.EADDRNOTAVAIL: "Set HOOKMILL_HOST to an address of this host, such as 127.0.0.1.",
        }.get(error.errno or 0, "Set HOOKMILL_HOST and HOOKMILL_PORT to another address.")
        return problem(f"the service can't listen at {place}: {error.strerror}", advice)
    advice = "Start it: hookmill serve"
    if settings.on_postgres:
        advice += ". A host on which only `hookmill worker` runs does not need it."
    return warning(f"nothing listens at {place}: the service does not run here", advice)


def _get(settings: Settings, path: str) -> Response:
    origin = Origin(scheme="http", host=_ANY_ADDRESS.get(settings.host, settings.host), port=settings.port, path="")
    with Connection(origin, LOCAL_SECONDS) as connection:
        connection.send(request_head("GET", path, [("Host", origin.authority), ("Connection", "close")]))
        return connection.response("GET")
