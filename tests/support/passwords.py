"""Passwords that are hashed by the real algorithm at its least cost, as what is tested isn't how much that takes.

`tests/management/test_passwords.py` holds the cost. A service in a process of its own has it too.
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
