"""Which destinations a command in a sandbox may connect to."""

from ipaddress import ip_address

import pytest

from hookmill.domain.egress import Destination, EgressRules, parse_destination
from hookmill.domain.errors import Invalid
from hookmill.domain.outgoing import is_public


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("api.example.com:443", Destination("api.example.com", 443)),
        ("API.Example.COM.:443", Destination("api.example.com", 443)),
        ("192.0.2.7:8080", Destination("192.0.2.7", 8080)),
        ("[2001:DB8::0001]:443", Destination("2001:db8::1", 443)),
        ("api.example.com", None),
        ("api.example.com:0", None),
        ("api.example.com:65536", None),
        ("2001:db8::1:443", None),
        ("[api.example.com]:443", None),
        ("user@api.example.com:443", None),
        ("api..example.com:443", None),
        (".example.com:443", None),
        ("api.example.com:443\n", None),
        (":443", None),
    ],
)
def test_destination_is_a_host_and_a_port(text, destination):
    assert parse_destination(text) == destination


@pytest.mark.parametrize(
    ("text", "is_permitted"),
    [
        ("api.example.com:443", True),
        ("api.example.com:80", False),
        ("example.com:443", False),
        ("x.api.example.com:443", False),
        ("api.example.com.evil.example:443", False),
        ("a.example.org:443", True),
        ("a.b.example.org:443", True),
        ("example.org:443", False),
        ("evilexample.org:443", False),
        ("192.0.2.7:443", True),
        ("192.0.2.8:443", False),
    ],
)
def test_only_listed_destinations_are_permitted(text, is_permitted):
    rules = EgressRules.of(["api.example.com:443", "*.example.org:443", "192.0.2.7:443"])
    destination = parse_destination(text)

    assert destination is not None
    assert rules.permits(destination) is is_permitted


@pytest.mark.parametrize(
    ("host", "address", "is_permitted"),
    [
        ("api.example.com", "93.184.215.14", True),
        ("api.example.com", "192.168.1.1", False),
        ("api.example.com", "10.1.2.3", True),
        ("api.example.com", "10.2.0.1", False),
        ("127.0.0.1", "127.0.0.1", True),
    ],
)
def test_address_must_be_public_or_listed(host, address, is_permitted):
    rules = EgressRules.of(["api.example.com:443", "127.0.0.1:443"], ["10.1.0.0/16"])

    parsed = ip_address(address)
    assert rules.permits_address(Destination(host, 443), parsed, is_public=is_public(parsed)) is is_permitted


@pytest.mark.parametrize("text", ["api.example.com", "*:443", "*.192.0.2.7:443", "a.*.example.com:443", ""])
def test_unusable_destination_is_refused(text):
    with pytest.raises(Invalid, match="is no destination"):
        EgressRules.of([text])


def test_number_of_destinations_is_limited():
    with pytest.raises(Invalid, match="There are 65 destinations, and 64 are possible"):
        EgressRules.of([f"host-{number}.example.com:443" for number in range(65)])
