"""A host that somebody else chose must not be this host itself."""

import os
import subprocess
import sys
from ipaddress import ip_address

from hookmill.outbound.addresses import is_public_host

OWN_PUBLIC_ADDRESS = """
import ctypes, fcntl, socket, struct, sys
from ipaddress import ip_address
from hookmill.outbound.addresses import is_public_host

# New namespaces for users and for the network. As root, only the second one is needed.
assert ctypes.CDLL(None).unshare(int(sys.argv[1], 16)) == 0
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    address = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton("8.8.8.8"))
    fcntl.ioctl(control, 0x8916, struct.pack("16s16s", b"lo", address))
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))
for text in ("8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "9.9.9.9"):
    print(is_public_host(ip_address(text)))
"""


def test_public_address_of_this_host_is_refused():
    namespaces = "40000000" if os.geteuid() == 0 else "50000000"

    output = subprocess.check_output([sys.executable, "-c", OWN_PUBLIC_ADDRESS, namespaces], text=True)

    assert output.split() == ["False", "False", "False", "True"]


def test_address_of_another_host_is_public():
    assert is_public_host(ip_address("1.1.1.1"))
    assert not is_public_host(ip_address("168.63.129.16"))
