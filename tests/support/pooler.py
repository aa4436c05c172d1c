"""A small connection pooler for a real PostgreSQL, similar to PgBouncer."""

import contextlib
import queue
import select
import socket
import struct
import threading
from enum import Enum
from typing import Self

from tests.support.waiting import LONG_SECONDS

PIECE_BYTES = 65_536
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80_877_103, 80_877_104, 80_877_102
PASSWORD_REQUESTS = {3, 5, 10, 11}
"""Authentication requests of the server that the client answers with a password or a proof of one."""
OWN_PROCESS = 1
"""The process id that the pooler sends to clients instead of the id of the server's process."""


class Options(Enum):
    """How the pooler treats the settings (`options`) that a client sends at the start of its session."""

    ARE_PASSED_ON = "are passed on"
    ARE_IGNORED = "are ignored"
    ARE_REFUSED = "are refused"


class Pooler:
    """Connects clients to the PostgreSQL at port `target` of this machine."""

    def __init__(self, target: int, *, shares_sessions: bool, options: Options):
        """`shares_sessions`: a client has a session of the server only for the duration of a transaction."""
        self._target = target
        self._shares_sessions = shares_sessions
        self._options = options
        self._free = queue.LifoQueue[socket.socket]()
        self._guard = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        self._listener.close()
        with self._guard:
            for end in self._sockets:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._register(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _register(self, end: socket.socket):
        with self._guard:
            self._sockets.append(end)

    def _serve(self, client: socket.socket):
        # Another thread may close the sockets: `select` raises a `ValueError` for one that is closed.
        with client, contextlib.suppress(OSError, ValueError):
            server = self._begin_session(client)
            if server is None:
                return
            if not self._free.empty():
                # Another session is idle. It can serve this client.
                server.close()
            else:
                self._release(server)
            while (piece := client.recv(PIECE_BYTES)) and piece[:1] != b"X":
                if self._shares_sessions:
                    # Other clients may use all sessions now.
                    server = self._free.get(timeout=LONG_SECONDS)
                self._transact(client, server, piece)
                self._release(server)

    def _release(self, server: socket.socket):
        if self._shares_sessions:
            self._free.put(server)

    def _begin_session(self, client: socket.socket) -> socket.socket | None:
        """Open a session of the server, in which the client authenticates itself. None if that fails, or is refused."""
        while True:
            body = _exactly(client, struct.unpack("!I", _exactly(client, 4))[0] - 4)
            (code,) = struct.unpack("!I", body[:4])
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            client.sendall(b"N")
        if code == CANCEL_REQUEST:
            return None
        names_and_values = body[4:].rstrip(b"\0").split(b"\0")
        settings = dict(zip(names_and_values[::2], names_and_values[1::2], strict=True))
        if self._options is Options.ARE_REFUSED and b"options" in settings:
            error_fields = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
            client.sendall(b"E" + struct.pack("!I", len(error_fields) + 4) + error_fields)
            return None
        if self._options is Options.ARE_IGNORED:
            settings.pop(b"options", None)
        body = body[:4] + b"".join(name + b"\0" + value + b"\0" for name, value in settings.items()) + b"\0"
        server = socket.create_connection(("127.0.0.1", self._target))
        self._register(server)
        server.sendall(struct.pack("!I", len(body) + 4) + body)
        while True:
            kind, message = _message(server)
            if kind == b"K":
                message = struct.pack("!I", OWN_PROCESS) + message[4:]
            client.sendall(kind + struct.pack("!I", len(message) + 4) + message)
            if kind == b"R" and struct.unpack("!I", message[:4])[0] in PASSWORD_REQUESTS:
                kind, answer = _message(client)
                server.sendall(kind + struct.pack("!I", len(answer) + 4) + answer)
            elif kind == b"Z":
                return server
            elif kind == b"E":
                return None

    def _transact(self, client: socket.socket, server: socket.socket, piece: bytes):
        """Forward messages in both directions, until the server is idle outside a transaction."""
        server.sendall(piece)
        while True:
            ready, _, _ = select.select([client, server], [], [])
            if client in ready:
                if not (piece := client.recv(PIECE_BYTES)):
                    server.close()
                    raise ConnectionError
                server.sendall(piece)
            if server in ready:
                kind, message = _message(server)
                client.sendall(kind + struct.pack("!I", len(message) + 4) + message)
                if (kind, message) == (b"Z", b"I"):
                    return


def _message(end: socket.socket) -> tuple[bytes, bytes]:
    kind = _exactly(end, 1)
    return kind, _exactly(end, struct.unpack("!I", _exactly(end, 4))[0] - 4)


def _exactly(end: socket.socket, count: int) -> bytes:
    read = b""
    while len(read) < count:
        piece = end.recv(count - len(read))
        if not piece:
            raise ConnectionError
        read += piece
    return read
