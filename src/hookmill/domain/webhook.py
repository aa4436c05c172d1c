"""A webhook: an ingress URL of a factory, and how its sender authenticates."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from hookmill.domain.automation import Subscription
from hookmill.domain.errors import Invalid
from hookmill.domain.event import EventSource
from hookmill.domain.expect_every import expect_every_text
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.domain.networks import AllowedNetworks

if TYPE_CHECKING:
    from hookmill.domain.signatures.rule import SignatureRule

TOKEN_PLACEHOLDER: Final = "{token}"
INGRESS_PREFIX: Final = "/webhooks/w/"
_PLAIN_NAME: Final = re.compile(r"(?!wh_)[A-Za-z0-9][A-Za-z0-9._-]*\Z")


class AuthMode(StrEnum):
    TOKEN = "token"
    URL_TOKEN = "url_token"
    SIGNATURE = "signature"


class WebhookState(StrEnum):
    ENABLED = "enabled"
    DISABLED = "disabled"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook as management shows it. It never contains the secret."""

    uid: WebhookUid
    no: int
    """The number of the webhook, which other tables contain instead of the longer uid."""
    factory_id: FactoryId
    name: str
    auth_mode: AuthMode
    state: WebhookState
    secret_name: str
    signature_scheme: str | None
    delivery_id_header: str | None
    event_header: str | None
    """The request header with the event type. Not allowed if the signature scheme defines the location itself."""
    revision: int
    """Incremented by each change to the webhook, its secret, or the automations that select it."""
    created_at: int
    """In µs since 1970."""
    signature_options: dict[str, Any] | None = None
    """The user's options of the scheme `hmac`."""
    answers_handshakes: bool = False
    """Whether the ingress replies to a provider's signed challenge. A challenge starts no runs."""
    has_secret: bool = True
    """False until the provider's secret is supplied. Such a webhook can't be enabled."""
    secret_is_current: bool = True
    """False if the team secret has a newer value than the one that this webhook uses."""
    allowed_networks: tuple[str, ...] = ()
    """The networks from which deliveries are accepted, as `usable_networks` returns them. Empty: every network."""
    expect_every_seconds: int | None = None
    """The service raises an alarm if it accepts no delivery for this time. None: never."""

    @property
    def expect_every(self) -> str | None:
        """`expect_every_seconds` as people write it, such as `1h`."""
        return expect_every_text(self.expect_every_seconds) if self.expect_every_seconds is not None else None

    @property
    def command_argument(self) -> str:
        """The webhook as the argument of a command: its name, or its uid if the name needs quotes."""
        return self.name if _PLAIN_NAME.match(self.name) else self.uid

    def ingress_path(self) -> str:
        """The path of the URL, with a placeholder instead of a URL token."""
        token = f"/{TOKEN_PLACEHOLDER}" if self.auth_mode is AuthMode.URL_TOKEN else ""
        return f"{INGRESS_PREFIX}{self.uid}{token}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressWebhook:
    """A webhook as the ingress uses it, with its secret and its subscriptions. It may be disabled or deleted.

    All fields are read in one transaction. A change to the webhook, its secret or its subscriptions increments
    `revision`. An evaluation is used only if the stored revision is still the same.
    """

    uid: WebhookUid
    no: int
    factory_id: FactoryId
    revision: int
    auth_mode: AuthMode
    accepts_deliveries: bool
    """Whether it is enabled and has a secret."""
    secret_digest: bytes
    """SHA-256 of the secret. Only the token modes use it."""
    signature_rule: "SignatureRule | None"
    """The signature scheme and keys, for the mode `signature` only."""
    delivery_id_header: bytes | None
    """In lower case, as header names arrive."""
    event_source: EventSource | None
    subscriptions: tuple[Subscription, ...]
    allowed_networks: AllowedNetworks | None = None
    """None: clients of every network are allowed."""


_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")
_CREDENTIAL_HEADERS: Final = {"authorization", "proxy-authorization", "cookie", "set-cookie"}
_CONNECTION_HEADERS: Final = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "host",
}


def usable_delivery_id_header(name: str) -> str:
    """`name`. Raises `Invalid` if it is no header name, or if the header contains credentials or connection data."""
    return _usable_header(name, "delivery ids", "X-Event-Id")


def usable_event_header(name: str) -> str:
    """`name`. Raises `Invalid` like `usable_delivery_id_header`."""
    return _usable_header(name, "event types", "X-Event-Type")


def _usable_header(name: str, content: str, example: str) -> str:
    lowered = name.lower()
    if not _HEADER_NAME.match(name):
        raise Invalid(f"{name[:100]!r} is not a header name. Use letters, digits and dashes, such as {example}.")
    if lowered in _CREDENTIAL_HEADERS:
        raise Invalid(f"{name} carries credentials, and {content} are stored and shown. Choose another header.")
    if lowered in _CONNECTION_HEADERS:
        raise Invalid(f"{name} belongs to the connection, not to the event. Choose another header.")
    return name
