"""The tests of the verifier would notice a bug in it."""

import gc
import sys
from collections.abc import Iterator

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from cryptography.hazmat.primitives.asymmetric import rsa

from hookmill.domain.signatures.key import RSA_BITS_MIN
from tests.domain.signatures.mutants import MUTANTS, Mutant, is_noticed

RSA_KEYS = 4
"""As many as the tests make in one run."""


@pytest.fixture(scope="module", autouse=True)
def lighter_children() -> Iterator[None]:
    """For each bug a child loads the tests again, and runs them up to the first that notices it."""
    keys = [rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS_MIN) for _ in range(RSA_KEYS)]
    generate = rsa.generate_private_key

    def key_made_before(public_exponent: int, key_size: int) -> rsa.RSAPrivateKey:
        return keys.pop() if key_size == RSA_BITS_MIN and keys else generate(public_exponent, key_size)

    with pytest.MonkeyPatch.context() as patch:
        # Nobody reads what the tests say there: pytest need not rewrite their asserts again.
        patch.setattr(
            sys, "meta_path", [each for each in sys.meta_path if not isinstance(each, AssertionRewritingHook)]
        )
        # What a child takes of these is still there for the next one.
        patch.setattr(rsa, "generate_private_key", key_made_before)
        # What is there before is no garbage of theirs.
        gc.freeze()
        yield
        gc.unfreeze()


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_bug_in_the_verifier_is_noticed(mutant: Mutant) -> None:
    assert is_noticed(mutant)


def test_without_a_bug_nothing_is_noticed() -> None:
    no_bug = Mutant("verify", "SIGNATURE_BYTES_MAX: Final = 8192", "SIGNATURE_BYTES_MAX: Final = 8_192")

    assert not is_noticed(no_bug), "the tests that should notice bugs fail without one; mend those first"
