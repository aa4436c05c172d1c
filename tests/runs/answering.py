"""A server of this host that commands of tests may reach."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Answer the first connection to the port that this yields, after its first bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)

        def accept():
            with suppress(TimeoutError), server.accept()[0] as connection:
                connection.recv(1_000)
                connection.sendall(answer)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join()
