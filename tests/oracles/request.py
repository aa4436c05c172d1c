"""One webhook as a provider sends it, and what the adapters of the SDKs share."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import time_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A request and what it is judged by: the secret as its user pastes it, and the time in seconds since 1970."""

    secret: str
    headers: dict[str, str]
    body: bytes
    url: str
    at: int

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def lowered(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def header(self, name: str) -> str:
        """However its name is spelled; empty when it is absent."""
        return self.lowered.get(name.lower(), "")


class Signs(Protocol):
    """Makes the request that a provider would send at `at`. What is signed inside the body comes back inside it."""

    def __call__(self, secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given: ...


def moment(at: int) -> AbstractContextManager[object]:
    """The clock stands at `at`. Import an SDK before this: what it makes while being imported may need a real clock."""
    return time_machine.travel(at, tick=False)


def refused(refusal: ValueError) -> bool:
    """False for a plain ValueError, by which some SDKs refuse. One of its kinds is another mistake, and goes on."""
    if type(refusal) is not ValueError:
        raise refusal
    return False
