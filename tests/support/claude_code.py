"""A real Claude Code, and a model endpoint whose answers are fixed."""

import fcntl
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.support.debian import ProgramUnavailable

PACKAGE: Final = "@anthropic-ai/claude-code@2.1.197"
INSTALL_SECONDS: Final = 400
ANSWER: Final = "Hello from the model."
LAST_RESULT: Final = "{last result}"


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


@dataclass(frozen=True)
class ToolUse:
    """A use of a tool that the model asks for."""

    name: str
    arguments: Mapping[str, str]
    """`LAST_RESULT` in a value stands for what the tool before has returned."""


@dataclass
class ModelEndpoint:
    """A Messages endpoint that answers with 15 input tokens, 5 output tokens, each of its tool uses, then `ANSWER`."""

    port: int = 0
    is_https: bool = False
    keys: list[str | None] = field(default_factory=list)
    """The key of each request."""
    prompts: list[str] = field(default_factory=list)
    """The system prompt, the tools and the messages of each request, as JSON."""

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}" if self.is_https else f"http://127.0.0.1:{self.port}"


@contextmanager
def model_endpoint(
    *tool_uses: ToolUse, certificate_and_key: tuple[Path, Path] | None = None
) -> Iterator[ModelEndpoint]:
    endpoint = ModelEndpoint(is_https=certificate_and_key is not None)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            endpoint.keys.append(self.headers["x-api-key"])
            endpoint.prompts.append(json.dumps([body.get("system"), body.get("tools"), body["messages"]]))
            content = _next_content(tool_uses, body["messages"])
            events = "".join(
                f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(body["model"], content)
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(events)))
            self.end_headers()
            self.wfile.write(events.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.port = server.server_address[1]
    if certificate_and_key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate_and_key)
        # Each connection's thread does the handshake, so a client that does not complete it delays no other.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _next_content(tool_uses: Sequence[ToolUse], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The next tool use after those whose results the messages have; `ANSWER` after the last one."""
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    results = [block for block in blocks if block["type"] == "tool_result"]
    if len(results) >= len(tool_uses):
        return {"type": "text", "text": ANSWER}
    tool_use = tool_uses[len(results)]
    last_result = _text_of(results[-1]["content"]) if results else ""
    arguments = {name: value.replace(LAST_RESULT, last_result) for name, value in tool_use.arguments.items()}
    return {"type": "tool_use", "id": f"toolu_{len(results)}", "name": tool_use.name, "input": arguments}


def _text_of(content: str | Sequence[Mapping[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def _events(model: str, content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a message with this one block of content."""
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    if content["type"] == "tool_use":
        block = {**content, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(content["input"])}
    else:
        block = {**content, "text": ""}
        delta = {"type": "text_delta", "text": content["text"]}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": "tool_use" if content["type"] == "tool_use" else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}
