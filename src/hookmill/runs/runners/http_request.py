"""One POST to the URL that an operator has configured: with a deadline, without redirects, with a capped response."""

import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

REQUEST_SECONDS: Final = 20.0
"""The time limit of one request, from the look-up of the host's name to the last byte of the response."""
RESPONSE_BYTES_MAX: Final = 65_536
"""A longer response is not read to its end."""
_CHUNK_BYTES: Final = 8_192


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL to which requests are sent. Its path and query may contain a token, so texts show only `origin`."""

    url: str

    @property
    def origin(self) -> str:
        """The URL's scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """There was no response. The reason is a sentence that contains neither the path nor the body."""

    reason: str


class PostRequest:
    """A POST in a thread of its own, so that the caller can do other work, or stop waiting.

    A look-up of a host's name can't be interrupted. Its thread may outlive the request, and ends with the look-up.
    """

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self._body = body
        self._deadline = time.monotonic() + REQUEST_SECONDS
        self._connection: HTTPConnection | None = None
        self._result: int | RequestFailed | None = None
        self._is_done = threading.Event()
        threading.Thread(target=self._send, name="http runner", daemon=True).start()

    def wait(self, seconds: float) -> int | RequestFailed | None:
        """The status of the response, or the reason why there is none. None if `seconds` are not enough.

        After the deadline, the result is `RequestFailed`.
        """
        self._is_done.wait(max(0.0, min(seconds, self._deadline - time.monotonic())))
        if self._is_done.is_set():
            return self._result
        if time.monotonic() < self._deadline:
            return None
        self.close()
        return self._too_slow()

    def wait_until_done(self) -> int | RequestFailed:
        while (result := self.wait(REQUEST_SECONDS)) is None:
            pass
        return result

    def close(self) -> None:
        """End the request early. The server may already have received it."""
        connection = self._connection
        if connection is not None and (open_socket := connection.sock) is not None:
            # Closing the descriptor would not wake the thread that waits for it.
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)

    def _send(self) -> None:
        try:
            self._result = self._exchange()
        finally:
            if self._connection is not None:
                self._connection.close()
            self._is_done.set()

    def _exchange(self) -> int | RequestFailed:
        origin = self._endpoint.origin
        parts = urlsplit(self._endpoint.url)
        connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        try:
            assert parts.hostname is not None
            self._connection = connection_class(parts.hostname, parts.port, timeout=REQUEST_SECONDS)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            # The platform may refuse the body before it has read it all. Its response arrives nevertheless.
            with suppress(BrokenPipeError, ConnectionResetError):
                self._connection.request("POST", target, self._body, dict(self._headers))
            response = self._connection.getresponse()
            self._read(response)
        except TimeoutError:
            return self._too_slow()
        except ssl.SSLError as error:
            return RequestFailed(f"{origin} failed the TLS handshake: {error.reason}.")
        except socket.gaierror:
            return RequestFailed(f"The host name of {origin} can't be resolved.")
        except (OSError, HTTPException, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            return RequestFailed(f"The request to {origin} failed: {reason or type(error).__name__}.")
        except MemoryError:
            return RequestFailed(f"The request to {origin} failed: Cannot allocate memory.")
        return response.status

    def _read(self, response: HTTPResponse) -> None:
        remaining = RESPONSE_BYTES_MAX
        while remaining > 0 and time.monotonic() < self._deadline:
            chunk = response.read1(min(_CHUNK_BYTES, remaining))
            if not chunk:
                return
            remaining -= len(chunk)

    def _too_slow(self) -> RequestFailed:
        return RequestFailed(f"{self._endpoint.origin} did not answer within {REQUEST_SECONDS:g} s.")
