"""Signs requests like a provider, for tests of a webhook and for examples.

For public-key schemes, the signer needs the private key. A webhook has only the public key.
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
from hookmill.domain.filters.rendering import exact_json, text_of
from hookmill.domain.payload import Json, Parsed, parse
from hookmill.domain.signatures.encoding import Encoding, decode_base64_secret, decode_hex_secret, encode, encode_time
from hookmill.domain.signatures.key import decode_secret
from hookmill.domain.signatures.reading import RequestValues, SignedRequest
from hookmill.domain.signatures.scheme import Algorithm, Jwt, Scheme, SecretDecoding

JWT_LIFETIME_SECONDS: Final = 300
ENTROPY_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class RequestToSend:
    """A request that is ready to be sent. `body` and `url` include the values that the scheme puts into them."""

    headers: list[tuple[str, str]]
    body: bytes
    url: str


def sign(
    scheme: Scheme,
    secret_text: str,
    body: bytes,
    url: str,
    at_us: int,
    delivery_id: str | None = None,
    event: tuple[str, str] | None = None,
) -> RequestToSend:
    """Sign as the provider would at `at_us` (µs since 1970). For public-key schemes, `secret_text` is the private key.

    `event` is the location of the event type (`header:NAME` or `json:PATH`) and the type. If `delivery_id` is None,
    schemes that sign the id get a generated one. Schemes without a location for the id ignore `delivery_id`. Raises
    `Invalid` if the secret can't sign, or if the scheme puts a value into the body and the body is not a JSON object.
    """
    draft = _Draft(scheme, body, url, at_us)
    if event is not None:
        draft.put(*event)
    draft.add_delivery_id(delivery_id)
    time_text = draft.add_time()
    draft.add_body_hash()
    draft.add_signed_headers()
    if scheme.jwt is not None:
        signature = _jwt(scheme.jwt, decode_secret(scheme, secret_text), draft.body, at_us)
    else:
        values = draft.request_values(time_text)
        if not scheme.algorithm.uses_public_key:
            values.secret = decode_secret(scheme, secret_text)
        signature = _signature(scheme, secret_text, values)
    draft.add_signature(scheme.signature.prefix + signature, time_text)
    return RequestToSend(draft.headers, draft.body, draft.url)


class _Draft:
    """A request to which headers and values are added until it is signed."""

    def __init__(self, scheme: Scheme, body: bytes, url: str, at_us: int) -> None:
        self.scheme, self.body, self.url, self.at_us = scheme, body, url, at_us
        self.headers: list[tuple[str, str]] = list(scheme.fixed_headers.items())

    def put(self, location: str, value: str) -> None:
        """Put the value into a header (`numbered:PREFIX`: the header PREFIX1) or the body.

        `field:NAME` does nothing: `add_signature` adds such an entry.
        """
        kind, _, name = location.partition(":")
        if kind == "header":
            self.headers.append((name, value))
        elif kind == "numbered":
            self.headers.append((f"{name}1", value))
        elif kind == "json":
            self.body = _with_value(self.scheme, self.body, name, value)

    def add_delivery_id(self, delivery_id: str | None) -> None:
        if not self.scheme.delivery_id:
            return
        location = self.scheme.delivery_id[0]
        is_signed = not self.scheme.compiled.content_template.placeholders.isdisjoint({"id", location})
        if delivery_id is None and is_signed:
            # The domain has no randomness, so the id is derived from the body and the time.
            delivery_id = "msg_" + sha256(b"%d %s" % (self.at_us, self.body)).hexdigest()[:32]
        if delivery_id is not None:
            self.put(location, delivery_id)

    def add_time(self) -> bytes:
        """Add the time, and return its text; empty without a time.

        A time in the body is put there only if the signed content names its place. Otherwise the body stays as it is.
        """
        timestamp = self.scheme.timestamp
        if timestamp is None:
            return b""
        time_text = encode_time(self.at_us, timestamp.unit)
        location = timestamp.sources[0]
        if not location.startswith("json:") or location in self.scheme.compiled.content_template.placeholders:
            self.put(location, time_text)
        return time_text.encode()

    def add_body_hash(self) -> None:
        rule = self.scheme.body_hash
        if rule is None:
            return
        path, _, query = self.url.partition("?")
        others = [part for part in query.split("&") if part and part.partition("=")[0] != rule.query_parameter]
        self.url = f"{path}?{'&'.join([*others, f'{rule.query_parameter}={sha256(self.body).hexdigest()}'])}"

    def add_signed_headers(self) -> None:
        rule = self.scheme.signed_headers
        if rule is not None:
            names = sorted({name.lower() for name, _ in self.headers} | {rule.header})
            self.headers.append((rule.header, ",".join(names)))

    def request_values(self, time_text: bytes) -> RequestValues:
        headers = {name.lower().encode(): value.encode() for name, value in self.headers}
        values = RequestValues(SignedRequest(headers, frozenset(), self.body, self.url))
        values.timestamp = time_text
        return values

    def add_signature(self, signature: str, time_text: bytes) -> None:
        list_format, timestamp = self.scheme.signature.list_format, self.scheme.timestamp
        if list_format is not None and list_format.tag:
            signature = f"{list_format.tag},{signature}"
        elif list_format is not None:
            parts = [f"{list_format.field}={signature}" if list_format.field else signature]
            kind, _, name = timestamp.sources[0].partition(":") if timestamp else ("", "", "")
            if kind == "field":
                parts.insert(0, f"{name}={time_text.decode()}" if list_format.field else time_text.decode())
            signature = list_format.separator.join(parts)
        self.put(self.scheme.signature.sources[0], signature)


def _with_value(scheme: Scheme, body: bytes, path: str, value: str) -> bytes:
    """The body with this value at the path. Missing objects and arrays of the path are created; of an existing array,
    only the first element is kept."""
    parsed = parse(body or b"{}")
    root: Json = parsed.value if isinstance(parsed, Parsed) else None
    if type(root) is not dict:
        raise Invalid(f"{scheme.title} puts values into the body, so the body must be a JSON object.")
    steps = path.split(".")
    container: Json = root
    for step, next_step in zip(steps, [*steps[1:], None], strict=True):
        if type(container) is list and step == "0":
            # The signature covers only the first element, so the others are removed.
            container[:] = container[:1] or [{}]
            container = container[0]
        elif type(container) is not dict:
            raise Invalid(
                f"{scheme.title} puts a value into the body at {path}, but a part of this path has another type."
            )
        elif next_step is None:
            container[step] = value
        else:
            container = container.setdefault(step, [] if next_step == "0" else {})
    return text_of(root, _scalar_text).encode()


def _scalar_text(value: Json) -> str:
    # Half of a surrogate pair has no encoding, so it must stay an escape.
    is_encodable = type(value) is str and not any("\ud800" <= character <= "\udfff" for character in value)
    return json.dumps(value, ensure_ascii=False) if is_encodable else exact_json(value)


def _signature(scheme: Scheme, secret_text: str, values: RequestValues) -> str:
    compiled = scheme.compiled
    if scheme.algorithm is Algorithm.TOKEN:
        return values.secret.decode()
    content = compiled.content_template.fill(values)
    if content is None:
        raise Invalid(f"{scheme.title} signs values that this request does not have: {scheme.content}")
    if scheme.algorithm.uses_public_key:
        value = _sign_with_private_key(scheme, secret_text, content)
    elif compiled.family == "hmac":
        value = hmac.digest(compiled.key_template.fill(values) or values.secret, content, compiled.digest)
    else:
        value = new_digest(compiled.digest, content, usedforsecurity=False).digest()
    return encode(scheme.signature.encoding, value)


def _sign_with_private_key(scheme: Scheme, text: str, content: bytes) -> bytes:
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
                return Ed25519PrivateKey.from_private_bytes(decode_hex_secret(text) or b"")
            case SecretDecoding.BASE64:
                return Ed25519PrivateKey.from_private_bytes(decode_base64_secret(text) or b"")
            case _ if text.startswith("-----BEGIN"):
                return serialization.load_pem_private_key(text.encode(), password=None)
            case _:
                return serialization.load_der_private_key(
                    decode_base64_secret("".join(text.split())) or b"", password=None
                )
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise Invalid(f"To sign for {scheme.title}, enter a private key. This text is not a private key.") from fault


def _jwt(rule: Jwt, key: bytes, body: bytes, at_us: int) -> str:
    now = at_us // 1_000_000
    claims: dict[str, Json] = {rule.body_claim: encode(rule.claim_encoding, sha256(body).digest())}
    # A provider without a fixed issuer sends the name of its key there. The claim is required.
    claims["iss"] = rule.issuer or "sample"
    if rule.requires_expiry:
        claims |= {"nbf": now, "exp": now + JWT_LIFETIME_SECONDS}
    parts = [encode(Encoding.BASE64URL, json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
    content = ".".join(parts)
    return f"{content}.{encode(Encoding.BASE64URL, hmac.digest(key, content.encode(), 'sha256'))}"


def example_secret(scheme: Scheme, entropy: bytes) -> str:
    """A secret with which to try out a scheme whose senders share it, derived from at least 64 random bytes."""
    assert len(entropy) >= ENTROPY_BYTES, "entropy is 64 bytes or more"
    if scheme.secret.decode is SecretDecoding.HEX:
        return entropy[:ENTROPY_BYTES].hex()
    if scheme.secret.decode is SecretDecoding.BASE64:
        prefix = scheme.secret.prefixes[-1] if scheme.secret.prefixes else ""
        return prefix + base64.b64encode(entropy[:32]).decode()
    return base64.urlsafe_b64encode(entropy[:48]).decode()
