"""The other direction: the same data signs, for trying out a webhook and for examples.

The private side of a public key stays with whoever signs; a webhook only ever holds the public one.
"""

import base64
import hmac
import json
from dataclasses import dataclass
from hashlib import new as new_digest
from hashlib import sha256
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from hookmill.domain.errors import Invalid
from hookmill.domain.payload import Json
from hookmill.domain.signatures.encoding import Encoding, base64_secret, encode, hex_secret, written_time
from hookmill.domain.signatures.key import RSA_BITS_MIN, shared_key
from hookmill.domain.signatures.reading import SignedRequest, Verification
from hookmill.domain.signatures.scheme import Algorithm, Jwt, Scheme, SecretDecoding

JWT_LIFETIME_SECONDS: Final = 300
ENTROPY_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Signed:
    """A request that is ready to be sent. The body and the URL differ from what was given where the scheme keeps its
    signature, its id or the body's digest there."""

    headers: list[tuple[str, str]]
    body: bytes
    url: str


@dataclass(frozen=True, slots=True)
class ExampleSecret:
    """A pair that works: what the sender signs with, and what the webhook is given. Equal for shared secrets."""

    signing: str
    webhook: str


def sign(
    scheme: Scheme,
    secret_text: str,
    body: bytes,
    url: str,
    at_us: int,
    delivery_id: str | None = None,
    event: tuple[str, str] | None = None,
) -> Signed:
    """Sign as the provider would at `at_us` (µs since 1970). For public keys, `secret_text` is the private one.

    `event` is the event's type, after its place: `header:NAME` or `json:PATH`.
    Without a delivery id, one is made for schemes that sign it, and left out elsewhere. Raises `Invalid` when the
    scheme writes into the body and the body is no JSON object, or when the secret can't sign.
    """
    draft = _Draft(scheme, body, url, at_us)
    if event is not None:
        draft.put(*event)
    draft.add_delivery_id(delivery_id)
    written_at = draft.add_time()
    draft.add_body_hash()
    draft.add_signed_headers()
    if scheme.jwt is not None:
        signature = _token(scheme.jwt, shared_key(scheme, secret_text), draft.body, at_us)
    else:
        verification = draft.verification(written_at)
        if not scheme.algorithm.uses_public_key:
            verification.secret = shared_key(scheme, secret_text)
        signature = _signature(scheme, secret_text, verification)
    draft.add_signature(scheme.signature.prefix + signature, written_at)
    return Signed(draft.headers, draft.body, draft.url)


class _Draft:
    """A request on its way to being signed."""

    def __init__(self, scheme: Scheme, body: bytes, url: str, at_us: int) -> None:
        self.scheme, self.body, self.url, self.at_us = scheme, body, url, at_us
        self.headers: list[tuple[str, str]] = list(scheme.also_sent.items())

    def put(self, where: str, value: str) -> None:
        kind, _, name = where.partition(":")
        if kind == "header":
            self.headers.append((name, value))
        elif kind == "numbered":
            self.headers.append((f"{name}1", value))
        elif kind == "json":
            self.body = _with_value(self.scheme, self.body, name, value)

    def add_delivery_id(self, delivery_id: str | None) -> None:
        if not self.scheme.delivery_id:
            return
        where = self.scheme.delivery_id[0]
        needed = {"id", where} & self.scheme.compiled.content.placeholders
        if delivery_id is None and needed:
            # From the body and the time, so that a repeat of the same event has the same id.
            delivery_id = "msg_" + sha256(b"%d %s" % (self.at_us, self.body)).hexdigest()[:32]
        if delivery_id is not None:
            self.put(where, delivery_id)

    def add_time(self) -> bytes:
        timestamp = self.scheme.timestamp
        if timestamp is None:
            return b""
        written = written_time(self.at_us, timestamp.unit)
        where = timestamp.sources[0]
        if not where.startswith("json:") or where in self.scheme.compiled.content.placeholders:
            self.put(where, written)
        return written.encode()

    def add_body_hash(self) -> None:
        rule = self.scheme.body_hash
        if rule is None:
            return
        bare, _, query = self.url.partition("?")
        others = [part for part in query.split("&") if part and part.partition("=")[0] != rule.query]
        self.url = f"{bare}?{'&'.join([*others, f'{rule.query}={sha256(self.body).hexdigest()}'])}"

    def add_signed_headers(self) -> None:
        rule = self.scheme.signed_headers
        if rule is not None:
            names = sorted({name.lower() for name, _ in self.headers} | {rule.header})
            self.headers.append((rule.header, ",".join(names)))

    def verification(self, written_at: bytes) -> Verification:
        headers = {name.lower().encode(): value.encode() for name, value in self.headers}
        verification = Verification(SignedRequest(headers, frozenset(), self.body, self.url))
        verification.timestamp = written_at
        return verification

    def add_signature(self, signature: str, written_at: bytes) -> None:
        entries, timestamp = self.scheme.signature.entries, self.scheme.timestamp
        if entries is not None and entries.tag:
            signature = f"{entries.tag},{signature}"
        elif entries is not None:
            parts = [f"{entries.field}={signature}" if entries.field else signature]
            beside = timestamp.sources[0].partition(":") if timestamp else ("", "", "")
            if beside[0] == "field":
                parts.insert(0, f"{beside[2]}={written_at.decode()}" if entries.field else written_at.decode())
            signature = entries.split.join(parts)
        self.put(self.scheme.signature.sources[0], signature)


def _with_value(scheme: Scheme, body: bytes, path: str, value: str) -> bytes:
    """The body with this value at the path; what is missing on the way there is made."""
    try:
        whole: Json = json.loads(body or b"{}")
    except (ValueError, RecursionError) as fault:
        raise Invalid(f"{scheme.title} keeps values inside the body, so it must be a JSON object.") from fault
    if type(whole) is not dict:
        raise Invalid(f"{scheme.title} keeps values inside the body, so it must be a JSON object.")
    steps = path.split(".")
    place: Json = whole
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if type(place) is list:
            # Only ever the first element: a body with more of them is not signed as a whole.
            place[:] = place[:1] or [{}]
            place = place[0]
        elif type(place) is not dict:
            raise Invalid(f"{scheme.title} keeps a value inside the body at {path}, where this one has another.")
        elif following is None:
            place[step] = value
        else:
            place = place.setdefault(step, [] if following == "0" else {})
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _signature(scheme: Scheme, secret_text: str, verification: Verification) -> str:
    compiled = scheme.compiled
    if scheme.algorithm is Algorithm.TOKEN:
        return verification.secret.decode()
    content = compiled.content.fill(verification)
    if content is None:
        raise Invalid(f"{scheme.title} signs values that this request lacks: {scheme.content}")
    if scheme.algorithm.uses_public_key:
        value = _by_private_key(scheme, secret_text, content)
    elif compiled.family == "hmac":
        value = hmac.digest(compiled.key.fill(verification) or verification.secret, content, compiled.digest)
    else:
        value = new_digest(compiled.digest, content, usedforsecurity=False).digest()
    return encode(scheme.signature.encoding, value)


def _by_private_key(scheme: Scheme, text: str, content: bytes) -> bytes:
    key = _private_key(scheme, text.strip())
    match key:
        case Ed25519PrivateKey():
            return key.sign(content)
        case ec.EllipticCurvePrivateKey():
            return key.sign(content, ec.ECDSA(hashes.SHA256()))
        case rsa.RSAPrivateKey():
            return key.sign(content, PKCS1v15(), hashes.SHA256())
        case _:
            raise Invalid(f"This is not the kind of private key that signs for {scheme.title} ({scheme.algorithm}).")


def _private_key(scheme: Scheme, text: str) -> object:
    try:
        match scheme.secret.decode:
            case SecretDecoding.HEX:
                return Ed25519PrivateKey.from_private_bytes(hex_secret(text) or b"")
            case SecretDecoding.BASE64:
                return Ed25519PrivateKey.from_private_bytes(base64_secret(text) or b"")
            case _ if text.startswith("-----BEGIN"):
                return serialization.load_pem_private_key(text.encode(), password=None)
            case _:
                return serialization.load_der_private_key(base64_secret("".join(text.split())) or b"", password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise Invalid(f"Signing for {scheme.title} takes its private key, and this is none.") from fault


def _token(rule: Jwt, key: bytes, body: bytes, at_us: int) -> str:
    at = at_us // 1_000_000
    claims: dict[str, Json] = {rule.body_claim: encode(rule.claim_encoding, sha256(body).digest())}
    # Providers that don't fix their issuer put the name of a key there, and want to see one.
    claims["iss"] = rule.issuer or "sample"
    if rule.requires_expiry:
        claims |= {"nbf": at, "exp": at + JWT_LIFETIME_SECONDS}
    parts = [encode(Encoding.BASE64URL, json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
    signed = ".".join(parts)
    return f"{signed}.{encode(Encoding.BASE64URL, hmac.digest(key, signed.encode(), 'sha256'))}"


def example_secret(scheme: Scheme, entropy: bytes) -> ExampleSecret:
    """A secret for trying the scheme out, made of at least 64 random bytes.

    RSA keys come from the library's own random source, because they can't be made from so few bytes.
    """
    assert len(entropy) >= ENTROPY_BYTES, "entropy is 64 bytes or more"
    if scheme.algorithm.uses_public_key:
        return _example_pair(scheme, entropy)
    if scheme.secret.decode is SecretDecoding.HEX:
        text = entropy[:ENTROPY_BYTES].hex()
    elif scheme.secret.decode is SecretDecoding.BASE64:
        prefix = scheme.secret.strip[-1] if scheme.secret.strip else ""
        text = prefix + base64.b64encode(entropy[:32]).decode()
    else:
        text = base64.urlsafe_b64encode(entropy[:48]).decode()
    return ExampleSecret(text, text)


def _example_pair(scheme: Scheme, entropy: bytes) -> ExampleSecret:
    match scheme.algorithm:
        case Algorithm.ED25519:
            encoding = Encoding.HEX if scheme.secret.decode is SecretDecoding.HEX else Encoding.BASE64
            private = Ed25519PrivateKey.from_private_bytes(entropy[:32])
            return ExampleSecret(
                encode(encoding, entropy[:32]), encode(encoding, private.public_key().public_bytes_raw())
            )
        case Algorithm.ECDSA_P256_SHA256:
            # 512 bits fold into the curve's 256 without favouring any key.
            number = int.from_bytes(entropy[:ENTROPY_BYTES]) % (_P256_ORDER - 1) + 1
            return _pem_pair(ec.derive_private_key(number, ec.SECP256R1()))
        case _:
            return _pem_pair(rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS_MIN))


_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def _pem_pair(private: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> ExampleSecret:
    signing = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return ExampleSecret(signing.decode(), public.decode())
