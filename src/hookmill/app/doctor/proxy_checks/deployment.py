"""The deployment that is checked: where requests go, the temporary webhooks that they go to, and what arrived."""

import os
import signal
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from hookmill.app import Store, build_management
from hookmill.app.doctor.exchange import ANSWER_SECONDS, Connection, Headers, Origin, Response, chunk, request_head
from hookmill.domain.delivery import Delivery
from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.permission import MayManage
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import ENTROPY_BYTES, example_secret
from hookmill.domain.webhook import INGRESS_PREFIX, AuthMode
from hookmill.management import Management
from hookmill.outbound.connection import MessageDeadline
from hookmill.settings import Settings
from hookmill.store.exclusion import excluding_others

USER_AGENT: Final = ("User-Agent", "hookmill-doctor")
CHUNK_BYTES: Final = 16_384
WEBHOOKS_AT_ONCE: Final = 6
"""How many temporary webhooks exist at the same time, unless the rate limit is low."""
ID_HEADER: Final = "Hookmill_Doctor_Id"
"""The delivery id header of the temporary `token` webhooks. Its underscores are allowed, but some proxies drop it."""
_DOCTOR_LOCK: Final = 0x646F6374
"""The number of PostgreSQL's advisory lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeWebhook:
    """A temporary webhook. `authorization` is empty if its deliveries are signed."""

    uid: str
    secret: str = field(repr=False)
    authorization: Headers = field(repr=False)

    @property
    def path(self) -> str:
        return f"{INGRESS_PREFIX}{self.uid}"


class TemporaryWebhooks:
    """The webhooks that exist during the checks, and their log. Use `temporary_webhooks`, which removes them."""

    def __init__(self, settings: Settings, management: Management, may: MayManage) -> None:
        self.public_url = settings.public_url()
        """The base of the URL that senders sign."""
        self.trusted_proxies: Sequence[str] = settings.trusted_proxies
        self._deliveries_per_minute = settings.deliveries_per_minute
        self._management = management
        self._may = may
        self._deliveries = 0
        self._webhook: ProbeWebhook | None = None

    def for_delivery(self) -> ProbeWebhook:
        """A `token` webhook whose rate limit is not used up by earlier deliveries of these checks."""
        if self._webhook is None or self._deliveries % self._deliveries_per_minute == 0:
            self._webhook = self.create()
        self._deliveries += 1
        return self._webhook

    def create(self, scheme: str | None = None) -> ProbeWebhook:
        """A new webhook, which verifies signatures of the scheme, or else a token."""
        secret = None
        if scheme is not None:
            secret = example_secret(scheme_named(scheme, None), os.urandom(ENTROPY_BYTES))
        by_token = {"delivery_id_header": ID_HEADER}
        signed = {"auth_mode": AuthMode.SIGNATURE, "signature_scheme": scheme}
        created = self._management.probes.create(self._may, by_token if scheme is None else signed, secret)
        secret = secret or created.reveal()
        authorization = [("Authorization", f"Bearer {secret}")] if scheme is None else []
        return ProbeWebhook(uid=created.webhook.uid, secret=secret, authorization=authorization)

    def delivery(self, delivery_id: str) -> Delivery | None:
        try:
            return self._management.log.get(self._may, delivery_id)
        except NotFound:
            return None

    def payload(self, delivery_id: str) -> bytes | None:
        try:
            return self._management.log.payload(self._may, delivery_id)
        except NotFound:
            return None

    def newest(self, webhook: ProbeWebhook) -> Delivery | None:
        """The newest row in the log of the webhook."""
        return next(iter(self._management.log.newest(self._may, webhook=webhook.uid, limit=1)), None)


@contextmanager
def temporary_webhooks(settings: Settings, store: Store, factory: str | None) -> Iterator[TemporaryWebhooks]:
    """Creates temporary webhooks while the block runs, and removes them afterwards, with those of a killed `doctor`.

    `factory`: None for the first one that has room. Raises `Conflict` if another `doctor` runs, or no factory has room.
    """
    with excluding_others(store.database, number=_DOCTOR_LOCK, file_name="doctor.lock") as is_alone:
        if not is_alone:
            raise Conflict("Another `hookmill doctor --through` checks this installation. Wait until it ends.")
        management = build_management(settings, store)
        team = management.access.operator_of_team()
        management.probes.remove_leftovers(team)
        may = management.access.operator(factory) if factory is not None else _factory_with_room(management)
        try:
            yield TemporaryWebhooks(settings, management, may)
        finally:
            # Signals to stop wait until the webhooks are removed.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
            try:
                management.probes.remove_leftovers(team)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _factory_with_room(management: Management) -> MayManage:
    limit = management.config.webhooks_per_factory
    for factory in management.factories.all(management.access.operator_of_team()):
        may = management.access.operator(factory.name)
        has_room = len(management.webhooks.all(may)) + WEBHOOKS_AT_ONCE <= limit
        if has_room and not factory.defined_by_files:
            return may
    raise Conflict(
        f"No factory can have {WEBHOOKS_AT_ONCE} temporary webhooks: each is defined by files, or near its limit of "
        f"{limit}. Create one: hookmill factory create doctor"
    )


class Deployment:
    """Sends requests to a URL."""

    def __init__(self, origin: Origin, installation: TemporaryWebhooks, *, tls: ssl.SSLContext, seconds: float) -> None:
        """`installation`: the one behind the URL. `seconds`: the deadline of all requests together."""
        self.origin = origin
        self.installation = installation
        self.tls = tls
        self.deadline = MessageDeadline(seconds)

    def connect(self, *, origin: Origin | None = None, seconds: float = ANSWER_SECONDS) -> Connection:
        """Raises `NoResponse`."""
        remaining = max(self.deadline.remaining, 0.1)
        return Connection(origin or self.origin, min(seconds, remaining), tls=self.tls)

    def head(self, method: str, path: str, headers: Headers, *, user_agent: bool = True) -> bytes:
        """The request line and the headers, after which the connection ends."""
        general = [("Host", self.origin.authority), *([USER_AGENT] if user_agent else []), ("Connection", "close")]
        return request_head(method, self.origin.path + path, [*general, *headers])

    def send(self, method: str, path: str, headers: Headers = (), body: bytes = b"") -> Response:
        """One request with a declared length."""
        head = self.head(method, path, [*headers, ("Content-Length", str(len(body)))])
        return self._response(head + body, method)

    def deliver(self, body: bytes, headers: Headers = (), *, user_agent: bool = True) -> Response:
        """A delivery to a `token` webhook."""
        webhook = self.installation.for_delivery()
        length = ("Content-Length", str(len(body)))
        head = self.head("POST", webhook.path, [*webhook.authorization, length, *headers], user_agent=user_agent)
        return self._response(head + body)

    def deliver_in_chunks(self, body: bytes) -> Response:
        """A delivery without a declared length."""
        webhook = self.installation.for_delivery()
        chunks = [chunk(body[start : start + CHUNK_BYTES]) for start in range(0, len(body), CHUNK_BYTES)]
        head = self.head("POST", webhook.path, [*webhook.authorization, ("Transfer-Encoding", "chunked")])
        return self._response(head + b"".join(chunks) + chunk(b""))

    def _response(self, request: bytes, method: str = "POST") -> Response:
        with self.connect() as connection:
            connection.send(request)
            return connection.response(method)
