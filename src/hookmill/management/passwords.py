"""Passwords: argon2id, and no more than two of them judged at a time."""

import threading
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from hookmill.domain.errors import Invalid

CHARACTERS_MIN: Final = 12
CHARACTERS_MAX: Final = 256
_AT_ONCE: Final = 2

# What RFC 9106 recommends where memory is short, in one lane: 64 MiB, three passes.
_HASHER: Final = PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=1)
# Of 32 random bytes that nobody kept, at the cost above. To hash one here would make the first sign-in
# take twice as long.
_NOBODYS: Final = "$argon2id$v=19$m=65536,t=3,p=1$Mwk+MrsDDKi4Ua6c1/CVzA$riUcZCVnWycEmQycr+lzzu2lD4giSfkUbYRRZiJ3BhY"
# A flood of guesses must not take the machine from the deliveries.
_TURN: Final = threading.BoundedSemaphore(_AT_ONCE)


def hashed(password: str) -> str:
    """What is kept of a password. Raises `Invalid` for one that is too short, too long, or all one character."""
    if len(password) < CHARACTERS_MIN or len(set(password)) < 4:
        raise Invalid(
            f"The password has fewer than {CHARACTERS_MIN} characters, or hardly any different ones. "
            "Choose a longer one: a few words do well.",
            pointer="/password",
        )
    if len(password) > CHARACTERS_MAX:
        raise Invalid(
            f"The password has more than {CHARACTERS_MAX} characters. Choose a shorter one.", pointer="/password"
        )
    with _TURN:
        return _HASHER.hash(password.encode("utf-8", "surrogatepass"))


def is_right(password: str, kept: str | None) -> bool:
    """Whether this is the password that is kept. Takes as long where none is: who has an account stays unknown."""
    with _TURN:
        try:
            _HASHER.verify(kept or _NOBODYS, password[:CHARACTERS_MAX].encode("utf-8", "surrogatepass"))
        except (VerificationError, InvalidHashError):
            return False
    return kept is not None
