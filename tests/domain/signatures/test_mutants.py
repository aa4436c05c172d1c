"""The tests of the verifier would notice a bug in it."""

import pytest

from tests.domain.signatures.mutants import MUTANTS, Mutant, is_noticed


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_bug_in_the_verifier_is_noticed(mutant: Mutant) -> None:
    assert is_noticed(mutant)


def test_without_a_bug_nothing_is_noticed() -> None:
    no_bug = Mutant("verify", "SIGNATURE_BYTES_MAX: Final = 8192", "SIGNATURE_BYTES_MAX: Final = 8_192")

    assert not is_noticed(no_bug), "the tests that should notice bugs fail without one; mend those first"
