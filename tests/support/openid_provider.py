"""A real OpenID Connect provider for tests, in a process of its own. See `openid_server`."""

import http.client
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.ports import free_port
from tests.support.processes import end_with_the_tests
from tests.support.waiting import until

CLIENT_ID: Final = "hookmill"
Users = Mapping[str, Mapping[str, Any]]
"""The claims of each user, by the name."""
_ROOT: Final = Path(__file__).parents[2]


class OpenIdProvider:
    """A running provider. Each user's password is the name."""

    def __init__(self, directory: Path, redirect_uri: str, users: Users):
        self._log = directory / "openid-provider.log"
        self._port = free_port()
        self.issuer = f"http://127.0.0.1:{self._port}"
        self.client_secret = secrets.token_hex(16)
        config = {
            "port": self._port,
            "client_id": CLIENT_ID,
            "client_secret": self.client_secret,
            "redirect_uri": redirect_uri,
            "users": users,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.openid_server", json.dumps(config)],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_the_tests,
            )
        until(self._is_ready, "the OpenID Connect provider is ready")

    def settings(self) -> dict[str, str]:
        """The service's settings, by name."""
        return {
            "oidc_issuer": self.issuer,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": self.client_secret,
            "oidc_provider_name": "Example ID",
        }

    def set_users(self, users: Users):
        self._request("POST", "/test/users", json.dumps(users).encode())

    def stop(self):
        self._process.kill()
        self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            return self._request("GET", "/jwks") == 200
        except OSError:
            return False

    def _request(self, method: str, path: str, body: bytes | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            connection.request(method, path, body)
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def serving_openid(directory: Path, redirect_uri: str, users: Users) -> Iterator[OpenIdProvider]:
    provider = OpenIdProvider(directory, redirect_uri, users)
    try:
        yield provider
    finally:
        provider.stop()
