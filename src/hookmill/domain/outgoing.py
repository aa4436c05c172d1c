"""Which addresses the service may connect to on behalf of a user, who chose the host's name.

Without this check, a user could reach services behind the firewall through this service (SSRF).
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from hookmill.domain.networks import Address, AllowedNetworks

_NOT_PUBLIC: Final = AllowedNetworks.of(
    (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        # Azure's host service. The metadata services of other clouds are in the private and special networks here.
        "168.63.129.16",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        # The protocol assignments, with Teredo, whose addresses contain others.
        "2001::/23",
        "2001:db8::/32",
        # 6to4, whose addresses contain an IPv4 address.
        "2002::/16",
        "3fff::/20",
    )
)
"""Special networks of the registries of IANA. A list of our own does not depend on the version of Python."""
_GLOBAL_UNICAST: Final = AllowedNetworks.of(["2000::/3"])
"""The only IPv6 addresses that are assigned to the public Internet."""
_NAT64: Final = AllowedNetworks.of(["64:ff9b::/96"])


def is_public(address: Address) -> bool:
    """Whether the address belongs to the public Internet: not to a private or reserved network.

    An interface of this host may have it nevertheless: see `hookmill.outbound.addresses`.
    """
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        embedded = embedded_ipv4(address)
        if embedded is not None:
            return is_public(embedded)
        return _GLOBAL_UNICAST.includes(address) and not _NOT_PUBLIC.includes(address)
    return not _NOT_PUBLIC.includes(address)


def embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address to which packets for this IPv6 address go; None if they go to no IPv4 address."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if _NAT64.includes(address):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def parsed_address(text: str) -> Address | None:
    """The address; None if the text is a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None
