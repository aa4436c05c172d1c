"""The deployment that is checked: where requests go, which webhooks they go to, and what arrived."""

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from hookmill.app.doctor.check import Deadline
from hookmill.app.doctor.exchange import (
    ANSWER_SECONDS,
    Connection,
    Headers,
    NoResponse,
    Origin,
    Response,
    chunk,
    request_head,
)
from hookmill.domain.delivery import Delivery
from hookmill.domain.errors import HookmillError
from hookmill.domain.webhook import INGRESS_PREFIX, AuthMode

USER_AGENT: Final = ("User-Agent", "hookmill-doctor")
REQUESTS_MAX: Final = 80
"""An upper bound, so that a mistake in a check can't become a flood."""
CHUNK_BYTES: Final = 16_384


class OutOfTime(HookmillError):
    """The checks took so long that the remaining ones are not made."""


class TooManyRequests(HookmillError):
    """The checks have sent `REQUESTS_MAX` requests, and may not send another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeWebhook:
    """A webhook that requests are sent to."""

    uid: str
    auth_mode: AuthMode
    secret: str = field(repr=False)
    """The sender's secret."""

    @property
    def path(self) -> str:
        token = f"/{self.secret}" if self.auth_mode is AuthMode.URL_TOKEN else ""
        return f"{INGRESS_PREFIX}{self.uid}{token}"

    @property
    def failing_path(self) -> str:
        """The path with a wrong token, if it contains one. A request needs a wrong Authorization header, too."""
        token = "/wrong" if self.auth_mode is AuthMode.URL_TOKEN else ""
        return f"{INGRESS_PREFIX}{self.uid}{token}"

    @property
    def authorization(self) -> Headers:
        return [("Authorization", f"Bearer {self.secret}")] if self.auth_mode is AuthMode.TOKEN else []


class ProbedInstallation(Protocol):
    """The installation behind the deployment: its webhooks and its log."""

    public_url: str
    """The base of the URL that senders sign."""
    trusted_proxies: Sequence[str]
    port: int

    def url_token_webhook(self) -> ProbeWebhook:
        """The only one. The last check that uses it deletes it."""
        ...

    @contextmanager
    def signed_webhook(self, scheme: str) -> Iterator[ProbeWebhook]:
        """A webhook of this signature scheme, which is removed afterwards."""
        ...

    def disable(self, webhook: ProbeWebhook) -> None: ...

    def delete(self, webhook: ProbeWebhook) -> None: ...

    def use_up_failures(self, webhook: ProbeWebhook) -> bool:
        """Whether the next failed authentication exceeds the rate limit. False if the limit is too high for that."""
        ...

    def delivery(self, delivery_id: str) -> Delivery | None:
        """The row in the log; None if there is no such row."""
        ...

    def payload(self, delivery_id: str) -> bytes | None: ...

    def log_of(self, webhook: ProbeWebhook) -> Sequence[Delivery]:
        """The rows of the webhook, newest first."""
        ...

    def log(self) -> Sequence[Delivery]:
        """The rows of all webhooks of this check."""
        ...


class ProbeWebhooks(Protocol):
    """Chooses the webhook for each request, so that no rate limit is exceeded."""

    def for_delivery(self) -> ProbeWebhook:
        """A `token` webhook, or the one of the caller, for one delivery."""
        ...

    def for_failure(self) -> ProbeWebhook:
        """The same, for one failed authentication."""
        ...


class Deployment:
    """Sends requests to a URL, within one deadline for all of them."""

    def __init__(
        self,
        origin: Origin,
        webhooks: ProbeWebhooks,
        installation: ProbedInstallation | None,
        *,
        tls: ssl.SSLContext,
        http2: ssl.SSLContext,
        seconds: float,
    ) -> None:
        """`installation`: None if only the responses can be checked.

        `tls`: the context for https. `http2`: the one for HTTP/2, which also allows HTTP/1.1.
        """
        self.origin = origin
        self.webhooks = webhooks
        self.installation = installation
        self.tls = tls
        self.http2 = http2
        self.deadline = Deadline(seconds)
        self.responses: list[Response] = []
        """All responses so far."""
        self.unanswered = 0
        """The number of requests without a response. Hookmill may have recorded them."""
        self._requests = 0

    def connect(self, *, origin: Origin | None = None, seconds: float = ANSWER_SECONDS) -> Connection:
        """Raises `NoResponse`, `OutOfTime` and `TooManyRequests`."""
        remaining = self.deadline.remaining()
        if remaining <= 0:
            raise OutOfTime("The time for all checks is over.")
        if self._requests >= REQUESTS_MAX:
            raise TooManyRequests(f"The checks have sent {self._requests} requests, and may not send another one.")
        return Connection(origin or self.origin, min(seconds, remaining), tls=self.tls)

    def head(self, method: str, path: str, headers: Headers) -> bytes:
        """The request line and the headers, with Host and User-Agent unless `headers` contains them."""
        names = {name.lower() for name, _ in headers}
        general = [pair for pair in (("Host", self.origin.authority), USER_AGENT) if pair[0].lower() not in names]
        return request_head(method, self.origin.path + path, [*general, *headers])

    def exchange(self, connection: Connection, *pieces: bytes, method: str = "POST") -> Response:
        """Send the request in pieces, and return the response."""
        self._requests += 1
        try:
            for piece in pieces:
                connection.send(piece)
            response = connection.response(method)
        except NoResponse:
            self.unanswered += 1
            raise
        self.responses.append(response)
        return response

    def send(self, method: str, path: str, headers: Headers = (), body: bytes = b"") -> Response:
        """One request on a connection of its own, with a declared length."""
        length = [("Content-Length", str(len(body)))] if body or method == "POST" else []
        with self.connect() as connection:
            head = self.head(method, path, [*headers, *length, ("Connection", "close")])
            return self.exchange(connection, head, body, method=method)

    def deliver(self, webhook: ProbeWebhook, body: bytes, headers: Headers = (), *, query: str = "") -> Response:
        """A delivery with the webhook's credential."""
        return self.send("POST", webhook.path + query, [*webhook.authorization, *headers], body)

    def deliver_in_chunks(self, webhook: ProbeWebhook, body: bytes) -> Response:
        """A delivery without a declared length."""
        headers = [*webhook.authorization, ("Transfer-Encoding", "chunked"), ("Connection", "close")]
        chunks = [chunk(body[start : start + CHUNK_BYTES]) for start in range(0, len(body), CHUNK_BYTES)]
        with self.connect() as connection:
            return self.exchange(connection, self.head("POST", webhook.path, headers), *chunks, chunk(b""))
