"""HTTP spoken by hand: bytes out, answers in, so that a test can send what no client library would."""

import socket
import time
from dataclasses import dataclass
from typing import Self

_PIECE_BYTES = 65_536


class Silence(AssertionError):
    """The server neither answered nor closed in time: what a client sees as a hang."""


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """One final response as it stood on the wire. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """One connection to the service. Every wait ends at a deadline, in `Silence`."""

    def __init__(self, port: int, *, seconds: float = 10.0) -> None:
        """`seconds` is for all that will happen on this connection, from now on."""
        self._deadline = time.monotonic() + seconds
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        self._ended = False
        self.interim: list[int] = []
        """The 1xx answers seen so far."""

    @property
    def own_port(self) -> int:
        return int(self._socket.getsockname()[1])

    def send(self, sent: bytes) -> bool:
        """False when the other side has closed already, which it may do at any time."""
        self._socket.settimeout(self._remaining())
        try:
            self._socket.sendall(sent)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def half_close(self) -> None:
        """Say that nothing more will come, and go on listening."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def reset(self) -> None:
        """Vanish without a word: the server meets a reset connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self._socket.close()

    def interim_answer(self) -> int | None:
        """The next 1xx, or None when something else comes first."""
        head = self._head()
        if head is None or not head[0] < 200:
            return None
        self.interim.append(head[0])
        return head[0]

    def answer(self, *, to_head: bool = False) -> WireAnswer | None:
        """The next final answer, or None when the connection ends without one."""
        while (head := self._head()) is not None and head[0] < 200:
            self.interim.append(head[0])
        if head is None:
            return None
        status, headers, raw = head
        length = 0 if to_head else int(headers["content-length"])
        while len(self._unread) < length and self._more():
            pass
        body, self._unread = self._unread[:length], self._unread[length:]
        assert len(body) == length, f"an answer broke off: {raw!r} {body!r}"
        return WireAnswer(status, headers, body)

    def ends(self) -> bool:
        """Wait for the other side to close; False if it says something more instead."""
        while not self._unread and self._more():
            pass
        return not self._unread

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _head(self) -> tuple[int, dict[str, str], bytes] | None:
        while b"\r\n\r\n" not in self._unread:
            if not self._more():
                assert not self._unread, f"an answer broke off: {self._unread!r}"
                return None
        raw, _, self._unread = self._unread.partition(b"\r\n\r\n")
        status_line, *lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return int(status_line.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}, raw

    def _more(self) -> bool:
        """Read on; False at the connection's end. A reset is an end too."""
        if self._ended:
            return False
        self._socket.settimeout(self._remaining())
        try:
            piece = self._socket.recv(_PIECE_BYTES)
        except ConnectionError:
            piece = b""
        except TimeoutError:
            raise Silence(f"nothing came, and the connection stayed open; read so far: {self._unread!r}") from None
        self._unread += piece
        self._ended = not piece
        return bool(piece)

    def _remaining(self) -> float:
        return max(0.001, self._deadline - time.monotonic())
