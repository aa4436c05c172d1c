"""Secret values: their valid forms, and how the service generates them."""

import base64
import re
from dataclasses import dataclass
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.domain.text import trimmed_text

GENERATED_BYTES: Final = 32
RUN_SECRET_CHARACTERS_MIN: Final = 8
"""Shorter values could not be masked in the output of runs: they may be part of any word."""
SECRET_CHARACTERS_MIN: Final = 4
"""Shorter secrets of webhooks are refused. Senders of in-house tools have short ones, so most only cause a warning."""
SECRET_CHARACTERS_GOOD: Final = 16
_URL_SAFE: Final = re.compile(r"[A-Za-z0-9\-._~]{1,512}\Z")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class SecretValue:
    """A credential in memory. Printing it does not show the value; only `reveal` returns it."""

    _value: str

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "SecretValue(…)"

    __str__ = __repr__


def generate_value(entropy: bytes) -> SecretValue:
    """256 random bits as letters, digits, `-` and `_`, which are valid in a header and in a URL's path."""
    return SecretValue(base64.urlsafe_b64encode(entropy[:GENERATED_BYTES]).rstrip(b"=").decode())


def is_url_safe(value: SecretValue) -> bool:
    """Whether the value can be a segment of a URL's path without escapes: at most 512 characters."""
    return bool(_URL_SAFE.match(value.reveal())) and value.reveal() not in {".", ".."}


def usable_secret_name(name: str) -> str:
    """`name`. Raises `Invalid` unless it is a letter followed by up to 63 letters, digits and underscores."""
    if _NAME.match(name):
        return name
    # The message does not repeat the name: it may be the secret itself.
    raise Invalid("This can't name a team secret. Use a letter, then letters, digits and _ (64 at most).")


def suggested_secret_name(webhook_name: str) -> str:
    """`WEBHOOK_<NAME>_SECRET`, with the name shortened if it is too long."""
    middle = re.sub(r"[^A-Z0-9]+", "_", webhook_name.upper()).strip("_") or "UNNAMED"
    return f"WEBHOOK_{middle[:48].rstrip('_')}_SECRET"


def problem_of_variable(value: str | None) -> str | None:
    """Why this value of a secret's variable is unusable: it `is not set` or `is empty`. Otherwise None."""
    if value is None:
        return "is not set"
    return None if trimmed_text(value) else "is empty"


def usable_secret(value: str, *, characters_min: int = SECRET_CHARACTERS_MIN) -> SecretValue:
    """A secret that a person supplied, without the white space around it.

    Raises `Invalid` for an empty secret, with which anyone could authenticate; for a secret with a NUL, because HMAC
    pads keys with NULs; and for a secret with too few characters, or with more than 4,096.
    """
    trimmed = trimmed_text(value)
    if not trimmed:
        raise Invalid("The secret is empty. Paste the value that the sender signs or authenticates with.")
    if "\x00" in trimmed or len(trimmed) > 4096:
        raise Invalid("The secret contains a NUL or is longer than 4,096 characters. Check the text that you entered.")
    if len(trimmed) < characters_min:
        raise Invalid(
            f"The secret has fewer than {characters_min} characters, so it could be guessed. Use a long random one; "
            "Hookmill generates one if you supply none."
        )
    return SecretValue(trimmed)


def is_short_secret(value: SecretValue) -> bool:
    """Whether a person should be warned that the secret could be guessed. Some senders permit short ones only."""
    return len(value.reveal()) < SECRET_CHARACTERS_GOOD


def usable_secret_for_runs(value: str) -> SecretValue:
    """Like `usable_secret`. Also raises `Invalid` for a secret that is too short to be masked."""
    secret = usable_secret(value, characters_min=1)
    if len(secret.reveal()) < RUN_SECRET_CHARACTERS_MIN:
        raise Invalid(
            f"A secret for runs must have at least {RUN_SECRET_CHARACTERS_MIN} characters. Shorter values can't be "
            "masked in the output of runs."
        )
    return secret
