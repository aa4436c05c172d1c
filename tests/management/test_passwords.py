"""What a stolen database costs whoever guesses at the passwords in it, and what nobody learns from the time taken."""

import pytest

from hookmill.management import passwords

PASSWORD = "correct horse battery staple"
COST = "$argon2id$v=19$m=65536,t=3,p=1$"


@pytest.fixture(scope="module", autouse=True)
def quick_passwords() -> None:
    """Not here."""


def test_a_password_is_kept_as_argon2id_with_64_mib_and_three_passes():
    kept = passwords.hash_password(PASSWORD)

    assert kept.startswith(COST)
    assert passwords.is_correct_password(PASSWORD, kept)
    assert not passwords.is_correct_password(PASSWORD + ".", kept)


def test_verifying_an_unknown_members_password_takes_as_long():
    assert passwords._UNMATCHABLE_HASH.startswith(COST)
    # As long as what is kept of somebody's.
    assert len(passwords._UNMATCHABLE_HASH) == len(passwords.hash_password(PASSWORD))
    assert not passwords._HASHER.check_needs_rehash(passwords._UNMATCHABLE_HASH)
    assert not passwords.is_correct_password("", None)
