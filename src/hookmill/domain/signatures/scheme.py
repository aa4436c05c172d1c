"""A signature scheme: how one provider signs, as data, and compiled into readers."""

from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from hookmill.domain.signatures.encoding import Encoding, TimeUnit, decoder
from hookmill.domain.signatures.reading import (
    Reader,
    Template,
    first_of,
    header_reader,
    signed_headers_reader,
    source_reader,
)

NUMBERED_HEADERS_MAX: Final = 100
SIGNED_HEADERS_MAX: Final = 100


class Algorithm(StrEnum):
    HMAC_SHA1 = "hmac-sha1"
    HMAC_SHA256 = "hmac-sha256"
    HMAC_SHA512 = "hmac-sha512"
    TOKEN = "token"
    """The sender sends the secret itself."""
    ED25519 = "ed25519"
    ECDSA_P256_SHA256 = "ecdsa-p256-sha256"
    RSA_PKCS1_SHA256 = "rsa-pkcs1-sha256"
    JWT_HS256 = "jwt-hs256"
    """A token signed with HMAC-SHA256 that carries the body's digest as a claim."""
    HASH_SHA1 = "hash-sha1"
    """A plain digest over text that contains the secret; not an HMAC."""
    HASH_SHA256 = "hash-sha256"

    @property
    def family(self) -> str:
        """`hmac`, `hash`, `token` or `jwt`; for public keys `ed25519`, `ecdsa` or `rsa`."""
        return self.partition("-")[0]

    @property
    def digest(self) -> str:
        """The digest's name in hashlib."""
        return self.rpartition("-")[2].replace("hs256", "sha256")

    @property
    def uses_public_key(self) -> bool:
        return self.family in {"ed25519", "ecdsa", "rsa"}


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the catalogue. Unknown fields are errors."""


class ListFormat(_Table, frozen=True, kw_only=True):
    """The format of a header with a list of signatures. Exactly one of `field`, `tag` and `positional` is set."""

    separator: str = msgspec.field(name="split")
    """The separator between entries, as the provider writes it. Spaces around it are ignored."""
    field: str = ""
    """Entries are `name=value`, and the entries with this name are signatures."""
    tag: str = ""
    """Entries are `tag,value`, and the entries with this tag are signatures."""
    positional: bool = False
    """The first entry is the time, and the others are signatures."""

    def __post_init__(self) -> None:
        if [bool(self.field), bool(self.tag), self.positional].count(True) != 1:
            raise ValueError("exactly one of field, tag and positional is required")


class Signature(_Table, frozen=True, kw_only=True):
    """The location and the encoding of the signature."""

    sources: tuple[str, ...] = msgspec.field(name="from")
    """`header:NAME`, `json:PATH`, or `numbered:PREFIX` for PREFIX1 to PREFIX100. The first that is present is used, but
    all of them if one is `numbered`."""
    encoding: Encoding
    prefix: str = ""
    """The beginning of every signature, such as `sha256=`."""
    uses_all_sources: bool = msgspec.field(name="each", default=False)
    """Whether all the sources are used instead of the first that is present."""
    list_format: ListFormat | None = msgspec.field(name="list", default=None)
    """None if the header contains one signature."""


class Timestamp(_Table, frozen=True, kw_only=True):
    """The location and the unit of the signed time."""

    sources: tuple[str, ...] = msgspec.field(name="from")
    """`header:NAME`, `json:PATH` or, as the first source only, `field:NAME` for an entry of the signature's header. The
    first present is used."""
    unit: TimeUnit
    tolerance_seconds: int | None = None
    """The provider's recommendation; None if there is none."""
    enforced: bool = False
    """Whether a time outside the tolerance is refused. If not, the tolerance is only shown to users."""

    def __post_init__(self) -> None:
        if self.enforced and self.tolerance_seconds is None:
            raise ValueError("an enforced time needs tolerance_seconds")


class SecretDecoding(StrEnum):
    TEXT = "text"
    """The key is the secret's UTF-8 bytes, even if the secret looks like base64."""
    BASE64 = "base64"
    HEX = "hex"
    SPKI = "spki"
    """A public key in PEM, or the base64 inside the PEM."""


class SecretRule(_Table, frozen=True, kw_only=True):
    """How the secret that a user pastes becomes a key."""

    decode: SecretDecoding = SecretDecoding.TEXT
    prefixes: tuple[str, ...] = msgspec.field(name="strip", default=())
    """Prefixes of secrets. The first prefix that matches is removed before decoding."""
    foreign_prefixes: tuple[str, ...] = msgspec.field(name="foreign", default=())
    """Prefixes of the provider's other secrets, which do not sign webhooks."""
    normalize: bool = False
    """Whether the secret is normalized with Unicode NFKD before decoding."""
    key_bytes_min: int = msgspec.field(name="minimum", default=1)
    """The minimum size of a key, in bytes."""
    key: str = "{secret}"
    """The HMAC's key: text with {secret} and {ts}."""
    generated_prefix: str | None = None
    """The prefix of the secrets that this service generates; None if only the provider can generate them."""


class Jwt(_Table, frozen=True, kw_only=True):
    """The required claims of a signed token."""

    body_claim: str
    """The claim that contains the body's SHA-256."""
    claim_encoding: Encoding
    issuer: str | None = None
    requires_expiry: bool = False


class BodyHash(_Table, frozen=True, kw_only=True):
    """The body's SHA-256 in hex, as a parameter of the signed URL."""

    query_parameter: str


class SignedHeaders(_Table, frozen=True, kw_only=True):
    """A header that lists the signed headers."""

    header: str
    separator: str


class Event(_Table, frozen=True, kw_only=True):
    """The location of the event type in a provider's requests."""

    source: str = msgspec.field(name="from")
    """`header:NAME` or `json:PATH`."""
    docs: str
    """The provider's page that documents the location."""


class Handshake(_Table, frozen=True, kw_only=True):
    """A challenge that the provider signs and sends over POST, and the reply that it requires."""

    when: dict[str, str | int | list[str]]
    """The exact values at `header:NAME` or `json:PATH`; a list is a JSON array with exactly these elements. A request
    with all of them is a challenge."""
    when_absent: tuple[str, ...] = ()
    """`json:PATH` of values that a challenge does not have, if `when` alone also matches the provider's events."""
    status: int = 200
    text: str = ""
    """The reply as plain text, with placeholders."""
    reply: dict[str, str | int] | None = msgspec.field(name="json", default=None)
    """The reply as a JSON object, with placeholders in its texts. `{hmac:SOURCE}` is the hex HMAC of SOURCE's value."""


class ProofKind(StrEnum):
    SDK = "sdk"
    """The provider's own SDK accepts requests that match this entry, and refuses mutations of them."""
    LIBRARY = "library"
    """An independent library accepts requests that match this entry, and refuses mutations of them."""
    VECTOR = "vector"
    """The provider publishes a signed example, and this entry verifies it."""
    NONE = "none"
    """The entry is built from the provider's description only."""


class Proof(_Table, frozen=True, kw_only=True):
    """The evidence that this entry is correct, and its source."""

    kind: ProofKind
    source: str


class Scheme(_Table, frozen=True, kw_only=True, dict=True):
    """How one provider signs."""

    name: str
    title: str
    docs: str
    """The provider's page about its signatures."""
    algorithm: Algorithm
    signature: Signature
    content: str = "{body}"
    """The signed content: text with {body}, {ts}, {id}, {url}, {path}, {method}, {secret}, {signed_headers},
    {header:NAME}, {json:PATH}, and {json?:PATH}, which may be absent. {id} is the delivery id."""
    timestamp: Timestamp | None = None
    secret: SecretRule = SecretRule()
    delivery_id: tuple[str, ...] = ()
    """The locations of the event's id. The first that is present is used."""
    event: Event | None = None
    alias_events: dict[str, Event] = {}
    """The event type's location, by alias, for aliases whose provider has another location than `event`."""
    aliases_without_event: tuple[str, ...] = ()
    """The aliases whose provider has no single location for the event type."""
    jwt: Jwt | None = None
    body_hash: BodyHash | None = None
    signed_headers: SignedHeaders | None = None
    fixed_headers: dict[str, str] = {}
    """Further headers that the provider sends, with fixed values. Verification ignores them."""
    handshake: Handshake | None = None
    aliases: tuple[str, ...] = ()
    """Other providers that sign exactly so. Their names are accepted as names of the scheme."""
    setup: tuple[str, ...] = ()
    """The steps of the user at the provider."""
    notes: tuple[str, ...] = ()
    proof: Proof = Proof(kind=ProofKind.NONE, source="nothing yet")

    def __post_init__(self) -> None:
        if (self.algorithm is Algorithm.JWT_HS256) != (self.jwt is not None):
            raise ValueError("jwt is for the algorithm jwt-hs256, and required there")
        if (self.algorithm.family in {"ecdsa", "rsa"}) != (self.secret.decode is SecretDecoding.SPKI):
            raise ValueError("secret.decode is spki for the keys of ECDSA and RSA, and only for them")
        # A mistake in the catalogue is reported here with its field, before any request is verified.
        self.compiled.raise_if_faulty()

    @property
    def experimental(self) -> bool:
        """Whether no SDK, library or example confirms this entry."""
        return self.proof.kind is ProofKind.NONE

    @property
    def covers_body(self) -> bool:
        """Whether a delivery is refused if somebody changed its body in transit."""
        signs_body = "body" in self.compiled.content_template.placeholders
        return signs_body or self.jwt is not None or self.body_hash is not None

    @property
    def covers_time(self) -> bool:
        """Whether the time is signed, so that an old request can be distinguished from a new one."""
        if self.timestamp is None:
            return self.jwt is not None and self.jwt.requires_expiry
        if "ts" in self.compiled.content_template.placeholders or "ts" in self.compiled.key_template.placeholders:
            return True
        if self.signed_headers is not None:
            # Assumes that the provider lists the header with the time among the signed headers.
            return True
        return all(self.covers(source) for source in self.timestamp.sources)

    @property
    def covers_id(self) -> bool:
        """Whether the event's id is signed, so that nobody can send the same event with a new id."""
        if not self.delivery_id:
            return False
        signs_id = "id" in self.compiled.content_template.placeholders
        return signs_id or all(self.covers(source) for source in self.delivery_id)

    def event_for(self, name: str | None) -> Event | None:
        """The location of the event type for a provider; None if there is none.

        `name` is the scheme's name or an alias. None stands for the scheme's name.
        """
        if name is None:
            return self.event
        return None if name in self.aliases_without_event else self.alias_events.get(name, self.event)

    def covers_event(self, name: str | None) -> bool:
        """Whether the event type is signed, so that nobody can change it in transit."""
        event = self.event_for(name)
        return event is not None and self.covers(event.source)

    def covers(self, source: str) -> bool:
        """Whether the signature covers this `header:NAME` or `json:PATH`."""
        # `{json?:PATH}` in the signed content counts too: if the value is present, it is signed.
        if not self.compiled.content_template.placeholders.isdisjoint({source, source.replace("json:", "json?:", 1)}):
            return True
        return source.startswith("json:") and self.covers_body

    @cached_property
    def compiled(self) -> "CompiledScheme":
        return CompiledScheme(self)


class CompiledScheme:
    """A scheme compiled into readers, so that no request evaluates the scheme's data again."""

    def __init__(self, scheme: Scheme) -> None:
        self._faults: list[str] = []
        signature, rule = scheme.signature, scheme.secret
        self.family, self.digest = scheme.algorithm.family, scheme.algorithm.digest
        self.signature_readers = self._signature_readers(signature)
        self.prefix = signature.prefix.encode()
        self.decode = decoder(signature.encoding, signature_size(scheme.algorithm))
        self.list_format = signature.list_format
        separator = signature.list_format.separator if signature.list_format else ""
        # Spaces around the separator are ignored, unless it consists of spaces.
        self.separator = (separator.strip() or separator).encode()
        entry_name = (signature.list_format.field or signature.list_format.tag) if signature.list_format else ""
        self.entry_name = entry_name.encode()
        self.timestamp_entry_name = self._timestamp_entry_name(scheme.timestamp)
        self.read_timestamp = self._first_of("timestamp", scheme.timestamp.sources) if scheme.timestamp else None
        self.read_delivery_id = self._first_of("delivery_id", scheme.delivery_id) if scheme.delivery_id else None
        self._collect_event_faults(scheme)

        readers: dict[str, Reader] = {}
        if self.read_delivery_id is not None:
            readers["id"] = self.read_delivery_id
        if scheme.signed_headers is not None:
            header_list = scheme.signed_headers
            readers["signed_headers"] = signed_headers_reader(
                header_list.header, header_list.separator, SIGNED_HEADERS_MAX
            )
        self.content_template = self._template("content", scheme.content, readers)
        self.key_template = self._template("secret.key", rule.key, {})
        self.key_is_derived = rule.key != "{secret}"
        self.content_contains_secret = "secret" in self.content_template.placeholders
        signs_time = "ts" in self.content_template.placeholders or "ts" in self.key_template.placeholders
        enforces_time = scheme.timestamp is not None and scheme.timestamp.enforced
        self.needs_timestamp = signs_time or enforces_time
        if signs_time and scheme.timestamp is None:
            self._faults.append("timestamp: {ts} is signed, so its location is required")
        self.proving_headers, self.signature_or_signed_headers, self.used_headers = self._header_names(scheme)

    def raise_if_faulty(self) -> None:
        """Raise `ValueError` with the name of each wrong field."""
        if self._faults:
            raise ValueError("; ".join(self._faults))

    def _signature_readers(self, signature: Signature) -> tuple[Reader, ...]:
        readers: list[Reader] = []
        for source in signature.sources:
            kind, _, name = source.partition(":")
            if kind == "numbered" and name:
                readers += [header_reader(f"{name}{number}") for number in range(1, NUMBERED_HEADERS_MAX + 1)]
            elif kind == "field":
                self._faults.append(f"signature.from: {source!r} is for timestamps")
            else:
                readers.append(self._first_of("signature.from", (source,)))
        use_all = signature.uses_all_sources or any(source.startswith("numbered:") for source in signature.sources)
        return tuple(readers) if use_all else (first_of(readers),) if readers else ()

    def _first_of(self, field: str, sources: tuple[str, ...]) -> Reader:
        try:
            return first_of([source_reader(source) for source in sources])
        except (ValueError, IndexError) as fault:
            self._faults.append(f"{field}: {fault}")
            return lambda values: None

    def _collect_event_faults(self, scheme: Scheme) -> None:
        event_by_field = {f"alias_events.{alias}": event for alias, event in scheme.alias_events.items()}
        if scheme.event is not None:
            event_by_field["event"] = scheme.event
        for field, event in event_by_field.items():
            if event.source.startswith("field:"):
                self._faults.append(f"{field}: {event.source!r} is for timestamps")
            # The reader is not needed here, but compiling it finds faults.
            self._first_of(f"{field}.from", (event.source,))
        for alias in scheme.alias_events:
            if alias not in scheme.aliases:
                self._faults.append(f"alias_events: {alias} is not one of the aliases")
        for alias in scheme.aliases_without_event:
            if alias not in scheme.aliases:
                self._faults.append(f"aliases_without_event: {alias} is not one of the aliases")
            if alias in scheme.alias_events:
                self._faults.append(f"aliases_without_event: {alias} is also in alias_events")

    def _template(self, field: str, text: str, readers: dict[str, Reader]) -> Template:
        try:
            return Template(text, readers)
        except ValueError as fault:
            self._faults.append(f"{field}: {fault}")
            return Template("", {})

    def _timestamp_entry_name(self, timestamp: Timestamp | None) -> bytes:
        source = timestamp.sources[0] if timestamp and timestamp.sources else ""
        return source.removeprefix("field:").encode() if source.startswith("field:") else b""

    def _header_names(self, scheme: Scheme) -> tuple[frozenset[bytes], frozenset[bytes], frozenset[bytes]]:
        """Three sets of headers, each a subset of the next:

        1. The proving headers: they contain a signature, the time, or the list of signed headers. Headers with the
           event's id are not among them.
        2. The proving headers, and those that the signed content names as `{header:NAME}`. Headers that only a request
           lists as signed are unknown here. Headers with the event's id are not among them. A webhook can't have one of
           this set as its delivery id header.
        3. All headers that the scheme names and verification reads: also the header with the event's id, if the id is
           signed. `signed_headers_reader` checks the headers that a request lists.
        """
        proving: set[str] = set()
        for source in (*scheme.signature.sources, *(scheme.timestamp.sources if scheme.timestamp else ())):
            kind, _, name = source.partition(":")
            if kind == "numbered":
                proving |= {f"{name}{number}" for number in range(1, NUMBERED_HEADERS_MAX + 1)}
            if kind == "header":
                proving.add(name)
        if scheme.signed_headers is not None:
            proving.add(scheme.signed_headers.header)
        ids = {source.partition(":")[2] for source in scheme.delivery_id if source.startswith("header:")}
        signed = {name.partition(":")[2] for name in self.content_template.placeholders if name.startswith("header:")}
        used = proving | signed | (ids if "id" in self.content_template.placeholders else set())
        # An event's id is not a credential, so a webhook may have its header as the delivery id header.
        return _encoded(proving - ids), _encoded((proving | signed) - ids), _encoded(used)


def _encoded(names: set[str]) -> frozenset[bytes]:
    return frozenset(name.lower().encode() for name in names)


def signature_size(algorithm: Algorithm) -> int | None:
    """The size of a signature in bytes; None if the key determines it."""
    sizes = {"sha1": 20, "sha256": 32, "sha512": 64}
    if algorithm.family in {"hmac", "hash"}:
        return sizes[algorithm.digest]
    return 64 if algorithm is Algorithm.ED25519 else None
