"""A server with those endpoints of GitHub's API that results use. It refuses requests that GitHub would refuse."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import jsonschema

TOKEN: Final = "ghp-token-of-the-test"
_STATUS_PATH: Final = re.compile(r"/repos/acme/shop/statuses/([0-9a-f]{40})\Z")
_COMMENTS_PATH: Final = re.compile(r"/repos/acme/shop/issues/([1-9][0-9]*)/comments\Z")
_STATUS_BODY: Final = {
    "type": "object",
    "required": ["state"],
    "additionalProperties": False,
    "properties": {
        "state": {"enum": ["error", "failure", "pending", "success"]},
        "target_url": {"type": ["string", "null"]},
        "description": {"type": ["string", "null"], "maxLength": 140},
        "context": {"type": "string"},
    },
}
_COMMENT_BODY: Final = {
    "type": "object",
    "required": ["body"],
    "additionalProperties": False,
    "properties": {"body": {"type": "string", "minLength": 1, "maxLength": 65_536}},
}
"""As in the published description of GitHub's API."""


@dataclass
class GitHub:
    port: int
    statuses: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """The method and the path of each request."""
    next_answers: list[int] = field(default_factory=list)
    """The statuses of the next answers, which then change nothing. 0: the request is performed, and not answered."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def states(self) -> list[str]:
        return [status["state"] for status in self.statuses]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    github: GitHub


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        github = self.server.github
        github.requests.append((self.command, self.path))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = github.next_answers.pop(0) if github.next_answers else None
        if status:
            self._send(status, {"message": "secret-of-the-receiver"})
            return
        answer = self._perform(self.path.partition("?")[0], body)
        if status is None:
            self._send(*answer)

    def _perform(self, path: str, body: bytes) -> tuple[int, Any]:
        github = self.server.github
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return 401, {"message": "Bad credentials"}
        if path == "/user" and self.command == "GET":
            return 200, {"login": "octocat"}
        if (match := _COMMENTS_PATH.match(path)) is not None:
            if self.command == "GET":
                return 200, github.comments
            jsonschema.validate(comment := json.loads(body), _COMMENT_BODY)
            number = len(github.comments) + 1
            created = {"id": number, "html_url": f"{github.url}/acme/shop/issues/{match[1]}#{number}", **comment}
            github.comments.append(created)
            return 201, created
        if (match := _STATUS_PATH.match(path)) is not None and self.command == "POST":
            jsonschema.validate(status := json.loads(body), _STATUS_BODY)
            github.statuses.append({"sha": match[1], **status})
            return 201, status
        return 404, {"message": "Not Found"}

    def _send(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.send_header("Retry-After", "120")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def github_server() -> Iterator[GitHub]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.github = GitHub(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server.github
        server.shutdown()
        thread.join()
