"""The tests of the verifier fail if it has a bug."""

import gc
import sys
from collections.abc import Iterator

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from cryptography.hazmat.primitives.asymmetric import rsa

from hookmill.domain.signatures.key import RSA_BITS_MIN
from tests.domain.signatures.mutants import MUTANTS, Mutant, is_killed
from tests.support.counts import one_usually

RSA_KEYS = 4
"""The number of keys that the tests generate in one run."""


@pytest.fixture(scope="module", autouse=True)
def faster_child_processes() -> Iterator[None]:
    """Make the child processes faster. For each mutant, one loads the tests again, and runs them until one fails."""
    keys = [rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS_MIN) for _ in range(RSA_KEYS)]
    generate = rsa.generate_private_key

    def prepared_key(public_exponent: int, key_size: int) -> rsa.RSAPrivateKey:
        return keys.pop() if key_size == RSA_BITS_MIN and keys else generate(public_exponent, key_size)

    with pytest.MonkeyPatch.context() as patch:
        # The messages of failing asserts are not used in the children, so pytest need not rewrite the asserts.
        patch.setattr(
            sys, "meta_path", [each for each in sys.meta_path if not isinstance(each, AssertionRewritingHook)]
        )
        # Each child has its own copy of the list of keys.
        patch.setattr(rsa, "generate_private_key", prepared_key)
        # The garbage collector of a child need not examine the parent's objects.
        gc.freeze()
        yield
        gc.unfreeze()


@pytest.mark.parametrize("mutant", one_usually(12, MUTANTS), ids=str)
def test_bug_in_the_verifier_makes_a_test_fail(mutant: Mutant) -> None:
    assert is_killed(mutant)


def test_verifier_without_a_bug_makes_no_test_fail() -> None:
    equivalent = Mutant("verify", "SIGNATURE_BYTES_MAX: Final = 8192", "SIGNATURE_BYTES_MAX: Final = 8_192")

    assert not is_killed(equivalent), "some of these tests fail without a bug, so fix them first"
