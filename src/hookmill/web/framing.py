"""Ambiguous requests: a proxy may have read their end or their host differently. The service rejects them."""

from typing import Final

from hookmill.web.asgi import Scope

FRAMING: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
"""The headers that may occur only once."""


def is_ambiguous(scope: Scope) -> bool:
    framing: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in FRAMING:
            if name in framing:
                return True
            framing[name] = value
    return is_contradictory(framing, scope)


def is_contradictory(headers: dict[bytes, bytes], scope: Scope) -> bool:
    """Whether headers that occur only once contradict each other."""
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.strip().lower() != b"chunked" or b"content-length" in headers):
        return True
    # The server turns a missing Host into an empty one.
    return not headers.get(b"host") and scope.get("http_version") == "1.1"
