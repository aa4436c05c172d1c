"""The networks from which a webhook accepts deliveries: how they are written, and the check of a client's address."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, collapse_addresses, ip_address, ip_network
from typing import Final, TypeVar

from hookmill.domain.errors import Fault, Invalid

NETWORKS_MAX: Final = 64
NETWORK_CHARACTERS_MAX: Final = 49
"""An IPv6 address with an embedded IPv4 address and a prefix length has at most 49 characters."""

EVERY_CLIENT_IS_THE_PROXY: Final = (
    "A proxy seems to be in front of the service, and trusted_proxies is not set. So every delivery seems to come from "
    "the proxy's address. Set trusted_proxies to the network of the proxy."
)
"""A warning for webhooks with allowed networks."""

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_SameVersion = TypeVar("_SameVersion", IPv4Network, IPv6Network)

_ADDRESS_AND_PREFIX: Final = re.compile(r"([0-9A-Fa-f:.]{2,45})(?:/([0-9]{1,3}))?\Z")
_MAPPED_PREFIX_BITS: Final = 96
"""An IPv4 address in IPv6 form (`::ffff:192.0.2.7`) has 96 bits before the IPv4 address."""


def is_loopback(host: str | None) -> bool:
    """Whether only this machine can reach the name or the address."""
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def usable_networks(texts: Sequence[str]) -> tuple[str, ...]:
    """The networks in their normal form, sorted, without repetitions. Raises `Invalid`, with pointers to the texts."""
    if len(texts) > NETWORKS_MAX:
        raise Invalid(
            f"There are {len(texts)} networks, and a webhook can have {NETWORKS_MAX}. Combine some of them.", pointer=""
        )
    networks: dict[str, Network] = {}
    faults: list[Fault] = []
    for index, text in enumerate(texts):
        try:
            network = _parse(text)
        except Invalid as error:
            faults += error.faults_at(f"/{index}")
        else:
            networks[_normal_form(network)] = network
    if faults:
        raise Invalid.at(faults)
    return tuple(
        sorted(networks, key=lambda text: (networks[text].version, networks[text].network_address.packed, text))
    )


def _parse(text: str) -> Network:
    """The network. Raises `Invalid`."""
    shown = repr(text[:NETWORK_CHARACTERS_MAX])
    match = _ADDRESS_AND_PREFIX.match(text)
    try:
        if match is None:
            raise ValueError(text)
        address = ip_address(match[1])
        network = ip_network(text, strict=False)
    except ValueError:
        raise Invalid(
            f"{shown} is not a network. Write an address with the length of its prefix, such as 192.0.2.0/24 or "
            "2001:db8::/32, or an address alone."
        ) from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped and network.prefixlen >= _MAPPED_PREFIX_BITS:
        ipv4_network = ip_network(f"{address.ipv4_mapped}/{network.prefixlen - _MAPPED_PREFIX_BITS}", strict=False)
        raise Invalid(f"{shown} is an IPv4 network in IPv6 form. Write {_normal_form(ipv4_network)}.")
    if address != network.network_address:
        raise Invalid(
            f"{shown} has bits after its prefix of {network.prefixlen} bits. Write {network} for the whole network, "
            f"or {address} for this address alone."
        )
    return network


def _normal_form(network: Network) -> str:
    """The address alone if the network has only one, else the address with the length of the prefix."""
    return str(network.network_address) if network.num_addresses == 1 else str(network)


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of addresses as integers: sorted, and without overlaps. `firsts` and `lasts` have the same length."""

    firsts: tuple[int, ...]
    lasts: tuple[int, ...]

    def includes(self, number: int) -> bool:
        index = bisect_right(self.firsts, number) - 1
        return index >= 0 and number <= self.lasts[index]


@dataclass(frozen=True, slots=True)
class AllowedNetworks:
    """Networks, prepared for a check that takes less than a microsecond, whatever their number."""

    ipv4: _Ranges
    ipv6: _Ranges

    @classmethod
    def of(cls, texts: Iterable[str]) -> "AllowedNetworks":
        """`texts` are networks as `usable_networks` returns them."""
        networks = [ip_network(text) for text in texts]
        return cls(
            ipv4=_ranges(network for network in networks if isinstance(network, IPv4Network)),
            ipv6=_ranges(network for network in networks if isinstance(network, IPv6Network)),
        )

    def includes(self, address: Address) -> bool:
        ranges = self.ipv4 if isinstance(address, IPv4Address) else self.ipv6
        return ranges.includes(int(address))


def _ranges(networks: Iterable[_SameVersion]) -> _Ranges:
    separate_networks = list(collapse_addresses(networks))
    return _Ranges(
        firsts=tuple(int(network.network_address) for network in separate_networks),
        lasts=tuple(int(network.broadcast_address) for network in separate_networks),
    )
