"""Requests whose end, or whose host, a proxy in front may have understood differently. They are refused."""

from typing import Final

from hookmill.web.asgi import Scope

FRAMING: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
"""The headers that may come once only."""


def is_ambiguous(scope: Scope) -> bool:
    framing: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in FRAMING:
            if name in framing:
                return True
            framing[name] = value
    return is_contradictory(framing, scope)


def is_contradictory(headers: dict[bytes, bytes], scope: Scope) -> bool:
    """Whether headers that come once contradict each other."""
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.strip().lower() != b"chunked" or b"content-length" in headers):
        return True
    # The server turns a missing Host into an empty one.
    return not headers.get(b"host") and scope.get("http_version") == "1.1"
