"""Lets tests hash passwords quickly: with the real algorithm, at its lowest cost.

`tests/management/test_passwords.py` verifies the real cost, which a service in a process of its own always has.
"""

from collections.abc import Iterator

import pytest
from argon2 import PasswordHasher

from hookmill.management import passwords


@pytest.fixture(scope="module", autouse=True)
def quick_passwords() -> Iterator[None]:
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_HASHER", quick)
        patch.setattr(passwords, "_UNMATCHABLE_HASH", quick.hash("nobody has this password"))
        yield
