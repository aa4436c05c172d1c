"""Occupies connections with idle clients, and with slow ones that send a few bytes per second.

It runs in a process of its own and needs only the standard library. It reads a port and the kinds of clients from
standard input as a line of JSON, and writes a line when the clients are connected. When standard input ends, it writes
how many connections were open on average, and how many were replaced, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys

SOURCE_ADDRESSES = 50
"""The clients are spread over this many addresses from 127.0.1.1 on. One address has ports for 28,000 connections, and
a port is blocked for a minute after the service has closed its connection."""
CONNECTS_PER_SECOND = 2_000
CONNECTED_SHARE_MIN = 0.9
"""The share of the clients that must be connected at the start: the service may already have closed some of them."""
READY_SECONDS = 60.0
SAMPLE_SECONDS = 0.1
IP_BIND_ADDRESS_NO_PORT = 24
"""From linux/in.h: connect() chooses the port, so that all addresses can use all ports."""


class Crowd:
    """The open connections now, and those that were opened so far."""

    open = 0
    opened = 0


class Client(asyncio.Protocol):
    """A client that connects again when the service has closed its connection."""

    transport: asyncio.Transport

    def __init__(self, crowd: Crowd, port: int, source: str, first: str, drip: str) -> None:
        self._crowd, self._port, self._source, self._first, self._drip = crowd, port, source, first, drip

    async def connect(self, after_seconds: float) -> None:
        await asyncio.sleep(after_seconds)
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        connection.bind((self._source, 0))
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(connection, ("127.0.0.1", self._port))
            await loop.create_connection(lambda: self, sock=connection)
        except OSError:
            connection.close()
            self._connect_again()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._crowd.open += 1
        self._crowd.opened += 1
        transport.write(self._first.encode())
        if self._drip:
            self._send_drip(transport, is_due=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.open -= 1
        self._connect_again()

    def _connect_again(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self.connect(1 / CONNECTS_PER_SECOND))

    def _send_drip(self, transport: asyncio.Transport, *, is_due: bool) -> None:
        if not transport.is_closing():
            transport.write(self._drip.encode() if is_due else b"")
            asyncio.get_running_loop().call_later(1.0, lambda: self._send_drip(transport, is_due=True))


async def main() -> None:
    """Keep the clients connected until standard input ends, and end the process, with 1 if they could not connect."""
    port, kinds = json.loads(sys.stdin.readline())
    crowd = Crowd()
    clients = [
        Client(crowd, port, f"127.0.1.{1 + number % SOURCE_ADDRESSES}", first, drip)
        for number, (first, drip) in enumerate((first, drip) for count, first, drip in kinds for _ in range(count))
    ]
    loop = asyncio.get_running_loop()
    connecting = [
        loop.create_task(client.connect(number / CONNECTS_PER_SECOND)) for number, client in enumerate(clients)
    ]
    deadline = loop.time() + READY_SECONDS
    while crowd.open < CONNECTED_SHARE_MIN * len(clients):
        if loop.time() > deadline:
            os._exit(1)
        await asyncio.sleep(SAMPLE_SECONDS)
    await asyncio.gather(*connecting)
    print("connected", flush=True)
    samples = [crowd.open]
    opened_before = crowd.opened
    end = loop.run_in_executor(None, sys.stdin.read)
    while not end.done():
        await asyncio.sleep(SAMPLE_SECONDS)
        samples.append(crowd.open)
    print(json.dumps({"open_mean": sum(samples) / len(samples), "replaced": crowd.opened - opened_before}), flush=True)
    # The tasks of ten thousand clients would end one after the other.
    os._exit(0)


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main())
