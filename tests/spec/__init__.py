"""The contract, shown: every test here quotes the sentences that it shows."""

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from typing import Final, TypeVar

from tests.spec.sentences import quoted

Test = TypeVar("Test", bound=Callable[..., object])

SHOWN: Final[defaultdict[str, set[str]]] = defaultdict(set)
"""Which tests show a sentence, of the modules that have been imported."""


def spec(*words: str) -> Callable[[Test], Test]:
    """Marks a test that shows these sentences. Of each, some words are enough, if no other sentence holds them."""
    sentences = [quoted(each) for each in words]

    def mark(test: Test) -> Test:
        for sentence in sentences:
            SHOWN[sentence].add(f"{test.__module__.rpartition('.')[2]}.{test.__name__}")
        return test

    return mark


def shown_by_every_module() -> dict[str, set[str]]:
    """Which tests show a sentence, in the whole suite, whichever part of it is run."""
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("test_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return dict(SHOWN)
