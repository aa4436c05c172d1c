"""The cost of guessing passwords from a stolen database, and of verifying those of unknown members."""

import pytest

from hookmill.management import passwords

PASSWORD = "correct horse battery staple"
COST = "$argon2id$v=19$m=65536,t=3,p=1$"


@pytest.fixture(scope="module", autouse=True)
def quick_passwords():
    """Replaces the fixture of the same name: these tests verify the real cost."""


def test_password_is_hashed_by_argon2id_with_64_mib_and_three_passes():
    password_hash = passwords.hash_password(PASSWORD)

    assert password_hash.startswith(COST)
    assert passwords.is_correct_password(PASSWORD, password_hash)
    assert not passwords.is_correct_password(PASSWORD + ".", password_hash)


def test_password_of_an_unknown_member_takes_as_long_to_verify():
    assert passwords._UNMATCHABLE_HASH.startswith(COST)
    assert len(passwords._UNMATCHABLE_HASH) == len(passwords.hash_password(PASSWORD))
    assert not passwords._HASHER.check_needs_rehash(passwords._UNMATCHABLE_HASH)
    assert not passwords.is_correct_password("", None)
