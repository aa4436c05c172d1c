"""What a factory may be called."""

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.factory import usable_factory_name


@pytest.mark.parametrize("name", [".", "..", " .. ", "\t.\n"])
def test_a_name_that_addresses_cannot_hold_is_refused(name: str):
    with pytest.raises(Invalid, match="its name is part of URLs"):
        usable_factory_name(name)


@pytest.mark.parametrize("name", ["...", ".git", "a..b", "%2e%2e", "../up", "/", "payments"])
def test_other_names_with_dots_are_usable(name: str):
    assert usable_factory_name(f" {name} ") == name


def test_a_name_that_is_none_is_refused_as_a_factorys():
    with pytest.raises(Invalid, match="A factory's name must have 1 to 100 characters"):
        usable_factory_name(" ")
