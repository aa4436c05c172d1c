"""The Unix socket through which the operator's commands on this host use the API of the running service.

The supervisor opens it, and the ingress processes inherit it and accept its connections, like those to the port.
`client.local_socket` says who is the operator. This identity belongs to the connection: no header or path of a request
can have it. A connection has one request.
"""

import asyncio
import hmac
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Final

from hookmill.app import log
from hookmill.client.local_socket import ACCEPTED, SOCKET_NAME, operator_proof, socket_address
from hookmill.settings import Settings
from hookmill.store.keys.sealing import KeyRing
from hookmill.web.asgi import Message, body_receiver, http_scope
from hookmill.web.routes import Application

HEAD_BYTES_MAX: Final = 65_536
BODY_BYTES_MAX: Final = 10_485_760
"""More than the API accepts in any body."""
REQUEST_SECONDS: Final = 30.0
"""How long a command may take to send its request."""
CONNECTIONS_MAX: Final = 32
"""How many connections one process serves. Further ones are closed, so that a run with the service's account, which can
open the socket, takes no descriptors from senders."""
STOP_SECONDS: Final = 10.0
"""How long requests in progress may take when the service stops."""
_CREDENTIALS: Final = struct.Struct("=3i")
"""The process, the user and the group of a connection's other end (Linux)."""


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket | None]:
    """The socket, which replaces that of an earlier service. None, after a warning, if it can't be created.

    Commands on this host then open the database themselves.
    """
    path = settings.data_dir.absolute() / SOCKET_NAME
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            temporary.unlink(missing_ok=True)
            with socket_address(temporary) as address:
                listener.bind(address)
            # Nobody can connect before `listen`.
            temporary.chmod(0o600)
            listener.listen(64)
            # The name of a socket that a killed service has left is replaced, too.
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            log.warning("socket", f"{path} can't be created: {error.strerror}. Commands on this host do without it.")
            yield None
            return
        identity = path.lstat().st_ino
        yield listener
        # Another service may have replaced it.
        with suppress(OSError):
            if path.lstat().st_ino == identity:
                path.unlink()
    finally:
        listener.close()


class OperatorServer:
    """Accepts connections of the socket, in the event loop of one ingress process."""

    def __init__(
        self,
        listener: socket.socket,
        settings: Settings,
        master_keys: KeyRing,
        build_application: Callable[[int], Application],
    ) -> None:
        """`build_application` is called in a thread, with the account of the operator."""
        self._listener = listener
        self._database_url = settings.database_url.get_secret_value() if settings.database_url is not None else None
        self._master_keys = master_keys
        self._build_application = build_application
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._handle, sock=self._listener, limit=HEAD_BYTES_MAX)

    async def close(self) -> None:
        self._server.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=STOP_SECONDS)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._connections.add(task)
        try:
            # A command that is interrupted closes its connection.
            with suppress(OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
                await self._respond(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(REQUEST_SECONDS):
            proof = await reader.readline()
            expected = [operator_proof(key.value, self._database_url) for key in self._master_keys.keys]
            if not any(hmac.compare_digest(proof, correct) for correct in expected):
                return
            writer.write(ACCEPTED)
            request_line, *lines = (await reader.readuntil(b"\r\n\r\n")).rstrip(b"\r\n").split(b"\r\n")
            method, target, _ = request_line.decode("ascii").split(" ")
            headers = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
            scope = http_scope(method, target, headers)
            length = int(dict(scope["headers"]).get(b"content-length", b"0"))
            if length > BODY_BYTES_MAX:
                return
            body = await reader.readexactly(length)
        application = await asyncio.to_thread(self._build_application, _user_id(writer))

        is_chunked = False

        async def send(message: Message) -> None:
            nonlocal is_chunked
            if message["type"] == "http.response.start":
                status = message["status"]
                lines = [name + b": " + value for name, value in message["headers"] if name != b"connection"]
                # Chunks have an end, so the client notices a body that breaks off.
                is_chunked = not any(name == b"content-length" for name, _ in message["headers"]) and status != 204
                lines += [b"transfer-encoding: chunked"] if is_chunked else []
                head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
                writer.write(b"\r\n".join([head, *lines, b"connection: close", b"", b""]))
                return
            part = message.get("body", b"")
            if is_chunked:
                part = b"%x\r\n%s\r\n" % (len(part), part) if part else b""
                part += b"" if message.get("more_body", False) else b"0\r\n\r\n"
            writer.write(part)
            await writer.drain()

        await application(scope, body_receiver(body), send)


def _user_id(writer: asyncio.StreamWriter) -> int:
    """The account at the other end; that of the service if the system does not say it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return os.geteuid()
    with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as connection:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user_id: int = _CREDENTIALS.unpack(credentials)[1]
    return user_id
