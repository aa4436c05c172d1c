"""An agent platform: a server that verifies each message with the library of Standard Webhooks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from standardwebhooks import Webhook

from tests.support.waiting import until

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class AgentPlatform:
    """A running platform. It answers each message with `status`."""

    port: int = 0
    status: int = 202
    headers: dict[str, str] = field(default_factory=dict)
    """Further headers of each answer."""
    text: str = ""
    """The body of each answer, in which {token} stands for the token of the attempt."""
    answers: threading.Event = field(default_factory=threading.Event)
    """While it is not set, no message is answered."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """The verified messages, with their ids as `id`."""
    bodies: list[bytes] = field(default_factory=list)
    """The messages as they were received."""
    paths: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/runs?token=canary"

    def wait_for(self, count: int) -> dict[str, Any]:
        """Wait until this many messages have arrived. Returns the last of them."""
        until(lambda: len(self.messages) >= count, f"{count} messages have arrived", seconds=30)
        return self.messages[count - 1]


@contextmanager
def agent_platform(*, answers: bool = True) -> Iterator[AgentPlatform]:
    platform = AgentPlatform()
    if answers:
        platform.answers.set()

    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            message = Webhook(SECRET).verify(body, {name.lower(): value for name, value in self.headers.items()})
            # Tests wait for the message.
            platform.paths.append(self.path)
            platform.bodies.append(body)
            platform.messages.append({"id": self.headers["webhook-id"], **message})
            platform.answers.wait(30)
            self.send_response(platform.status)
            for name, value in platform.headers.items():
                self.send_header(name, value)
            token = message["data"].get("report", {}).get("token", "")
            answer = platform.text.replace("{token}", token).encode()
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    platform.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield platform
    finally:
        platform.answers.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
