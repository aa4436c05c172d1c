"""A real Claude Code, and a model endpoint that always gives the same answer."""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.support.debian import ProgramUnavailable

PACKAGE: Final = "@anthropic-ai/claude-code@2.1.197"
INSTALL_SECONDS: Final = 400
ANSWER: Final = "Hello from the model."


def claude_code() -> Path:
    """The program, which npm installs into a cache first. Raises `ProgramUnavailable`."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = caches / "hookmill-tests" / PACKAGE.rpartition("/")[2]
    cache.parent.mkdir(parents=True, exist_ok=True)
    with cache.with_suffix(".lock").open("ab") as lock:
        # Several test processes may find at the same moment that it is missing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.exists():
            _install(cache)
    return cache / "node_modules" / ".bin" / "claude"


def _install(cache: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise ProgramUnavailable("The tests install Claude Code with npm, and there is no npm. Install Node.js.")
    with tempfile.TemporaryDirectory(dir=cache.parent) as directory:
        content = Path(directory, "content")
        content.mkdir()
        process = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--prefix", content, PACKAGE],
            cwd=content,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
        )
        if process.returncode != 0:
            raise ProgramUnavailable(f"npm could not install {PACKAGE}: {process.stderr.strip()[-400:]}")
        content.rename(cache)


@dataclass
class ModelEndpoint:
    """A Messages endpoint that answers every request with `ANSWER`, 15 input tokens and 5 output tokens."""

    port: int = 0
    keys: list[str | None] = field(default_factory=list)
    """The key of each request."""
    prompts: list[str] = field(default_factory=list)
    """The messages of each request, as JSON."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def model_endpoint() -> Iterator[ModelEndpoint]:
    endpoint = ModelEndpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            endpoint.keys.append(self.headers["x-api-key"])
            endpoint.prompts.append(json.dumps(body["messages"]))
            events = "".join(
                f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(body["model"])
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(events)))
            self.end_headers()
            self.wfile.write(events.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _events(model: str) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}}
    yield {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}
