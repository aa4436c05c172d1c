"""A TCP proxy that can stop forwarding without closing connections, like a network that drops packets."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

CHUNK_BYTES = 65_536


class TcpProxy:
    """Forwards connections to a port of this machine, or to what `target` connects to."""

    def __init__(self, target: int | Callable[[], socket.socket], listener: socket.socket | None = None):
        """`target` is a port of this machine, or opens a connection. Without `listener`, a free port is used."""
        self._target = target
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._forwards = threading.Event()
        self._forwards.set()
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def stall(self):
        """Hold back all bytes until `resume`. Open connections stay open, and new ones are accepted."""
        self._forwards.clear()

    def resume(self):
        """Forward the bytes that were held back, and all further ones."""
        self._forwards.set()

    def abandon_connections(self):
        """Forward new connections. The present ones stay open, but nothing is ever forwarded on them again."""
        self._forwards.clear()
        self._forwards = threading.Event()
        self._forwards.set()

    def close_connections(self):
        """Close every connection. New ones are forwarded."""
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        with contextlib.suppress(OSError):
            # `close` alone does not interrupt the thread in `accept`, and the port would stay in use.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.close_connections()
        self._forwards.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        self.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client, self._forwards), daemon=True).start()

    def _connect(self, client: socket.socket, forwards: threading.Event):
        forwards.wait()
        try:
            server = (
                socket.create_connection(("127.0.0.1", self._target))
                if isinstance(self._target, int)
                else self._target()
            )
        except OSError:
            client.close()
            return
        with self._lock:
            self._ends += [client, server]
        answers = threading.Thread(target=_forward, args=(server, client, forwards), daemon=True)
        answers.start()
        _forward(client, server, forwards)
        answers.join()
        with self._lock:
            self._ends = [end for end in self._ends if end is not client and end is not server]
        client.close()
        server.close()


def _forward(source: socket.socket, target: socket.socket, forwards: threading.Event):
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK_BYTES):
            forwards.wait()
            target.sendall(chunk)
        forwards.wait()
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
