"""HTTP connections on which a test sends any bytes, also those that no client library would send."""

import socket
import time
from dataclasses import dataclass
from typing import Self

_CHUNK_BYTES = 65_536


class ServerHangs(AssertionError):
    """The server neither answered nor closed the connection in time."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One final response. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class RawConnection:
    """One connection to the service. Reads raise `ServerHangs` at its deadline."""

    def __init__(self, port: int, *, seconds: float = 10.0):
        """The deadline is in this many seconds, for everything that happens on the connection."""
        self._deadline = time.monotonic() + seconds
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        self._has_ended = False
        self.interim_statuses: list[int] = []
        """The statuses of the 1xx answers so far."""

    @property
    def local_port(self) -> int:
        return int(self._socket.getsockname()[1])

    def send(self, data: bytes) -> bool:
        """Returns False if the server has already closed the connection."""
        self._socket.settimeout(self._remaining())
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def half_close(self):
        """Send no more, but still read."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def reset(self):
        """Reset the connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self._socket.close()

    def read_interim_status(self) -> int | None:
        """The status of the next answer if it is 1xx, otherwise None."""
        head = self._read_head()
        if head is None or not head[0] < 200:
            return None
        self.interim_statuses.append(head[0])
        return head[0]

    def read_answer(self, *, to_head: bool = False) -> RawAnswer | None:
        """The next final answer, or None if the connection ends without one. `to_head`: the request's method is HEAD,
        so the answer has no body."""
        while (head := self._read_head()) is not None and head[0] < 200:
            self.interim_statuses.append(head[0])
        if head is None:
            return None
        status, headers, raw = head
        length = 0 if to_head else int(headers["content-length"])
        while len(self._unread) < length and self._receive():
            pass
        body, self._unread = self._unread[:length], self._unread[length:]
        assert len(body) == length, f"an answer is incomplete: {raw!r} {body!r}"
        return RawAnswer(status, headers, body)

    def wait_for_close(self) -> bool:
        """Wait until the server closes the connection. Returns False if it sends more bytes instead."""
        while not self._unread and self._receive():
            pass
        return not self._unread

    def close(self):
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        self.close()

    def _read_head(self) -> tuple[int, dict[str, str], bytes] | None:
        while b"\r\n\r\n" not in self._unread:
            if not self._receive():
                assert not self._unread, f"an answer is incomplete: {self._unread!r}"
                return None
        raw, _, self._unread = self._unread.partition(b"\r\n\r\n")
        status_line, *lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return int(status_line.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}, raw

    def _receive(self) -> bool:
        """Read more bytes. Returns False at the end of the connection, also if it was reset."""
        if self._has_ended:
            return False
        self._socket.settimeout(self._remaining())
        try:
            chunk = self._socket.recv(_CHUNK_BYTES)
        except ConnectionError:
            chunk = b""
        except TimeoutError:
            raise ServerHangs(f"no bytes came, and the connection stayed open; read so far: {self._unread!r}") from None
        self._unread += chunk
        self._has_ended = not chunk
        return bool(chunk)

    def _remaining(self) -> float:
        return max(0.001, self._deadline - time.monotonic())
