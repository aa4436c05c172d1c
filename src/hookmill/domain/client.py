"""Who sent a request: the address that connected, or the one that a trusted proxy names."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network
FORWARDED_HOPS_MAX = 32


def client_address(peer: str, forwarded_for: bytes | None, trusted: Sequence[Network]) -> str | None:
    """The nearest address that is no trusted proxy's. None where even the connection's own is unknown.

    `X-Forwarded-For` is believed from the right, as far as trusted proxies wrote it: what stands further left is
    whatever the sender made up.
    """
    nearest = _address(peer)
    if nearest is None:
        return None
    hops = (forwarded_for or b"").decode("latin-1").rsplit(",", FORWARDED_HOPS_MAX)
    while hops and _is_in(nearest, trusted):
        further = _address(hops.pop().strip())
        if further is None:
            break
        nearest = further
    return str(nearest)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    # An IPv4 client of a socket that listens on both.
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def one_client(address: str | None) -> str:
    """Whom an address stands for. Of IPv6 everybody has a whole /64 to choose from."""
    if address is None:
        return "unknown"
    found = ip_address(address)
    return address if found.version == 4 else found.packed[:8].hex()
