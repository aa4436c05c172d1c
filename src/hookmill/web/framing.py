"""Detects ambiguous requests, which the service rejects.

A proxy in front of the service could determine the end or the host of such a request differently (request smuggling).
"""

from typing import Final

from hookmill.web.asgi import Scope

FRAMING: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
"""The headers that may occur only once."""


def is_ambiguous(scope: Scope) -> bool:
    """Whether a framing header occurs more than once, or the framing headers contradict each other."""
    framing: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in FRAMING:
            if name in framing:
                return True
            framing[name] = value
    return is_contradictory(framing, scope)


def is_contradictory(headers: dict[bytes, bytes], scope: Scope) -> bool:
    """Whether the framing headers contradict each other, if each occurs at most once."""
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.strip().lower() != b"chunked" or b"content-length" in headers):
        return True
    # The server replaces a missing Host by an empty one.
    return not headers.get(b"host") and scope.get("http_version") == "1.1"
