"""A delivery as a provider sends it, and helpers for the adapters of the SDKs."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import time_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedDelivery:
    """A delivery with the inputs of its verification: the secret as a user enters it, and the time."""

    secret: str
    headers: dict[str, str]
    body: bytes
    url: str
    at: int
    """The time of the verification, in seconds since 1970."""

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def headers_in_lower_case(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def header(self, name: str) -> str:
        """The header's value, empty if it is absent. The name is case-insensitive."""
        return self.headers_in_lower_case.get(name.lower(), "")


def frozen_clock(at: int) -> AbstractContextManager[object]:
    """Stop the clock at `at`. Import an SDK before: code that runs during the import may need the real clock."""
    return time_machine.travel(at, tick=False)


def require_plain_value_error(error: ValueError):
    """Raise the error again if it is of a subclass. Some SDKs report an invalid signature by a plain `ValueError`; an
    error of a subclass is a mistake of the test."""
    if type(error) is not ValueError:
        raise error
