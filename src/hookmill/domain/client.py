"""The address of a request's client: that of the connection, or the address that a trusted proxy reports."""

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from hookmill.domain.networks import Address, Network

FORWARDED_FOR = b"x-forwarded-for"
FORWARDED_HOPS_MAX = 32
ADDRESS_CHARACTERS_MAX = 64
"""Longer texts are no addresses."""
_HOP = re.compile(
    r'(?P<quote>"?)(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)(?:%[^\]"]+)?\]|(?P<ipv4>[0-9.]+))(?::[0-9]{1,5})?(?P=quote)\Z'
)
"""An address with a port, in brackets or in quotes, as some proxies and RFC 7239 write it."""


def client_address(peer: str, forwarded_for: bytes | None, trusted_proxies: Sequence[Network]) -> str | None:
    """`client_ip` as text, for logs."""
    address = client_ip(peer, forwarded_for, trusted_proxies)
    return str(address) if address is not None else None


def client_ip(peer: str, forwarded_for: bytes | None, trusted_proxies: Sequence[Network]) -> Address | None:
    """The address nearest to this service that is not a trusted proxy; None if the connection has no address.

    `peer` is the connection's address. `X-Forwarded-For` is read from the right, as far as trusted proxies added
    entries. Clients can forge the entries further left. Reading stops at an entry that is not an address, such as
    `unknown`. If all addresses are trusted proxies, the leftmost one is returned.
    """
    nearest = _address(peer)
    if nearest is None:
        return None
    hops = (forwarded_for or b"").decode("latin-1").rsplit(",", FORWARDED_HOPS_MAX)
    while hops and _is_in(nearest, trusted_proxies):
        hop = hops.pop().strip()
        if not hop:
            # A list in a header may have empty elements.
            continue
        next_hop = _address(hop)
        if next_hop is None:
            break
        nearest = next_hop
    return nearest


def _address(text: str) -> Address | None:
    if len(text) > ADDRESS_CHARACTERS_MAX:
        return None
    if (hop := _HOP.match(text)) is not None:
        return _parsed(hop["ipv6"] or hop["ipv4"])
    # A zone is no part of the client's identity.
    return _parsed(text.partition("%")[0])


# Parsing takes several times as long as all the rest of a check whether a client is in a network.
@lru_cache(4_096)
def _parsed(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    # A socket that listens on IPv4 and IPv6 reports IPv4 clients as mapped addresses.
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def client_network(address: str | None) -> str:
    """The key by which clients are counted: the IPv4 address, or the first 64 bits of the IPv6 address.

    One client can use every IPv6 address with the same first 64 bits.
    """
    if address is None:
        return "unknown"
    parsed = ip_address(address)
    return address if parsed.version == 4 else parsed.packed[:8].hex()
