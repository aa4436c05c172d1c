"""Which names a factory can have."""

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.factory import usable_factory_name


@pytest.mark.parametrize("name", [".", "..", " .. ", "\t.\n"])
def test_name_that_urls_cannot_contain_is_refused(name):
    with pytest.raises(Invalid, match="its name is part of URLs"):
        usable_factory_name(name)


@pytest.mark.parametrize("name", ["...", ".git", "a..b", "%2e%2e", "../up", "/", "payments"])
def test_other_names_with_dots_are_accepted(name):
    assert usable_factory_name(f" {name} ") == name


def test_blank_name_is_refused():
    with pytest.raises(Invalid, match="A factory's name must have 1 to 100 characters"):
        usable_factory_name(" ")
