"""Only addresses of the public Internet are public, also in their IPv6 forms."""

from ipaddress import ip_address

import pytest

from hookmill.domain.outgoing import is_public

NOT_PUBLIC = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.255 169.254.0.1
    169.254.169.254 168.63.129.16 100.100.100.200 192.0.0.192 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.170
    192.0.2.1 192.88.99.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1
    239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1
    ::ffff:168.63.129.16 64:ff9b::168.63.129.16 ::ffff:169.254.169.254 ::ffff:0:8.8.8.8 64:ff9b::127.0.0.1
    64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8 100::1 2001::1 2001:0:808:808:: 2001:20::1
    2001:db8::1 2002:7f00:1:: 2002:808:808:: 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 2a00::1%eth0
    fec0::1 ff02::1 ff0e::1
""".split()
PUBLIC = """
    1.1.1.1 8.8.8.8 168.63.129.15 168.63.129.17 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255
    128.0.0.0 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0
    198.17.255.255 198.20.0.0 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:200::1 2001:4860:4860::8888
    2606:4700::1111 2a00::1
""".split()


@pytest.mark.parametrize(("addresses", "expected"), [(NOT_PUBLIC, False), (PUBLIC, True)], ids=["not public", "public"])
def test_address_is_public_or_not(addresses, expected):
    assert {address: is_public(ip_address(address)) for address in addresses} == dict.fromkeys(addresses, expected)
