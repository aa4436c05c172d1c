"""Paths of the API's resources. `Location` headers have no host, because a request's `Host` can't be trusted."""

from typing import Final
from urllib.parse import quote

PREFIX: Final = "/api/v1"


def api_path(*segments: str) -> str:
    """The path of a resource. Each segment is escaped separately."""
    return "/".join((PREFIX, *(quote(segment, safe="") for segment in segments)))
