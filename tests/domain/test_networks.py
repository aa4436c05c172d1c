"""Networks are written in one form, unclear ones are refused, and the check of an address agrees with `ipaddress`."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookmill.domain.errors import Invalid
from hookmill.domain.networks import NETWORKS_MAX, AllowedNetworks, usable_networks

NETWORKS = st.one_of(
    st.builds(
        lambda number, length: ip_network((number, length), strict=False), st.integers(0, 2**32 - 1), st.integers(0, 32)
    ),
    st.builds(
        lambda number, length: ip_network((number, length), strict=False),
        st.integers(2**32, 2**128 - 1),
        st.integers(0, 128),
    ),
)


@pytest.mark.parametrize(
    ("texts", "normal"),
    [
        ([], ()),
        (["192.0.2.7"], ("192.0.2.7",)),
        (["192.0.2.7/32"], ("192.0.2.7",)),
        (["192.0.2.0/24"], ("192.0.2.0/24",)),
        (["0.0.0.0/0", "::/0"], ("0.0.0.0/0", "::/0")),
        (["2001:0DB8:0::/32"], ("2001:db8::/32",)),
        (["2001:db8::1/128"], ("2001:db8::1",)),
        (["::fffe:0:0/95"], ("::fffe:0:0/95",)),
        (["2001:db8::/32", "9.0.0.0/8", "10.0.0.0/8", "9.0.0.0/8"], ("9.0.0.0/8", "10.0.0.0/8", "2001:db8::/32")),
        (["10.0.0.0/8", "10.0.0.0/16"], ("10.0.0.0/16", "10.0.0.0/8")),
    ],
)
def test_networks_get_one_form_and_one_order(texts, normal):
    assert usable_networks(texts) == normal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "10.1.2.3/8",
            "'10.1.2.3/8' has bits after its prefix of 8 bits. Write 10.0.0.0/8 for the whole network, or 10.1",
        ),
        ("2001:db8::1/32", "Write 2001:db8::/32 for the whole network, or 2001:db8::1 for this address alone."),
        ("::ffff:192.0.2.0/120", "'::ffff:192.0.2.0/120' is an IPv4 network in IPv6 form. Write 192.0.2.0/24."),
        ("::ffff:192.0.2.7", "is an IPv4 network in IPv6 form. Write 192.0.2.7."),
        ("::FFFF:0:0/96", "is an IPv4 network in IPv6 form. Write 0.0.0.0/0."),
        ("", "'' is not a network. Write an address with the length of its prefix, such as 192.0.2.0/24"),
        ("everyone", "'everyone' is not a network."),
        ("example.com", "is not a network."),
        ("192.0.2.0/33", "is not a network."),
        ("192.0.2.0/255.255.255.0", "is not a network."),
        ("192.0.2", "is not a network."),
        ("192.0.2.07", "is not a network."),
        ("192.0.2.0/24 ", "is not a network."),
        ("192.0.2.0/24\n", "is not a network."),
        ("fe80::1%eth0", "is not a network."),
        ("[2001:db8::1]", "is not a network."),
        ("192.0.2.7:443", "is not a network."),
        ("٣.0.0.0", "is not a network."),
        ("2001:db8::/129", "is not a network."),
        ("\ud83d", "is not a network."),
        ("x" * 1_000, "'xxxxx"),
    ],
)
def test_an_unclear_network_is_refused_with_advice(text, message):
    with pytest.raises(Invalid) as refused:
        usable_networks(["192.0.2.1", text])

    assert message in str(refused.value)
    assert len(str(refused.value)) < 300
    assert [fault.pointer for fault in refused.value.faults] == ["/1"]


def test_too_many_networks_are_refused():
    networks = [f"10.0.{number}.0/24" for number in range(NETWORKS_MAX)]

    assert len(usable_networks(networks)) == 64
    with pytest.raises(Invalid, match="There are 65 networks, and a webhook can have 64"):
        usable_networks([*networks, "192.0.2.7"])


@given(st.lists(NETWORKS, min_size=1, max_size=NETWORKS_MAX), st.data())
def test_the_check_agrees_with_each_network_alone(networks, data):
    texts = usable_networks([str(network) for network in networks if not _is_mapped(network)])
    allowed = AllowedNetworks.of(texts)
    edges = [
        type(network.network_address)(number)
        for network in networks
        for number in (int(network[0]), int(network[-1]), int(network[0]) - 1, int(network[-1]) + 1)
        if 0 <= number < 2**network.max_prefixlen
    ]
    address = data.draw(st.sampled_from(edges))

    assert allowed.includes(address) == any(address in ip_network(text) for text in texts)


def test_ipv4_and_ipv6_are_apart():
    allowed = AllowedNetworks.of(["0.0.0.0/0"])

    assert allowed.includes(IPv4Address("203.0.113.9"))
    assert not allowed.includes(IPv6Address("::cb00:7109"))
    assert not AllowedNetworks.of(["::/0"]).includes(ip_address("203.0.113.9"))


def _is_mapped(network) -> bool:
    return network.version == 6 and network.prefixlen >= 96 and network.network_address.ipv4_mapped is not None
