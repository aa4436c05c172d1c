"""Decides which values of the Host header the dashboard and the API accept.

This prevents DNS rebinding: an attacker's domain resolves to this service's address, so that the attacker's pages have
the same origin as the service. Such a domain is registered, so it has a dot and is no IP address.
"""

# `encodings.idna` is imported before any process forks. Otherwise, `encode("idna")` would import it later. If a process
# forked during that import, the child would wait forever for the import lock of a thread that it does not have.
import encodings.idna  # noqa: F401
import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_NAME_WITHOUT_DOT: Final = re.compile(r"[a-z0-9_-]+")


class OwnHosts:
    """The host names that this service accepts."""

    def __init__(self, public_url: str) -> None:
        name = (urlsplit(public_url).hostname or "").lower()
        self._names = {name}
        try:
            # Browsers send an international name in its ASCII form (IDNA).
            self._names.add(name.encode("idna").decode())
        except UnicodeError:
            pass

    def includes(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether the request's Host is the public URL's name, an IP address, or a name without a dot.

        A name without a dot is localhost or a container's. A request without Host is accepted, because every browser
        sends a Host.
        """
        host = next((value for name, value in headers if name == b"host"), b"").decode("latin-1").lower()
        name = _without_port(host)
        return not host or name in self._names or _NAME_WITHOUT_DOT.fullmatch(name) is not None or _is_address(name)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and (not port or port.isdecimal()) else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True
