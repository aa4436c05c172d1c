"""Detects ambiguous requests, which the service rejects.

A proxy in front of the service could find another end or another host in such a request (request smuggling).
"""

from typing import Final

from hookmill.web.asgi import Scope

FRAMING_HEADERS: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
"""The headers that determine where a request ends, and to which host it goes. Each must not be repeated."""


def is_ambiguous(scope: Scope) -> bool:
    """Whether a framing header is repeated, the framing headers contradict each other, or HTTP/1.1 has no Host."""
    framing_headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in FRAMING_HEADERS:
            if name in framing_headers:
                return True
            framing_headers[name] = value
    return is_contradictory(framing_headers, scope)


def is_contradictory(headers: dict[bytes, bytes], scope: Scope) -> bool:
    """Like `is_ambiguous`, for headers of which the caller has checked that no framing header is repeated."""
    transfer_encoding = headers.get(b"transfer-encoding")
    if transfer_encoding is not None and (
        transfer_encoding.strip().lower() != b"chunked" or b"content-length" in headers
    ):
        return True
    # Instead of a missing Host, the server passes on an empty one.
    return not headers.get(b"host") and scope.get("http_version") == "1.1"
