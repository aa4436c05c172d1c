"""Password hashes: argon2id, with at most two computations at the same time."""

import threading
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from hookmill.domain.errors import Invalid

CHARACTERS_MIN: Final = 12
CHARACTERS_MAX: Final = 256
_CONCURRENT_MAX: Final = 2

# RFC 9106's recommendation for little memory, with one lane: 64 MiB, three passes.
_HASHER: Final = PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=1)
# The hash of 32 discarded random bytes at the cost above. The first sign-in imports this module. If the hash were
# computed here, that sign-in would take twice as long.
_UNMATCHABLE_HASH: Final = (
    "$argon2id$v=19$m=65536,t=3,p=1$Mwk+MrsDDKi4Ua6c1/CVzA$riUcZCVnWycEmQycr+lzzu2lD4giSfkUbYRRZiJ3BhY"
)
# A flood of guesses must not take processor time and memory from deliveries.
_HASHING_SLOTS: Final = threading.BoundedSemaphore(_CONCURRENT_MAX)


def hash_password(password: str) -> str:
    """The hash to store. Raises `Invalid` for a password that is too short, too long or too uniform."""
    if len(password) < CHARACTERS_MIN or len(set(password)) < 4:
        raise Invalid(
            f"The password has fewer than {CHARACTERS_MIN} characters, or fewer than 4 different ones. "
            "Choose a longer one, such as a few words.",
            pointer="/password",
        )
    if len(password) > CHARACTERS_MAX:
        raise Invalid(
            f"The password has more than {CHARACTERS_MAX} characters. Choose a shorter one.", pointer="/password"
        )
    with _HASHING_SLOTS:
        return _HASHER.hash(password.encode("utf-8", "surrogatepass"))


def is_correct_password(password: str, password_hash: str | None) -> bool:
    """Whether the password, cut to `CHARACTERS_MAX`, has this hash.

    Without a hash, the result is False after the same time, so the time does not reveal whether an account exists.
    """
    with _HASHING_SLOTS:
        try:
            _HASHER.verify(
                password_hash or _UNMATCHABLE_HASH, password[:CHARACTERS_MAX].encode("utf-8", "surrogatepass")
            )
        except (VerificationError, InvalidHashError):
            return False
    return password_hash is not None
