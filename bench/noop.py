"""The yardstick: an application that only reads the body and answers, on the same HTTP server as the service.

It measures the cost of the HTTP server. The rest of the service's cost is that of durable acceptance.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.server import Server

from bench.machine import free_port
from bench.process import Served, serving_process

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

ANSWER = b'{"delivery_id":"dlv_0123456789abcdef0123456789abcdef"}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]


async def app(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer every request like an accepted delivery, after its whole body has arrived."""
    if scope["type"] == "lifespan":
        await _serve_lifespan(receive, send)
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": HTTPStatus.ACCEPTED.value, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


async def _serve_lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return


@contextmanager
def serving(server_settings: Mapping[str, Any]) -> Iterator[Served]:
    """The app on a port of its own, on Granian with these settings, until the block ends.

    The settings are keyword arguments of Granian's server, in JSON's types; address and port are added here.
    """
    port = free_port()
    settings = json.dumps({**server_settings, "address": "127.0.0.1", "port": port})
    with serving_process([sys.executable, "-m", "bench.noop", settings], port=port) as served:
        yield served


def main(settings: str) -> None:
    """Serve the app until a signal ends it. `settings` are those of `serving`, as JSON."""
    keywords = json.loads(settings)
    http1 = keywords.pop("http1_settings", None)
    types: dict[str, Callable[[Any], Any]] = {
        "interface": Interfaces,
        "runtime_mode": RuntimeModes,
        "loop": Loops,
        "http": HTTPModes,
    }
    typed = {name: types[name](value) if name in types else value for name, value in keywords.items()}
    server = Server("bench.noop:app", http1_settings=HTTP1Settings(**http1) if http1 else None, **typed)
    server.serve(target_loader=lambda: app, wrap_loader=False)


if __name__ == "__main__":
    main(sys.argv[1])
