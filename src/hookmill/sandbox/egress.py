"""The proxy through which a command in a sandbox reaches the permitted destinations, and no others.

It listens in the sandbox's network, whose only interface is the loopback, and connects from the host's network. It
accepts CONNECT only, so that it never reads what is sent.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - a process of another account may be unable to load it later
import contextlib
import encodings.idna  # noqa: F401 - likewise
import socket
from collections.abc import Callable, Sequence
from typing import Final

from hookmill.domain.egress import Destination, EgressRules, parse_destination
from hookmill.domain.networks import Address
from hookmill.domain.outgoing import parsed_address
from hookmill.outbound.addresses import is_public_host

CONNECTIONS_MAX: Final = 64
"""Further connections are closed immediately."""
HEAD_BYTES_MAX: Final = 8_192
HEAD_SECONDS: Final = 10.0
LOOKUP_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 10.0
"""For each address."""
ADDRESSES_MAX: Final = 4
"""How many addresses of one name are tried."""
IDLE_SECONDS: Final = 900.0
"""A connection ends if nothing is sent in either direction for so long. Models may think for minutes."""
CHUNK_BYTES: Final = 65_536
REPORTED_MAX: Final = 20
"""How many refused destinations are reported."""


class _Refused(Exception):
    """The request is refused. The arguments are the status code with its text, and the text of the answer."""


def serve(listener: socket.socket, rules: EgressRules, report: Callable[[str], None]) -> None:
    """Serve connections to the listener until the process ends. `report` is called with each refused destination."""
    asyncio.run(_Proxy(rules, report).serve(listener))


class _Proxy:
    def __init__(self, rules: EgressRules, report: Callable[[str], None]) -> None:
        self._rules = rules
        self._report = report
        self._reported: set[Destination] = set()
        self._connections = 0

    async def serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._handle, sock=listener, limit=HEAD_BYTES_MAX)
        await server.serve_forever()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._connections += 1
        try:
            # The peer may send anything, and may end the connection at any moment.
            with contextlib.suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
                await self._answer(reader, writer)
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            remote_reader, remote_writer = await self._connect(_destination(head))
        except _Refused as refusal:
            status, text = refusal.args
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text) + 1}\r\n"
                f"Connection: close\r\n\r\n{text}\n".encode()
            )
            async with asyncio.timeout(HEAD_SECONDS):
                await writer.drain()
                writer.write_eof()
                # If the connection is closed while unread data waits, the peer may lose the answer.
                while await reader.read(CHUNK_BYTES):
                    pass
            return
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.timeout(IDLE_SECONDS) as idle:
                await asyncio.gather(_copy(reader, remote_writer, idle), _copy(remote_reader, writer, idle))
        finally:
            remote_writer.transport.abort()

    async def _connect(self, destination: Destination) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self._rules.permits(destination):
            self._report_once(destination, "network_allow does not list it")
            raise _Refused("403 Forbidden", f"The sandbox's network_allow does not list {destination}.")
        addresses = await _addresses(destination.host)
        permitted = [
            address
            for address in addresses
            if self._rules.permits_address(destination, address, is_public=is_public_host(address))
        ]
        if addresses and not permitted:
            self._report_once(destination, "its address is not public, and network_private does not list it")
            raise _Refused("403 Forbidden", f"The address of {destination} is not public, and not in network_private.")
        for address in permitted[:ADDRESSES_MAX]:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await asyncio.open_connection(str(address), destination.port, limit=CHUNK_BYTES)
        raise _Refused("502 Bad Gateway", f"{destination} could not be reached.")

    def _report_once(self, destination: Destination, reason: str) -> None:
        if destination not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported.add(destination)
            self._report(f"The sandbox refused a connection to {destination}: {reason}.")


def _destination(head: bytes) -> Destination:
    """The destination of a request with this head. Raises `_Refused`."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    if method != "CONNECT":
        raise _Refused("405 Method Not Allowed", "The sandbox's proxy supports CONNECT only. Use an https URL.")
    destination = parse_destination(rest.partition(" ")[0])
    if destination is None:
        raise _Refused("400 Bad Request", "CONNECT needs a host and a port.")
    return destination


async def _addresses(host: str) -> Sequence[Address]:
    """The addresses of the host, which may be an address itself. Empty if it has none."""
    if (address := parsed_address(host)) is not None:
        return [address]
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            entries = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return []
    texts = dict.fromkeys(str(entry[4][0]) for entry in entries)
    return [address for text in texts if (address := parsed_address(text)) is not None]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle: asyncio.Timeout) -> None:
    loop = asyncio.get_running_loop()
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
        idle.reschedule(loop.time() + IDLE_SECONDS)
    writer.write_eof()
