"""A proxy to other hosts, as companies have them: it tunnels with CONNECT, and forwards requests without TLS."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class ForwardProxy:
    port: int
    requests: list[str] = field(default_factory=list)
    """The request lines."""
    authorization: str | None = None
    """What clients must send in `Proxy-Authorization`; None if they need nothing."""
    refusal: str | None = None
    """The reason phrase for those that send something else; None for that of the standard."""
    addresses: dict[str, str] = field(default_factory=dict)
    """The addresses of names that only the proxy knows."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: ForwardProxy

    def handle_error(self, *_: object) -> None:
        """A client that gives up closes the connection, which is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _is_permitted(self) -> bool:
        proxy = self.server.proxy
        proxy.requests.append(self.requestline)
        if proxy.authorization in (None, self.headers["Proxy-Authorization"]):
            return True
        self.send_error(407, proxy.refusal)
        return False

    def _address_of(self, host: str) -> str:
        return self.server.proxy.addresses.get(host, host)

    def do_CONNECT(self) -> None:
        if not self._is_permitted():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((self._address_of(host), int(port)), 20) as remote:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_copy, args=(remote, self.connection), daemon=True)
            back.start()
            _copy(self.connection, remote)
            back.join()

    def do_POST(self) -> None:
        if not self._is_permitted():
            return
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        client = http.client.HTTPConnection(self._address_of(parts.hostname or ""), parts.port, timeout=20)
        client.request("POST", parts.path, body, dict(self.headers.items()))
        answer = client.getresponse()
        self.send_response(answer.status)
        self.end_headers()
        self.wfile.write(answer.read())
        client.close()

    def log_message(self, *_: object) -> None:
        pass


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def forward_proxy(certificate: tuple[Path, Path] | None = None) -> Iterator[ForwardProxy]:
    """The proxy. With a certificate and its key, clients reach it with TLS."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*certificate)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.proxy = ForwardProxy(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server.proxy
        server.shutdown()
        thread.join()
