"""A webhook: an ingress URL of a factory, and how its sender authenticates."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import replace

from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.expect_every import expect_every_seconds, usable_expect_every
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.domain.name import usable_name
from hookmill.domain.networks import NETWORKS_MAX, usable_networks
from hookmill.domain.secret import usable_secret_name
from hookmill.domain.spec import Spec, read

if TYPE_CHECKING:
    from hookmill.domain.signatures.scheme import Scheme

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


_HEADER_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}"
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
    if not re.fullmatch(_HEADER_NAME, name):
        # The text does not repeat the value: it may be a secret in the wrong field.
        raise Invalid(f"This is not a header name. Use letters, digits and dashes, such as {example}.")
    if lowered in _CREDENTIAL_HEADERS:
        raise Invalid(f"{name} carries credentials, and {content} are stored and shown. Choose another header.")
    if lowered in _CONNECTION_HEADERS:
        raise Invalid(f"{name} belongs to the connection, not to the event. Choose another header.")
    return name


def usable_webhook_name(name: str) -> str:
    """`name`, trimmed. Raises `Invalid`."""
    return usable_name("webhook", name)


# The functions in `usable` check these, with better error texts. So the patterns are for schemas only.
WebhookName = Annotated[
    str,
    Meta(
        extra_json_schema={"minLength": 1, "maxLength": 100, "pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"},
        extra={"phrase": "text of 1 to 100 characters"},
    ),
]
HeaderName = Annotated[
    str, Meta(extra_json_schema={"pattern": f"^{_HEADER_NAME}$"}, extra={"phrase": "the name of a header"})
]
SecretName = Annotated[
    str,
    Meta(
        extra_json_schema={"pattern": "^[A-Za-z][A-Za-z0-9_]{0,63}$"},
        examples=["WEBHOOK_GITHUB_SECRET"],
        extra={"phrase": "the name of a team secret"},
    ),
]
NetworkText = Annotated[
    str,
    Meta(
        extra_json_schema={"pattern": "^[0-9A-Fa-f:.]{2,45}(/[0-9]{1,3})?$"},
        extra={"phrase": "text such as 192.0.2.0/24"},
    ),
]
ExpectedTime = Annotated[
    str,
    Meta(
        extra_json_schema={"pattern": "^(?=[0-9])([0-9]{1,3}d)?([0-9]{1,4}h)?([0-9]{1,6}m)?$"},
        extra={"phrase": "a time such as 1h or 1d12h"},
    ),
]


SIGNATURE_FIELDS: Final = {
    "signature_scheme": "A signature scheme",
    "signature_options": "Signature options",
    "answers_handshakes": "Answering handshakes",
}
"""The fields that only the mode `signature` uses, with the beginning of the error text in other modes."""


class WebhookSpec(Spec, frozen=True, kw_only=True):
    """What a person may set of a webhook."""

    name: Annotated[
        WebhookName,
        Meta(
            description="The name, unique in the factory.", examples=["orders"], extra={"usable": usable_webhook_name}
        ),
    ]
    auth_mode: Annotated[
        AuthMode,
        Meta(
            description="How senders authenticate: with a bearer token, with a token in the URL, or by signing each "
            "request."
        ),
    ] = AuthMode.TOKEN
    signature_scheme: Annotated[
        Annotated[str, Meta(max_length=100)] | None,
        Meta(
            description="With auth mode signature: the provider. `hookmill scheme list` shows the names.",
            examples=["github"],
        ),
    ] = None
    signature_options: Annotated[
        dict[str, Any] | None,
        Meta(
            description="With signature scheme hmac: how the sender signs. `hookmill scheme show hmac` describes it.",
            examples=[{"header": "X-Signature", "prefix": "sha256="}],
            extra={"phrase": "an object with the options of the scheme hmac"},
        ),
    ] = None
    answers_handshakes: Annotated[
        bool, Meta(description="With auth mode signature: whether to answer the provider's signed challenges.")
    ] = False
    secret_name: Annotated[
        SecretName | None,
        Meta(
            description="The name of the team secret that the webhook uses. By default, a new one with a "
            "suggested name.",
            extra={"usable": usable_secret_name},
        ),
    ] = None
    delivery_id_header: Annotated[
        HeaderName | None,
        Meta(
            description="The request header with the sender's event id. A second delivery with the same id is a "
            "duplicate. By default, the one that the scheme defines.",
            examples=["X-Event-Id"],
            extra={"usable": usable_delivery_id_header},
        ),
    ] = None
    event_header: Annotated[
        HeaderName | None,
        Meta(
            title="Event type header",
            description="The request header with the event type. Refused if the scheme defines where the event type "
            "is, as most do.",
            examples=["X-Event-Type"],
            extra={"usable": usable_event_header},
        ),
    ] = None
    allowed_networks: Annotated[
        Annotated[tuple[NetworkText, ...], Meta(extra_json_schema={"maxItems": NETWORKS_MAX})],
        Meta(
            description="The networks from which deliveries are accepted, as addresses or in CIDR notation. Empty: "
            "every network.",
            examples=[["192.0.2.0/24", "2001:db8::/32"]],
            extra={"phrase": 'a list of networks, such as ["192.0.2.0/24"]', "usable": usable_networks},
        ),
    ] = ()
    expect_every: Annotated[
        ExpectedTime | None,
        Meta(
            title="Expect a delivery every",
            description="An alarm is raised if no delivery is accepted for this time: 5 minutes to 30 days. By "
            "default, never.",
            examples=["1h", "1d12h"],
            extra={"usable": usable_expect_every},
        ),
    ] = None
    enabled: Annotated[bool, Meta(description="Whether deliveries are accepted. If not, senders get a 404.")] = True

    @property
    def scheme(self) -> "Scheme | None":
        """The signature scheme; None if the mode is not `signature`.

        Raises `Invalid` if there is no scheme of this name, or if it does not have these options.
        """
        if self.auth_mode is not AuthMode.SIGNATURE:
            return None
        # Imported here, because most commands don't need the catalogue, and start faster without it.
        from hookmill.domain.signatures import rule

        return rule.scheme_named(self.signature_scheme, self.signature_options)

    @property
    def expect_every_seconds(self) -> int | None:
        return expect_every_seconds(self.expect_every) if self.expect_every is not None else None

    def problems(self) -> Iterator[Fault]:
        if self.auth_mode is AuthMode.SIGNATURE:
            yield from self._problems_of_signature()
            return
        for field, option in SIGNATURE_FIELDS.items():
            if getattr(self, field) not in (None, False):
                message = f"{option} can only be used with auth mode signature. Omit it, or choose that mode."
                yield Fault(f"/{field}", message)

    def _problems_of_signature(self) -> Iterator[Fault]:
        from hookmill.domain.signatures import rule
        from hookmill.domain.signatures.generic import GENERIC_SCHEME

        try:
            scheme = rule.scheme_named(self.signature_scheme, self.signature_options)
        except Invalid as error:
            concerns_options = self.signature_scheme == GENERIC_SCHEME or self.signature_options is not None
            yield from error.faults_at("/signature_options" if concerns_options else "/signature_scheme")
            return
        if self.answers_handshakes and scheme.handshake is None:
            yield Fault("/answers_handshakes", f"{scheme.title} sends no signed challenges. Leave handshakes off.")
        header = self.delivery_id_header
        if header is not None and header.lower().encode() in scheme.compiled.signature_or_signed_headers:
            yield Fault(
                "/delivery_id_header",
                f"{header} is part of {scheme.title}'s signature. Delivery ids are stored and shown. Choose another "
                "header.",
            )
        if self.event_header is not None:
            try:
                rule.usable_event_header_for(scheme, self.signature_scheme, self.event_header)
            except Invalid as error:
                yield from error.faults_at("/event_header")


_FIELDS_OF_SCHEMES: Final = {"auth_mode", "delivery_id_header", "event_header", *SIGNATURE_FIELDS}
"""Which values these fields may have depends on the signature scheme."""
AUTHENTICATION_FIELDS: Final = frozenset({"auth_mode", "signature_scheme", "signature_options", "secret_name"})
"""After a change of one of them, senders must adapt, and the webhook uses the newest value of its team secret."""


class Webhook(WebhookSpec, frozen=True, kw_only=True):
    """A webhook as management shows it. It never contains the secret."""

    uid: WebhookUid
    no: int
    """The number of the webhook, which other tables contain instead of the longer uid."""
    factory_id: FactoryId
    secret_name: str
    state: WebhookState
    revision: int
    """Incremented by each change to the webhook, its secret, or the automations that select it."""
    created_at: int
    """In µs since 1970."""
    has_secret: bool = True
    """False until the provider's secret is supplied. Such a webhook can't be enabled."""
    secret_is_current: bool = True
    """False if the team secret has a newer value than the one that this webhook uses."""

    @property
    def spec(self) -> WebhookSpec:
        return WebhookSpec(**{name: getattr(self, name) for name in WebhookSpec.__struct_fields__})

    def changed(self, changes: Mapping[str, Any]) -> WebhookSpec:
        """The spec with some fields replaced. None resets a field to its default. Raises `Invalid` with pointers."""
        if changes.keys() & _FIELDS_OF_SCHEMES:
            return read(WebhookSpec, {**self.spec.as_json(), **changes})
        # A newer catalogue may lack the stored scheme. What does not depend on it can be changed nevertheless.
        given = read(WebhookSpec, {"name": self.name, **changes})
        return replace(self.spec, **{name: getattr(given, name) for name in changes})

    @property
    def defines_event_type(self) -> bool:
        """Whether the configuration defines where deliveries have their event type, as far as it is known."""
        if self.event_header is not None:
            return True
        try:
            scheme = self.scheme
        except Invalid:
            # A newer catalogue lacks the scheme.
            return True
        return scheme is not None and scheme.event_for(self.signature_scheme) is not None

    @property
    def command_argument(self) -> str:
        return command_argument(self.name, self.uid)

    def ingress_path(self) -> str:
        """The path of the URL, with a placeholder instead of a URL token."""
        token = f"/{TOKEN_PLACEHOLDER}" if self.auth_mode is AuthMode.URL_TOKEN else ""
        return f"{INGRESS_PREFIX}{self.uid}{token}"


def command_argument(name: str, uid: str) -> str:
    """A webhook as the argument of a command: its name, or its uid if the name needs quotes."""
    return name if _PLAIN_NAME.match(name) else uid
