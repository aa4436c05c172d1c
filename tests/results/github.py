"""A server with those endpoints of GitHub's API that results use. It refuses requests that GitHub would refuse."""

import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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
ACCOUNT_NUMBER: Final = 583_231
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
_REVIEW_COMMENT: Final = {
    "type": "object",
    "required": ["path", "body", "line", "side"],
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string"},
        "body": {"type": "string", "minLength": 1, "maxLength": 65_536},
        "line": {"type": "integer"},
        "side": {"enum": ["LEFT", "RIGHT"]},
        "start_line": {"type": "integer"},
        "start_side": {"enum": ["LEFT", "RIGHT"]},
    },
}
_REVIEW_BODY: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["event", "body"],
    "additionalProperties": False,
    "properties": {
        "event": {"enum": ["APPROVE", "REQUEST_CHANGES", "COMMENT"]},
        "body": {"type": "string", "minLength": 1, "maxLength": 65_536},
        "commit_id": {"type": "string"},
        "comments": {"type": "array", "items": _REVIEW_COMMENT},
    },
}
_GITEA_REVIEW_COMMENT: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"path": {"type": "string"}, "body": {"type": "string"}, "new_position": {"type": "integer"}},
}
_GITEA_REVIEW_BODY: Final = {
    **_REVIEW_BODY,
    "properties": {**_REVIEW_BODY["properties"], "comments": {"type": "array", "items": _GITEA_REVIEW_COMMENT}},
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
    reviews: list[dict[str, Any]] = field(default_factory=list)
    updates: int = 0
    """How often a comment was changed."""
    diff: str = ""
    """The diff of each pull request."""
    shown_lines: dict[str, list[range]] = field(default_factory=dict)
    """The lines of each file that the hunks of the diff show."""
    may_read_user: bool = True
    validate: Callable[[str, str, Any], None] = lambda _method, _path, _content: None
    """Checks a request. Raises if it does not fit the published description."""
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
    is_gitea: bool = False
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

    def handle_error(self, request: Any, client_address: Any):
        """A client that is killed closes the connection, which is no error."""


class _Refused(Exception):
    def __init__(self, status: int, message: str, errors: Sequence[str] = ()):
        super().__init__(message)
        self.answer = status, {"message": message, "errors": errors}


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self):
        self._answer()

    def do_POST(self):
        self._answer()

    def do_PATCH(self):
        self._answer()

    def _answer(self):
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
            github.validate(self.command, self.path, json.loads(body) if body else None)
            answer = self._perform(urlsplit(self.path).path, body)
        except _Refused as error:
            answer = error.answer
        except jsonschema.ValidationError as error:
            answer = 422, {"message": error.message}
        if is_held:
            self._hold()
        elif status is None:
            self._send(*answer)

    def _hold(self):
        self.server.github.is_holding.set()
        self.server.github.release.wait(20)

    def _perform(self, path: str, body: bytes) -> tuple[int, Any]:
        github = self.server.github
        content: Any = json.loads(body) if body else None
        match self.command, path.removeprefix(_REPOSITORY).split("/")[1:]:
            case "GET", ["user"]:
                self._require_token()
                if not github.may_read_user:
                    return 403, {"message": "Resource not accessible by personal access token"}
                return 200, {"login": "octocat", "id": ACCOUNT_NUMBER}
            case "GET", ["app"]:
                self._require_jwt()
                installations = int(github.is_installed)
                return 200, {"id": APP_NUMBER, "permissions": github.permissions, "installations_count": installations}
            case "GET", ["installation"]:
                self._require_jwt()
                if not github.is_installed:
                    return 404, {"message": "Not Found"}
                return 200, {
                    "id": INSTALLATION,
                    "app_id": APP_NUMBER,
                    "app_slug": "hookmill",
                    "permissions": github.permissions,
                }
            case "POST", ["app", "installations", installation, "access_tokens"] if installation == str(INSTALLATION):
                self._require_jwt()
                return self._create_token(content)
            case "GET", ["issues", "comments", comment]:
                self._require_token("issues", "pull_requests")
                return 200, self._comment(comment)
            case "PATCH", ["issues", "comments", comment]:
                self._require_token("issues", "pull_requests")
                jsonschema.validate(content, _COMMENT_BODY)
                self._comment(comment).update(content)
                github.updates += 1
                return 200, self._comment(comment)
            case "GET", ["issues", _, "comments"]:
                self._require_token("issues", "pull_requests")
                return 200, github.comments if github.is_gitea else self._page(github.comments)
            case "POST", ["issues", issue, "comments"]:
                self._require_token("issues", "pull_requests")
                jsonschema.validate(content, _COMMENT_BODY)
                number = max([each.get("id", 0) for each in github.comments], default=0) + 1
                page = f"{github.url}/acme/shop/issues/{issue}#{number}"
                github.comments.append({"id": number, "html_url": page, **self._author(), **content})
                return 201, github.comments[-1]
            case "GET", ["pulls", pull] if pull.endswith(".diff") is github.is_gitea:
                self._require_token("pull_requests")
                assert self.headers["Accept"] == "application/vnd.github.diff"
                return 200, github.diff
            case "GET", ["pulls", _, "reviews"]:
                self._require_token("pull_requests")
                return 200, self._page(github.reviews)
            case "POST", ["pulls", pull, "reviews"]:
                self._require_token("pull_requests")
                jsonschema.validate(content, _GITEA_REVIEW_BODY if github.is_gitea else _REVIEW_BODY)
                for comment in content.get("comments", ()):
                    self._require_shown(comment)
                number = len(github.reviews) + 1
                page = f"{github.url}/acme/shop/pull/{pull}#{number}"
                github.reviews.append({"id": number, "html_url": page, **self._author(), **content})
                return 200, {name: value for name, value in github.reviews[-1].items() if name != "comments"}
            case "POST", ["statuses", sha] if re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", sha):
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
                return 200, {"total_count": len(found), "check_runs": self._page(found)}
        return 404, {"message": "Not Found"}

    def _comment(self, number: str) -> dict[str, Any]:
        for comment in self.server.github.comments:
            if str(comment["id"]) == number:
                return comment
        raise _Refused(404, "Not Found")

    def _page(self, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        query = parse_qs(urlsplit(self.path).query)
        size, page = int(query["per_page"][0]), int(query["page"][0])
        return objects[(page - 1) * size : page * size]

    def _author(self) -> dict[str, Any]:
        if self.headers["Authorization"].removeprefix("Bearer ") == TOKEN:
            return {
                "user": {"login": "octocat", "id": ACCOUNT_NUMBER, "type": "User"},
                "performed_via_github_app": None,
            }
        bot = {"login": "hookmill[bot]", "id": 9, "type": "Bot"}
        return {"user": bot, "performed_via_github_app": {"id": APP_NUMBER}}

    def _require_shown(self, comment: dict[str, Any]):
        if self.server.github.is_gitea:
            return
        hunks = self.server.github.shown_lines.get(comment["path"], [])
        lines = {comment["line"], comment.get("start_line", comment["line"])}
        if not any(lines <= set(hunk) for hunk in hunks) or comment.get("start_line", 0) >= comment["line"]:
            raise _Refused(422, "Unprocessable Entity", ["Pull request review thread line must be part of the diff"])

    def _validate_check_run(self, content: Any, schema: Any):
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

    def _require_jwt(self):
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

    def _require_token(self, *permissions: str, allows_personal: bool = True):
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

    def _send(self, status: int, body: Any):
        self.send_response(status)
        for name, value in self.server.github.answer_headers.items():
            self.send_header(name, value)
        self.end_headers()
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        is_cut = self.server.github.cut(self.command, self.path)
        self.wfile.write(content[: len(content) // 2] if is_cut else content)

    def log_message(self, *_: Any):
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
