"""Paths of the API's resources. `Location` headers use them without a host: a client may send any `Host`."""

from typing import Final
from urllib.parse import quote

PREFIX: Final = "/api/v1"


def api_path(*segments: str) -> str:
    """The path of a resource. Each segment is escaped on its own."""
    return "/".join((PREFIX, *(quote(segment, safe="") for segment in segments)))
