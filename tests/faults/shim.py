"""A way to a server that can fall silent: nothing comes through, and nobody is told."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

PIECE_BYTES = 65_536


class Shim:
    """Passes connections on to a port of this machine, until it is told otherwise."""

    def __init__(self, target: int | Callable[[], socket.socket], listener: socket.socket | None = None) -> None:
        """`target` is a port of this machine, or opens a connection. Without `listener`, a free port is used."""
        self._target = target
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._guard = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def fall_silent(self) -> None:
        """Open connections stay open, and new ones are taken; nothing comes through any of them."""
        self._open.clear()

    def speak_again(self) -> None:
        """What was held back comes through, late."""
        self._open.set()

    def forget(self) -> None:
        """New connections work again; those that are there stay silent for ever, and are never closed."""
        self._open = threading.Event()
        self._open.set()

    def hang_up(self) -> None:
        """Close every connection. New ones work."""
        with self._guard:
            ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # `close` alone would not wake the thread that accepts, and the port would stay in use.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        self._open.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near, self._open), daemon=True).start()

    def _connect(self, near: socket.socket, open_: threading.Event) -> None:
        open_.wait()
        try:
            far = (
                socket.create_connection(("127.0.0.1", self._target))
                if isinstance(self._target, int)
                else self._target()
            )
        except OSError:
            near.close()
            return
        with self._guard:
            self._ends += [near, far]
        answers = threading.Thread(target=_pass_on, args=(far, near, open_), daemon=True)
        answers.start()
        _pass_on(near, far, open_)
        answers.join()
        with self._guard:
            self._ends = [end for end in self._ends if end is not near and end is not far]
        near.close()
        far.close()


def _pass_on(one: socket.socket, other: socket.socket, open_: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while piece := one.recv(PIECE_BYTES):
            open_.wait()
            other.sendall(piece)
        open_.wait()
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)
