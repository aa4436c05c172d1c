"""Which destinations a command in a sandbox may connect to: how they are written, and the check of each connection."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.domain.networks import Address, AllowedNetworks, usable_networks
from hookmill.domain.outgoing import parsed_address

DESTINATIONS_MAX: Final = 64
HOST_CHARACTERS_MAX: Final = 253
WILDCARD: Final = "*."

_HOST_AND_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_.-]{1,253})):([0-9]{1,5})\Z")


@dataclass(frozen=True, slots=True)
class Destination:
    """A host in its normal form (a name in lower case, or an address), and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_destination(text: str) -> Destination | None:
    """The destination that the text names, such as `api.example.com:443`; None if it names none."""
    match = _HOST_AND_PORT.match(text)
    if match is None or not 1 <= int(match[3]) <= 65_535:
        return None
    host = (match[1] or match[2]).lower().removesuffix(".")
    address = parsed_address(host)
    if match[1] is not None and not isinstance(address, IPv6Address):
        return None
    if not host or ".." in host or host.startswith("."):
        return None
    return Destination(str(address) if address is not None else host, int(match[3]))


@dataclass(frozen=True, slots=True)
class EgressRules:
    """The destinations that a command may connect to."""

    destinations: frozenset[Destination]
    """A host that begins with `*.` stands for all names that end with the rest."""
    private_networks: AllowedNetworks
    """Addresses that are not public, and to which allowed names may lead nevertheless."""

    @classmethod
    def of(cls, destinations: Iterable[str], private_networks: Sequence[str] = ()) -> "EgressRules":
        """Raises `Invalid`."""
        parsed = [_parse_rule(text) for text in destinations]
        if len(parsed) > DESTINATIONS_MAX:
            raise Invalid(f"There are {len(parsed)} destinations, and {DESTINATIONS_MAX} are possible. Remove some.")
        return cls(frozenset(parsed), AllowedNetworks.of(usable_networks(private_networks)))

    def permits(self, destination: Destination) -> bool:
        if destination in self.destinations:
            return True
        # An address has no domain.
        if parsed_address(destination.host) is not None:
            return False
        labels = destination.host.split(".")
        return any(
            Destination(WILDCARD + ".".join(labels[count:]), destination.port) in self.destinations
            for count in range(1, len(labels))
        )

    def permits_address(self, destination: Destination, address: Address, *, is_public: bool) -> bool:
        """Whether the address may be used for a permitted destination.

        If it is not public, the rules must name this address, or a private network with it.
        """
        return is_public or destination.host == str(address) or self.private_networks.includes(address)


def _parse_rule(text: str) -> Destination:
    is_wildcard = text.startswith(WILDCARD)
    destination = parse_destination(text.removeprefix(WILDCARD))
    if destination is None or (is_wildcard and parsed_address(destination.host) is not None):
        raise Invalid(
            f"{text[:HOST_CHARACTERS_MAX]!r} is no destination. Write a host and a port, such as api.example.com:443 "
            "or *.example.com:443."
        )
    return Destination(WILDCARD + destination.host, destination.port) if is_wildcard else destination
