"""A client's address in the log comes from the connection or from a trusted proxy, never from the client itself."""

from ipaddress import ip_network

import pytest

from hookmill.domain.client import client_address

PROXIES = [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", b"198.51.100.1", "203.0.113.9"),
        ("10.0.0.1", b"198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", b"1.1.1.1, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", b"198.51.100.1, 10.9.9.9 ,2001:db8::7", "198.51.100.1"),
        ("10.0.0.1", b"10.1.1.1, 10.2.2.2", "10.1.1.1"),
        ("::ffff:10.0.0.1", b"198.51.100.1", "198.51.100.1"),
        ("2001:db8::1", b"2001:4860::1", "2001:4860::1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", b"", "10.0.0.1"),
        ("10.0.0.1", b"198.51.100.1, unknown", "10.0.0.1"),
        ("10.0.0.1", b"<script>", "10.0.0.1"),
        ("10.0.0.1", b"198.51.100.1:4711", "10.0.0.1"),
        ("10.0.0.1", b"\xff\x00", "10.0.0.1"),
        ("10.0.0.1", b"," * 10_000, "10.0.0.1"),
        ("", b"198.51.100.1", None),
        ("no address", None, None),
    ],
)
def test_forwarded_address_counts_only_if_a_trusted_proxy_wrote_it(peer, forwarded, address):
    assert client_address(peer, forwarded, PROXIES) == address


def test_forwarded_address_is_ignored_without_trusted_proxies():
    assert client_address("10.0.0.1", b"198.51.100.1", []) == "10.0.0.1"
