"""A webhook as the ingress uses it. The command line, which needs webhooks too, starts faster without this module."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookmill.domain.automation import Subscription
from hookmill.domain.event import EventSource
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.domain.networks import AllowedNetworks
from hookmill.domain.webhook import AuthMode

if TYPE_CHECKING:
    from hookmill.domain.signatures.rule import SignatureRule


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
