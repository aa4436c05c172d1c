"""Tests that show the requirements. Each test names those that it shows, by their ids in `requirements.py`."""

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from typing import Final, TypeVar

from tests.spec.requirements import REQUIREMENTS

Test = TypeVar("Test", bound=Callable[..., object])

SHOWN: Final[defaultdict[str, set[str]]] = defaultdict(set)
"""The tests of each requirement, by its id. It contains the tests of the modules that have been imported."""


def shows(*ids: str) -> Callable[[Test], Test]:
    """Mark a test that shows these requirements. Raises `ValueError` if no requirement has such an id."""
    unknown = [each for each in ids if each not in REQUIREMENTS]
    if unknown:
        raise ValueError(f"No requirement has the id {unknown[0]!r}. The ids are in tests/spec/requirements.py.")

    def mark(test: Test) -> Test:
        for each in ids:
            SHOWN[each].add(f"{test.__module__.rpartition('.')[2]}.{test.__name__}")
        return test

    return mark


def shown_by_every_module() -> dict[str, set[str]]:
    """The tests of each requirement in the whole suite, even if pytest runs only a part of it."""
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("test_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return dict(SHOWN)
