"""The address of a request's client: that of the connection, or the address that a trusted proxy reports."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network
FORWARDED_HOPS_MAX = 32


def client_address(peer: str, forwarded_for: bytes | None, trusted_proxies: Sequence[Network]) -> str | None:
    """The address nearest to this service that is not a trusted proxy; None if the connection has no address.

    `peer` is the connection's address. `X-Forwarded-For` is read from the right, as far as trusted proxies added
    entries. Clients can forge the entries further left. Reading stops at an entry that is not an address. If all
    addresses are trusted proxies, the leftmost one is returned.
    """
    nearest = _address(peer)
    if nearest is None:
        return None
    hops = (forwarded_for or b"").decode("latin-1").rsplit(",", FORWARDED_HOPS_MAX)
    while hops and _is_in(nearest, trusted_proxies):
        next_hop = _address(hops.pop().strip())
        if next_hop is None:
            break
        nearest = next_hop
    return str(nearest)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    # A socket that listens on IPv4 and IPv6 reports IPv4 clients as mapped addresses.
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def client_network(address: str | None) -> str:
    """The key by which clients are counted: the IPv4 address, or the first 64 bits of the IPv6 address.

    One client can use every IPv6 address with the same first 64 bits.
    """
    if address is None:
        return "unknown"
    parsed = ip_address(address)
    return address if parsed.version == 4 else parsed.packed[:8].hex()
