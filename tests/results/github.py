"""A server with those endpoints of GitHub's API that results use. It refuses requests that GitHub would refuse."""

import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import jsonschema
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from hookmill.domain.moment import iso

TOKEN: Final = "ghp-token-of-the-test"
CLIENT_ID: Final = "Iv23liTestOfHookmill"
APP_NUMBER: Final = 1_234
INSTALLATION: Final = 77
_REPOSITORY: Final = "/repos/acme/shop"
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
_ANNOTATION: Final = {
    "type": "object",
    "required": ["path", "start_line", "end_line", "annotation_level", "message"],
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string"},
        "start_line": {"type": "integer"},
        "end_line": {"type": "integer"},
        "annotation_level": {"enum": ["notice", "warning", "failure"]},
        "message": {"type": "string"},
        "title": {"type": "string"},
    },
}
_CHECK_RUN_CHANGES: Final = {
    "name": {"type": "string"},
    "details_url": {"type": "string", "pattern": "^https?://"},
    "external_id": {"type": "string"},
    "status": {"enum": ["queued", "in_progress", "completed"]},
    "started_at": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
    "completed_at": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
    "conclusion": {
        "enum": ["action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out"],
    },
    "output": {
        "type": "object",
        "required": ["title", "summary"],
        "additionalProperties": False,
        "properties": {
            "title": {"type": "string"},
            "summary": {"type": "string", "maxLength": 65_535},
            "annotations": {"type": "array", "maxItems": 50, "items": _ANNOTATION},
        },
    },
}
_CONCLUSION_WITH_COMPLETED: Final = {
    "if": {"properties": {"status": {"const": "completed"}}, "required": ["status"]},
    "then": {"required": ["conclusion"]},
    "else": {"not": {"anyOf": [{"required": ["conclusion"]}, {"required": ["completed_at"]}]}},
}
_CHECK_RUN_BODY: Final = {
    "type": "object",
    "required": ["name", "head_sha"],
    "additionalProperties": False,
    "properties": {**_CHECK_RUN_CHANGES, "head_sha": {"type": "string"}},
    **_CONCLUSION_WITH_COMPLETED,
}
_CHECK_RUN_CHANGE_BODY: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": _CHECK_RUN_CHANGES,
    **_CONCLUSION_WITH_COMPLETED,
}
_TOKEN_BODY: Final = {
    "type": "object",
    "required": ["repositories", "permissions"],
    "additionalProperties": False,
    "properties": {
        "repositories": {"type": "array", "items": {"type": "string"}},
        "permissions": {"type": "object", "additionalProperties": {"enum": ["read", "write"]}},
    },
}
"""As in the published description of GitHub's API. GitHub accepts more, which results don't use."""


@functools.cache
def app_private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def pem(key: rsa.RSAPrivateKey) -> str:
    """The file that GitHub lets people download."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()


@dataclass
class GitHub:
    port: int
    statuses: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    check_runs: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """The method and the path of each request."""
    next_answers: list[int | None] = field(default_factory=list)
    """The statuses of the next answers, which then change nothing. 0: the request is performed, and not answered. None:
    the request is performed and answered."""
    next_words: str = "words-of-the-receiver"
    """The message in these answers."""
    answer_headers: dict[str, str] = field(default_factory=lambda: {"Retry-After": "120"})
    permissions: dict[str, str] = field(
        default_factory=lambda: dict.fromkeys(("checks", "statuses", "issues", "pull_requests"), "write")
    )
    """What the installation of the app has been granted."""
    is_installed: bool = True
    token_seconds: int = 3_600
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The valid tokens of the app, with the repositories and permissions of each."""
    token_requests: list[dict[str, Any]] = field(default_factory=list)
    held: Callable[[str, str], bool] = lambda _method, _path: False
    """Whether a request is held. It is answered only when `release` is set."""
    cut: Callable[[str, str], bool] = lambda _method, _path: False
    """Whether the answer to a request ends too early."""
    performs_held: bool = False
    """Whether a held request is performed before it is held."""
    release: threading.Event = field(default_factory=threading.Event)
    is_holding: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def states(self) -> list[str]:
        return [status["state"] for status in self.statuses]

    def paths(self) -> list[str]:
        """The requests without the queries, each as a text."""
        return [f"{method} {path.partition('?')[0]}" for method, path in self.requests]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    github: GitHub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed closes the connection, which is no error."""


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answer = status, {"message": message}


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def _answer(self) -> None:
        github = self.server.github
        github.requests.append((self.command, self.path))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = github.next_answers.pop(0) if github.next_answers else None
        if status:
            self._send(status, {"message": github.next_words})
            return
        is_held = not github.is_holding.is_set() and github.held(self.command, self.path)
        if is_held and not github.performs_held:
            self._hold()
            return
        try:
            answer = self._perform(urlsplit(self.path).path, body)
        except _Refused as error:
            answer = error.answer
        except jsonschema.ValidationError as error:
            answer = 422, {"message": error.message}
        if is_held:
            self._hold()
        elif status is None:
            self._send(*answer)

    def _hold(self) -> None:
        self.server.github.is_holding.set()
        self.server.github.release.wait(20)

    def _perform(self, path: str, body: bytes) -> tuple[int, Any]:
        github = self.server.github
        content: Any = json.loads(body) if body else None
        match self.command, path.removeprefix(_REPOSITORY).split("/")[1:]:
            case "GET", ["user"]:
                self._require_token()
                return 200, {"login": "octocat"}
            case "GET", ["app"]:
                self._require_jwt()
                installations = int(github.is_installed)
                return 200, {"id": APP_NUMBER, "permissions": github.permissions, "installations_count": installations}
            case "GET", ["installation"]:
                self._require_jwt()
                if not github.is_installed:
                    return 404, {"message": "Not Found"}
                return 200, {"id": INSTALLATION, "app_id": APP_NUMBER, "permissions": github.permissions}
            case "POST", ["app", "installations", installation, "access_tokens"] if installation == str(INSTALLATION):
                self._require_jwt()
                return self._create_token(content)
            case "GET", ["issues", _, "comments"]:
                self._require_token("issues", "pull_requests")
                return 200, github.comments
            case "POST", ["issues", issue, "comments"]:
                self._require_token("issues", "pull_requests")
                jsonschema.validate(content, _COMMENT_BODY)
                number = len(github.comments) + 1
                created = {"id": number, "html_url": f"{github.url}/acme/shop/issues/{issue}#{number}", **content}
                github.comments.append(created)
                return 201, created
            case "POST", ["statuses", sha] if re.fullmatch("[0-9a-f]{40}", sha):
                self._require_token("statuses")
                jsonschema.validate(content, _STATUS_BODY)
                github.statuses.append({"sha": sha, **content})
                return 201, content
            case "POST", ["check-runs"]:
                self._require_token("checks", allows_personal=False)
                self._validate_check_run(content, _CHECK_RUN_BODY)
                number = len(github.check_runs) + 1
                page = f"{github.url}/acme/shop/runs/{number}"
                github.check_runs.append({"id": number, "html_url": page, "app": {"id": APP_NUMBER}, **content})
                return 201, github.check_runs[-1]
            case "PATCH", ["check-runs", check_run] if check_run.isdigit() and 0 < int(check_run) <= len(
                github.check_runs
            ):
                self._require_token("checks", allows_personal=False)
                self._validate_check_run(content, _CHECK_RUN_CHANGE_BODY)
                github.check_runs[int(check_run) - 1] |= content
                return 200, github.check_runs[int(check_run) - 1]
            case "GET", ["commits", sha, "check-runs"]:
                self._require_token("checks")
                query = parse_qs(urlsplit(self.path).query)
                assert set(query) <= {"check_name", "filter", "per_page", "page"}
                found = [
                    each
                    for each in github.check_runs
                    if [each["name"]] == query["check_name"] and each["head_sha"] == sha and query["filter"] == ["all"]
                ]
                return 200, {"total_count": len(found), "check_runs": found}
        return 404, {"message": "Not Found"}

    def _validate_check_run(self, content: Any, schema: Any) -> None:
        jsonschema.validate(content, schema)
        # GitHub counts bytes, whatever its description says.
        if len(content.get("output", {}).get("summary", "").encode()) > 65_535:
            raise _Refused(422, "summary exceeds a maximum bytesize of 65535")

    def _create_token(self, content: Any) -> tuple[int, Any]:
        github = self.server.github
        jsonschema.validate(content, _TOKEN_BODY)
        github.token_requests.append(content)
        if content["repositories"] != ["shop"] or not content["permissions"].items() <= github.permissions.items():
            return 422, {"message": "The permissions requested are not granted to this installation."}
        token = f"ghs_{len(github.token_requests)}_token-of-the-app"
        github.tokens[token] = content
        return 201, {"token": token, "expires_at": iso(int((time.time() + github.token_seconds) * 1_000_000))}

    def _require_jwt(self) -> None:
        """The JWT of the app, with GitHub's rules about its times."""
        try:
            claims = jwt.decode(
                self.headers["Authorization"].removeprefix("Bearer "),
                app_private_key().public_key(),
                algorithms=["RS256"],
                issuer=[CLIENT_ID, str(APP_NUMBER)],
                options={"require": ["iat", "exp", "iss"]},
            )
        except jwt.InvalidTokenError as error:
            raise _Refused(401, "A JSON web token could not be decoded") from error
        if claims["exp"] > time.time() + 600:
            raise _Refused(401, "'Expiration time' claim ('exp') is too far in the future")

    def _require_token(self, *permissions: str, allows_personal: bool = True) -> None:
        """A personal token, or a token of the app for the repository that has one of the permissions."""
        token = self.headers["Authorization"].removeprefix("Bearer ")
        if token == TOKEN:
            if not allows_personal:
                raise _Refused(403, "You must authenticate via a GitHub App.")
            return
        granted = self.server.github.tokens.get(token)
        if granted is None:
            raise _Refused(401, "Bad credentials")
        if not set(permissions) & set(granted["permissions"]):
            raise _Refused(403, "Resource not accessible by integration")

    def _send(self, status: int, body: Any) -> None:
        self.send_response(status)
        for name, value in self.server.github.answer_headers.items():
            self.send_header(name, value)
        self.end_headers()
        content = json.dumps(body).encode()
        is_cut = self.server.github.cut(self.command, self.path)
        self.wfile.write(content[: len(content) // 2] if is_cut else content)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def github_server() -> Iterator[GitHub]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.github = GitHub(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server.github
        server.github.release.set()
        server.shutdown()
        thread.join()
