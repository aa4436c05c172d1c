"""Git repositories for tests, and a server that gives one of them out over HTTP, with a password if wanted."""

import base64
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

_ENVIRONMENT: Final = {
    "PATH": os.environ["PATH"],
    "HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{person}_NAME": "Ada" for person in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{person}_EMAIL": "ada@example.com" for person in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{person}_DATE": "2026-11-26T12:00:00Z" for person in ("AUTHOR", "COMMITTER")},
}


def git(directory: Path, *arguments: str) -> str:
    """The output of a Git command, without the line break at its end."""
    command = ("git", "-c", "init.defaultBranch=main", *arguments)
    return subprocess.run(
        command, cwd=directory, env=_ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.rstrip("\n")


@dataclass(frozen=True)
class SourceRepository:
    """A repository with a working tree, in which a test commits."""

    directory: Path

    @classmethod
    def create(cls, directory: Path, *options: str) -> "SourceRepository":
        directory.mkdir(parents=True)
        git(directory, "init", "--quiet", *options)
        return cls(directory)

    def commit(self, message: str = "change", **files: str) -> str:
        """Write files, commit them, and return the id of the commit. A keyword's `__` is a slash."""
        for name, content in files.items():
            path = self.directory / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        git(self.directory, "add", "--all")
        git(self.directory, "commit", "--quiet", "--allow-empty", "-m", message)
        return git(self.directory, "rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        return git(self.directory, *arguments)

    def store(self, kind: str, content: bytes) -> str:
        """Store an object as it is, even if it is malformed, and return its id."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            return self.git("hash-object", "-t", kind, "-w", "--literally", file.name)

    def branch(self, name: str, tree: str, *headers: str) -> str:
        """Create a branch with a new commit of a stored tree, and return the id of the commit.

        `headers`: the lines after the tree, instead of usual ones for the author and the committer.
        """
        usual = [f"{person} Ada <ada@example.com> 1767225600 +0000" for person in ("author", "committer")]
        content = "\n".join((f"tree {tree}", *(headers or usual), "", "change", ""))
        commit = self.store("commit", content.encode())
        # Git would refuse to name a malformed commit.
        (self.directory / ".git" / "refs" / "heads" / name).write_text(f"{commit}\n")
        return commit


def tree_entry(mode: str, name: str, object_id: str) -> bytes:
    return f"{mode} {name}\0".encode() + bytes.fromhex(object_id)


@dataclass(frozen=True)
class GitServer:
    url: str
    users: list[str] = field(default_factory=list)
    """The user of each request that had the right password."""
    refused: list[str] = field(default_factory=list)
    """The header `Authorization` of each refused request; empty without one."""


@contextmanager
def serve_over_http(
    repository: Path, *, password: str | None = None, refusal: str | None = None
) -> Iterator[GitServer]:
    """Serve the repository with `git http-backend` on a loopback address.

    `refusal`: the text with which requests with the right password are refused.
    """
    backend = Path(git(repository, "--exec-path")) / "git-http-backend"
    server_state: GitServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, *_: Any) -> None: ...

        def do_GET(self):
            self._answer()

        def do_POST(self):
            self._answer()

        def _answer(self):
            header = self.headers.get("Authorization", "")
            if password is not None:
                user, _, given = base64.b64decode(header.partition(" ")[2]).decode().partition(":")
                if given != password:
                    server_state.refused.append(header)
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="git"')
                    self.end_headers()
                    return
                server_state.users.append(user)
                if refusal is not None:
                    self.send_response(403)
                    self.send_header("Content-Type", "text/plain")
                    self.end_headers()
                    self.wfile.write(refusal.encode())
                    return
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            environment = {
                **_ENVIRONMENT,
                "GIT_PROJECT_ROOT": str(repository),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path.removeprefix("/app.git"),
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            answer = subprocess.run([backend], env=environment, input=body, stdout=subprocess.PIPE, check=True).stdout
            headers, _, content = answer.partition(b"\r\n\r\n")
            fields = [line.split(": ", 1) for line in headers.decode().split("\r\n")]
            status = dict(fields).pop("Status", "200 OK")
            self.send_response(int(status[:3]))
            for name, value in fields:
                if name != "Status":
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server_state = GitServer(f"http://127.0.0.1:{server.server_address[1]}/app.git")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server_state
        finally:
            server.shutdown()
            thread.join()
