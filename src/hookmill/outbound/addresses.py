"""Which addresses the service may connect to if somebody else chose the host's name."""

import socket
from ipaddress import IPv6Address

from hookmill.domain.networks import Address
from hookmill.domain.outgoing import embedded_ipv4, is_public


def is_public_host(address: Address) -> bool:
    """Whether the address belongs to the public Internet, and not to this host."""
    embedded = embedded_ipv4(address) if isinstance(address, IPv6Address) else None
    return is_public(address) and not _is_own(embedded or address)


def _is_own(address: Address) -> bool:
    """Whether an interface of this host has the address: only then, packets to it have it as their source, too."""
    try:
        with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            # Chooses the route, and sends nothing.
            probe.connect((str(address), 9))
            return str(probe.getsockname()[0]) == str(address)
    except OSError:
        # Without a route, no connection is possible either.
        return False
