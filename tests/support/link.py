"""A network link to a TCP server that can be cut."""

import contextlib
import select
import socket
import threading
from typing import Self
from urllib.parse import urlsplit

CHUNK_BYTES = 65_536
SECONDS_BETWEEN_CHECKS = 0.1


class Link:
    """Forwards connections from a port of its own to a server on this machine. While it is cut, nothing arrives."""

    def __init__(self, url: str):
        """`url` is the server's. `Link.url` leads to it over this link."""
        parts = urlsplit(url)
        assert parts.port is not None
        self._target = ("127.0.0.1", parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        account = parts.netloc.rpartition("@")[0]
        self.url = parts._replace(netloc=f"{account}@127.0.0.1:{port}").geturl()
        self._is_cut = threading.Event()
        self._is_closed = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self):
        """Hold back the bytes of open connections, and leave new connections without an answer, until `restore`."""
        self._is_cut.set()

    def restore(self):
        """Forward the bytes that were held back, and all further ones."""
        self._is_cut.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        self._is_closed.set()
        self._listener.close()

    def _accept(self):
        while not self._is_closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            thread = threading.Thread(target=self._forward, args=(client, server), daemon=True)
            thread.start()

    def _forward(self, client: socket.socket, server: socket.socket):
        other = {client: server, server: client}
        with client, server, contextlib.suppress(OSError):
            while not self._is_closed.is_set():
                if self._is_cut.is_set():
                    self._is_closed.wait(SECONDS_BETWEEN_CHECKS)
                    continue
                readable, _, _ = select.select([client, server], [], [], SECONDS_BETWEEN_CHECKS)
                for end in readable:
                    chunk = end.recv(CHUNK_BYTES)
                    if not chunk:
                        return
                    # A cut that happens now holds back the chunk.
                    while self._is_cut.is_set() and not self._is_closed.is_set():
                        self._is_closed.wait(SECONDS_BETWEEN_CHECKS)
                    other[end].sendall(chunk)
