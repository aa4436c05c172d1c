"""Addresses within the API. They begin at its root and name no host: what a client says of the host is not believed."""

from typing import Final
from urllib.parse import quote

PREFIX: Final = "/api/v1"


def at(*segments: str) -> str:
    """The address of a thing, each of its segments escaped by itself."""
    return "/".join((PREFIX, *(quote(segment, safe="") for segment in segments)))
