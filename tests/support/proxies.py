"""Real proxies in front of a service: nginx and Caddy, with the sample configurations of the project or changed ones.

The programs come from the system, or from Debian's packages.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.certificates import write_certificates
from tests.support.debian import program
from tests.support.ports import free_port, is_free
from tests.support.processes import end_with_the_tests
from tests.support.waiting import LONG_SECONDS, until

DEPLOY: Final = Path(__file__).parents[2] / "deploy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A place for a proxy at 127.0.0.1. `nginx` and `caddy` run one there."""

    directory: Path
    port: int
    """The port with TLS."""
    http_port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.pem"

    @contextmanager
    def nginx(self, service_port: int, changes: Mapping[str, str] | None = None) -> Iterator[None]:
        """nginx with the sample configuration, in which each key of `changes` is replaced by its value."""
        directory = self.directory
        site = _changed(
            (DEPLOY / "nginx" / "hookmill.conf").read_text(),
            {
                **(changes or {}),
                "listen 80;": f"listen 127.0.0.1:{self.http_port};",
                "listen 443 ssl http2;": f"listen 127.0.0.1:{self.port} ssl http2;",
                "/etc/ssl/hooks.example.com/fullchain.pem": str(directory / "server.pem"),
                "/etc/ssl/hooks.example.com/privkey.pem": str(directory / "server.key"),
                "127.0.0.1:8420": f"127.0.0.1:{service_port}",
            },
        )
        temporary = "".join(
            f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (directory / "nginx.conf").write_text(
            f"daemon off;\npid {directory}/nginx.pid;\nerror_log {directory}/nginx.log info;\nworker_processes 1;\n"
            f"events {{ worker_connections 256; }}\n"
            f"http {{\naccess_log off;\nproxy_bind {PROXY_ADDRESS};\n{temporary}{site}}}\n"
        )
        command = [
            program("nginx", package="nginx"),
            "-p",
            str(directory),
            "-e",
            str(directory / "nginx.log"),
            "-c",
            "nginx.conf",
        ]
        # As root, nginx would look for an account of its own.
        account = ["-g", "user root;"] if os.geteuid() == 0 else []
        with self._running([*command, *account]):
            yield

    @contextmanager
    def caddy(self, service_port: int, changes: Mapping[str, str] | None = None) -> Iterator[None]:
        """Caddy with the sample configuration, in which each key of `changes` is replaced by its value."""
        directory = self.directory
        certificate = f"{directory}/server.pem {directory}/server.key"
        site = _changed(
            (DEPLOY / "caddy" / "Caddyfile").read_text(),
            {
                **(changes or {}),
                "{$HOOKMILL_HOSTNAME:hooks.example.com} {": f"{self.url} {{\n\ttls {certificate}",
                "{$HOOKMILL_UPSTREAM:127.0.0.1:8420}": f"127.0.0.1:{service_port}",
            },
        )
        options = f"{{\n\tadmin off\n\thttp_port {self.http_port}\n\thttps_port {self.port}\n"
        options += "\tskip_install_trust\n\tdefault_bind 127.0.0.1\n}\n"
        (directory / "Caddyfile").write_text(options + site)
        config = str(directory / "Caddyfile")
        with self._running([program("caddy", package="caddy"), "run", "--adapter", "caddyfile", "--config", config]):
            yield

    @contextmanager
    def _running(self, command: list[str]) -> Iterator[None]:
        directory = str(self.directory)
        environment = os.environ | {"XDG_DATA_HOME": directory, "XDG_CONFIG_HOME": directory}
        output_file = self.directory / "output.log"
        with output_file.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=end_with_the_tests,
            )
        try:
            until(lambda: process.poll() is not None or accepts_connections(self.port), "the proxy listens")
            assert process.poll() is None, output_file.read_text()
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
            until(lambda: is_free(self.port), "the port is free for the next proxy")


def accepts_connections(port: int) -> bool:
    """Whether a server listens at the port. `is_free` would listen there for a moment, in which the proxy could not."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=LONG_SECONDS):
        return True
    return False


PROXY_ADDRESS: Final = "127.0.0.9"
"""The address from which nginx connects to the service, so that it differs from that of clients."""


def proxy_place(directory: Path, *, days: int = 30) -> Proxy:
    """A place for proxies, with a certificate that is valid for `days` more days."""
    directory.mkdir(parents=True, exist_ok=True)
    write_certificates(directory / "ca.pem", directory / "server.pem", directory / "server.key", days=days)
    return Proxy(directory=directory, port=free_port(), http_port=free_port())


def _changed(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, f"the sample configuration does not contain {old!r}"
        text = text.replace(old, new)
    return text
