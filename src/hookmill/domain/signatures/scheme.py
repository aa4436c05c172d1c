"""How one provider signs, as data; and that data made ready to judge by."""

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
    source,
)

NUMBERED_HEADERS_MAX: Final = 100
SIGNED_HEADERS_MAX: Final = 100


class Algorithm(StrEnum):
    HMAC_SHA1 = "hmac-sha1"
    HMAC_SHA256 = "hmac-sha256"
    HMAC_SHA512 = "hmac-sha512"
    TOKEN = "token"
    """The sender shows the secret itself."""
    ED25519 = "ed25519"
    ECDSA_P256_SHA256 = "ecdsa-p256-sha256"
    RSA_PKCS1_SHA256 = "rsa-pkcs1-sha256"
    JWT_HS256 = "jwt-hs256"
    """A token signed with HMAC-SHA256 that carries the body's digest as a claim."""
    HASH_SHA1 = "hash-sha1"
    """A plain digest over text that holds the secret: not an HMAC."""
    HASH_SHA256 = "hash-sha256"

    @property
    def family(self) -> str:
        """`hmac`, `hash`, `token`, `jwt`, or that of a public key: `ed25519`, `ecdsa`, `rsa`."""
        return self.partition("-")[0]

    @property
    def digest(self) -> str:
        """The name that hashlib knows the digest by."""
        return self.rpartition("-")[2].replace("hs256", "sha256")

    @property
    def uses_public_key(self) -> bool:
        return self.family in {"ed25519", "ecdsa", "rsa"}


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the catalogue. A field that nobody knows is a mistake there."""


class SignatureList(_Entry, frozen=True, kw_only=True):
    """One header that holds several entries; exactly one of `field`, `tag` and `positional` says which count."""

    split: str
    """What stands between entries, as the provider writes it; spaces beside it don't matter."""
    field: str = ""
    """Entries are `name=value`, and those of this name are signatures."""
    tag: str = ""
    """Entries are `tag,value`, and those with this tag are signatures."""
    positional: bool = False
    """The first entry is the time, and the others are signatures."""

    def __post_init__(self) -> None:
        if [bool(self.field), bool(self.tag), self.positional].count(True) != 1:
            raise ValueError("exactly one of field, tag and positional must be given")


class Signature(_Entry, frozen=True, kw_only=True):
    """Where the signature is, and how it is written."""

    sources: tuple[str, ...] = msgspec.field(name="from")
    """`header:NAME`, `json:PATH`, or `numbered:PREFIX` for PREFIX1 to PREFIX100; the first that is present counts."""
    encoding: Encoding
    prefix: str = ""
    """What every signature begins with, such as `sha256=`."""
    each: bool = False
    """Whether all the sources count instead of the first one present."""
    entries: SignatureList | None = msgspec.field(name="list", default=None)


class Timestamp(_Entry, frozen=True, kw_only=True):
    """When the sender signed."""

    sources: tuple[str, ...] = msgspec.field(name="from")
    """`header:NAME`, `json:PATH`, or `field:NAME` for an entry beside the signature; the first present counts."""
    unit: TimeUnit
    tolerance_seconds: int | None = None
    """What the provider advises; None where it gives no number."""
    enforced: bool = False
    """Whether an older or more future time is refused. Elsewhere the tolerance is advice, shown to people."""

    def __post_init__(self) -> None:
        if self.enforced and self.tolerance_seconds is None:
            raise ValueError("tolerance_seconds is missing where the time is enforced")


class SecretDecoding(StrEnum):
    TEXT = "text"
    """The secret's UTF-8 bytes are the key, whatever it looks like."""
    BASE64 = "base64"
    HEX = "hex"
    SPKI = "spki"
    """A public key in PEM, or the base64 that stands inside it."""


class SecretRule(_Entry, frozen=True, kw_only=True):
    """How the text that people paste becomes a key."""

    decode: SecretDecoding = SecretDecoding.TEXT
    strip: tuple[str, ...] = ()
    """Prefixes of which the first that fits is taken off before decoding."""
    foreign: tuple[str, ...] = ()
    """Prefixes of secrets that belong to something else and can't verify here."""
    normalize: bool = False
    """Whether Unicode NFKD is applied first."""
    minimum: int = 1
    """Bytes that a key has at least."""
    key: str = "{secret}"
    """What the HMAC is keyed with: text with {secret} and {ts}."""
    generated_prefix: str | None = None
    """What a secret begins with that this service makes; None where only the provider can make one."""


class Jwt(_Entry, frozen=True, kw_only=True):
    """What a signed token must claim."""

    body_claim: str
    """The claim that holds the body's SHA-256."""
    claim_encoding: Encoding
    issuer: str | None = None
    requires_expiry: bool = False


class BodyHash(_Entry, frozen=True, kw_only=True):
    """The body's SHA-256 in hex, as a parameter of the signed URL."""

    query: str


class SignedHeaders(_Entry, frozen=True, kw_only=True):
    """A header that lists which headers are signed."""

    header: str
    join: str


class Event(_Entry, frozen=True, kw_only=True):
    """Where a provider says which type of event it reports."""

    source: str = msgspec.field(name="from")
    """`header:NAME` or `json:PATH`."""
    docs: str
    """The provider's own page that says so."""


class Handshake(_Entry, frozen=True, kw_only=True):
    """A challenge that the provider signs and sends over POST, and what it wants to hear."""

    when: dict[str, str | int | list[str]]
    """Values that the request has at `header:NAME` or `json:PATH`: all of them make it a challenge."""
    status: int = 200
    text: str = ""
    """The answer as plain text, with placeholders."""
    reply: dict[str, str | int] | None = msgspec.field(name="json", default=None)
    """The answer as a JSON object, with placeholders in its texts. `{hmac:…}` is the hex HMAC of what follows."""


class ProofKind(StrEnum):
    SDK = "sdk"
    """The provider's own SDK accepts what this entry describes, and refuses mutations of it."""
    LIBRARY = "library"
    """The same of an independent library."""
    VECTOR = "vector"
    """The provider publishes an example, and it verifies."""
    NONE = "none"
    """Built from the provider's description only."""


class Proof(_Entry, frozen=True, kw_only=True):
    """Why this entry can be trusted, and where that can be looked up."""

    kind: ProofKind
    source: str


class Scheme(_Entry, frozen=True, kw_only=True, dict=True):
    """How one provider signs."""

    name: str
    title: str
    docs: str
    """The provider's own page about its signatures."""
    algorithm: Algorithm
    signature: Signature
    content: str = "{body}"
    """What is signed: text with {body}, {ts}, {id}, {url}, {path}, {method}, {secret}, {signed_headers},
    {header:NAME}, {json:PATH}, and {json?:PATH} which may be absent. {id} is the delivery id."""
    timestamp: Timestamp | None = None
    secret: SecretRule = SecretRule()
    delivery_id: tuple[str, ...] = ()
    """Where the provider puts the event's id; the first present counts."""
    event: Event | None = None
    alias_events: dict[str, Event] = {}
    """The same of other providers that sign in this way, by their names, where it is another place."""
    aliases_without_event: tuple[str, ...] = ()
    """Those of the other providers that do not say it in one place."""
    jwt: Jwt | None = None
    body_hash: BodyHash | None = None
    signed_headers: SignedHeaders | None = None
    also_sent: dict[str, str] = {}
    """Headers with a fixed value that the provider sends beside. Nothing depends on them here."""
    handshake: Handshake | None = None
    aliases: tuple[str, ...] = ()
    """Other providers that sign in exactly this way: accepted as names of this scheme."""
    setup: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    proof: Proof = Proof(kind=ProofKind.NONE, source="nothing yet")

    def __post_init__(self) -> None:
        if (self.algorithm is Algorithm.JWT_HS256) != (self.jwt is not None):
            raise ValueError("jwt is for the algorithm jwt-hs256, and required there")
        if (self.algorithm.family in {"ecdsa", "rsa"}) != (self.secret.decode is SecretDecoding.SPKI):
            raise ValueError("secret.decode is spki for the keys of ECDSA and RSA, and only for them")
        # A mistake in the data shows here, by the name of its field, and not when a request comes.
        self.compiled.check()

    @property
    def experimental(self) -> bool:
        """Whether nothing independent has confirmed this entry yet."""
        return self.proof.kind is ProofKind.NONE

    @property
    def covers_body(self) -> bool:
        """Whether a body that was changed on the way is refused."""
        return "body" in self.compiled.content.placeholders or self.jwt is not None or self.body_hash is not None

    @property
    def covers_time(self) -> bool:
        """Whether the time is signed, so that an old request can be told from a new one."""
        if self.timestamp is None:
            return self.jwt is not None and self.jwt.requires_expiry
        if "ts" in self.compiled.content.placeholders or "ts" in self.compiled.key.placeholders:
            return True
        if self.signed_headers is not None:
            return True
        return all(self.covers(where) for where in self.timestamp.sources)

    @property
    def covers_id(self) -> bool:
        """Whether the event's id is signed, so that nobody can send the same event under a new one."""
        if not self.delivery_id:
            return False
        return "id" in self.compiled.content.placeholders or all(self.covers(where) for where in self.delivery_id)

    def event_for(self, name: str | None) -> Event | None:
        """Where the provider says what happened, if its name for this scheme is `name`."""
        if name is None:
            return self.event
        return None if name in self.aliases_without_event else self.alias_events.get(name, self.event)

    def covers_event(self, name: str | None) -> bool:
        """Whether the event's type is signed, so that nobody can change it on the way."""
        event = self.event_for(name)
        return event is not None and self.covers(event.source)

    def covers(self, where: str) -> bool:
        """Whether the signature covers this header or this value of the body."""
        # What may be absent from the signed content is signed where it is present.
        if not self.compiled.content.placeholders.isdisjoint({where, where.replace("json:", "json?:", 1)}):
            return True
        return where.startswith("json:") and self.covers_body

    @cached_property
    def compiled(self) -> "CompiledScheme":
        return CompiledScheme(self)


class CompiledScheme:
    """A scheme compiled into readers, once: nothing of the data is looked at again while requests come."""

    __slots__ = (
        "_faults",
        "all_headers",
        "content",
        "decode",
        "delivery_id",
        "digest",
        "entries",
        "entry_mark",
        "entry_time",
        "family",
        "key",
        "key_differs",
        "keyed_content",
        "prefix",
        "proving_headers",
        "signatures",
        "signing_headers",
        "split",
        "timestamp",
        "timestamp_needed",
    )

    def __init__(self, scheme: Scheme) -> None:
        self._faults: list[str] = []
        signature, rule = scheme.signature, scheme.secret
        self.family, self.digest = scheme.algorithm.family, scheme.algorithm.digest
        self.signatures = self._signature_readers(signature)
        self.prefix = signature.prefix.encode()
        self.decode = decoder(signature.encoding, signature_size(scheme.algorithm))
        self.entries = signature.entries
        split = signature.entries.split if signature.entries else ""
        self.split = (split.strip() or split).encode()
        self.entry_mark = (signature.entries.field or signature.entries.tag).encode() if signature.entries else b""
        self.entry_time = self._entry_time(scheme.timestamp)
        self.timestamp = self._one("timestamp", scheme.timestamp.sources) if scheme.timestamp else None
        self.delivery_id = self._one("delivery_id", scheme.delivery_id) if scheme.delivery_id else None
        self._check_events(scheme)

        named: dict[str, Reader] = {}
        if self.delivery_id is not None:
            named["id"] = self.delivery_id
        if scheme.signed_headers is not None:
            listed = scheme.signed_headers
            named["signed_headers"] = signed_headers_reader(listed.header, listed.join, SIGNED_HEADERS_MAX)
        self.content = self._template("content", scheme.content, named)
        self.key = self._template("secret.key", rule.key, {})
        self.key_differs = rule.key != "{secret}"
        self.keyed_content = "secret" in self.content.placeholders
        signs_time = "ts" in self.content.placeholders or "ts" in self.key.placeholders
        enforces_time = scheme.timestamp is not None and scheme.timestamp.enforced
        self.timestamp_needed = signs_time or enforces_time
        if signs_time and scheme.timestamp is None:
            self._faults.append("timestamp: {ts} is signed, and nothing says where it is")
        self.proving_headers, self.signing_headers, self.all_headers = self._header_names(scheme)

    def check(self) -> None:
        """Raises `ValueError` that names the field at fault."""
        if self._faults:
            raise ValueError("; ".join(self._faults))

    def _signature_readers(self, signature: Signature) -> tuple[Reader, ...]:
        readers: list[Reader] = []
        for where in signature.sources:
            kind, _, name = where.partition(":")
            if kind == "numbered" and name:
                readers += [header_reader(f"{name}{number}") for number in range(1, NUMBERED_HEADERS_MAX + 1)]
            elif kind == "field":
                self._faults.append(f"signature.from: {where!r} is for timestamps")
            else:
                readers.append(self._one("signature.from", (where,)))
        every = signature.each or any(where.startswith("numbered:") for where in signature.sources)
        return tuple(readers) if every else (first_of(readers),) if readers else ()

    def _one(self, field: str, sources: tuple[str, ...]) -> Reader:
        try:
            return first_of([source(where) for where in sources])
        except (ValueError, IndexError) as fault:
            self._faults.append(f"{field}: {fault}")
            return lambda verification: None

    def _check_events(self, scheme: Scheme) -> None:
        events = {f"alias_events.{alias}": event for alias, event in scheme.alias_events.items()}
        if scheme.event is not None:
            events["event"] = scheme.event
        for field, event in events.items():
            if event.source.startswith("field:"):
                self._faults.append(f"{field}: {event.source!r} is for timestamps")
            self._one(f"{field}.from", (event.source,))
        for alias in scheme.alias_events:
            if alias not in scheme.aliases:
                self._faults.append(f"alias_events: {alias} is none of the aliases")
        for alias in scheme.aliases_without_event:
            if alias not in scheme.aliases:
                self._faults.append(f"aliases_without_event: {alias} is none of the aliases")
            if alias in scheme.alias_events:
                self._faults.append(f"aliases_without_event: {alias} has a place in alias_events")

    def _template(self, field: str, text: str, named: dict[str, Reader]) -> Template:
        try:
            return Template(text, named)
        except ValueError as fault:
            self._faults.append(f"{field}: {fault}")
            return Template("", {})

    def _entry_time(self, timestamp: Timestamp | None) -> bytes:
        names = [where.removeprefix("field:") for where in (timestamp.sources if timestamp else ())]
        return names[0].encode() if names and timestamp and timestamp.sources[0].startswith("field:") else b""

    def _header_names(self, scheme: Scheme) -> tuple[frozenset[bytes], frozenset[bytes], frozenset[bytes]]:
        """Three sets, each a part of the next: the headers that hold the proof; with what else is signed, the event's
        id apart; with that id, too."""
        proving: set[str] = set()
        for where in (*scheme.signature.sources, *(scheme.timestamp.sources if scheme.timestamp else ())):
            kind, _, name = where.partition(":")
            if kind == "numbered":
                proving |= {f"{name}{number}" for number in range(1, NUMBERED_HEADERS_MAX + 1)}
            if kind == "header":
                proving.add(name)
        if scheme.signed_headers is not None:
            proving.add(scheme.signed_headers.header)
        ids = {where.partition(":")[2] for where in scheme.delivery_id if where.startswith("header:")}
        signed = {name.partition(":")[2] for name in self.content.placeholders if name.startswith("header:")}
        used = proving | signed | (ids if "id" in self.content.placeholders else set())
        # An event's id is no credential: people may name its header as their own identity header.
        return _lowered(proving - ids), _lowered((proving | signed) - ids), _lowered(used)


def _lowered(names: set[str]) -> frozenset[bytes]:
    return frozenset(name.lower().encode() for name in names)


def signature_size(algorithm: Algorithm) -> int | None:
    """The bytes of a signature; None where the key decides."""
    sizes = {"sha1": 20, "sha256": 32, "sha512": 64}
    if algorithm.family in {"hmac", "hash"}:
        return sizes[algorithm.digest]
    return 64 if algorithm is Algorithm.ED25519 else None


def signing_headers(scheme: Scheme) -> frozenset[bytes]:
    """The headers that hold the proof, in lower case: none of them may be named as a webhook's delivery id header."""
    return scheme.compiled.signing_headers
