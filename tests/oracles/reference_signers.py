"""Reference signers: each follows a provider's rule step by step, with only hashes and keys.

They are written from the providers' pages, not from the catalogue, so that a mistake in the catalogue becomes visible.
"""

import hashlib
import hmac
import json
import unicodedata
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.oracles.signed_delivery import SignedDelivery, SignFunction

AT = 1_760_000_000
URL = "https://hooks.example.com/in/9f3c2a"
DELIVERY_ID = "msg_2Zf8qkQ1"
MAILGUN_TOKEN = "ping1c0ffee"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSigner:
    """Signs deliveries like a provider. Has two secrets in the format in which users enter them."""

    scheme: str
    sign: SignFunction
    secret: str
    other_secret: str
    signature_location: str
    """A header, or for a signature in the body, `json:` and a path."""
    make_body: Callable[[int], bytes]
    covered_word: bytes | None = b"ping"
    """A word in the body that the signature covers."""
    uncovered_word: bytes | None = None
    """A word in the body that the signature does not cover."""
    covers_url: bool = False
    delivery_id: str = DELIVERY_ID

    def __str__(self) -> str:
        return self.scheme

    def delivery(self, body: bytes | None = None) -> SignedDelivery:
        return self.sign(self.secret, self.make_body(AT) if body is None else body, URL, AT, self.delivery_id)

    def signature(self, delivery: SignedDelivery) -> str:
        if not self.signature_location.startswith("json:"):
            return delivery.headers[self.signature_location]
        *path, last = self.signature_location.removeprefix("json:").split(".")
        return str(_value_at(json.loads(delivery.body), path)[last])

    def with_signature(self, delivery: SignedDelivery, signature: str | None) -> SignedDelivery:
        """The delivery with another signature, or without one."""
        if self.signature_location.startswith("json:"):
            *path, last = self.signature_location.removeprefix("json:").split(".")
            content = json.loads(delivery.body)
            _set_or_delete(_value_at(content, path), last, signature)
            return replace(delivery, body=json.dumps(content).encode())
        headers: dict[str, Any] = dict(delivery.headers)
        _set_or_delete(headers, self.signature_location, signature)
        return replace(delivery, headers=headers)


def with_reversed_word(body: bytes, word: bytes) -> bytes:
    """The body with one word reversed. It has the same length, and is still valid JSON."""
    assert body.count(word) == 1
    return body.replace(word, word[::-1])


# Secrets


def text_secret(scheme: str, number: int) -> str:
    return f"{scheme}-{sha256(f'{scheme} {number}'.encode()).hexdigest()[:40]}"


def base64_secret(scheme: str, number: int) -> str:
    return b64(sha256(f"{scheme} {number}".encode()).digest())


def whsec_secret(scheme: str, number: int) -> str:
    return f"whsec_{base64_secret(scheme, number)}"


def hex_secret(scheme: str, number: int) -> str:
    return sha256(f"{scheme} {number}".encode()).hexdigest().upper()


def secret_that_nfkd_changes(scheme: str, number: int) -> str:
    # NFKD changes both the ligature and the composed umlaut.
    return f"{text_secret(scheme, number)}-ﬁ-\u00fc"


def ed25519_hex_key(scheme: str, number: int) -> str:
    return _ed25519_public_key(number).hex()


def ed25519_base64_key(scheme: str, number: int) -> str:
    return b64(_ed25519_public_key(number))


def ecdsa_base64_key(scheme: str, number: int) -> str:
    private = ec.derive_private_key(1_000_003 * number, ec.SECP256R1())
    public = b64(private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    ECDSA_KEYS[public] = private
    return public


def signing_secret(secret: str) -> str:
    """The secret that the provider signs with: for a public key, its private key."""
    if secret in ECDSA_KEYS:
        return b64(ECDSA_KEYS[secret].private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    for public, private in ED25519_KEYS.items():
        if secret == public.hex():
            return private.private_bytes_raw().hex()
        if secret == b64(public):
            return b64(private.private_bytes_raw())
    return secret


def _ed25519_public_key(number: int) -> bytes:
    private = ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    public = private.public_key().public_bytes_raw()
    ED25519_KEYS[public] = private
    return public


ED25519_KEYS: dict[bytes, ed25519.Ed25519PrivateKey] = {}
ECDSA_KEYS: dict[str, ec.EllipticCurvePrivateKey] = {}
"""The private keys of the provider, by the public keys that users enter."""


# Bodies that the SDKs accept as their provider's. They contain spaces, escapes, characters beyond ASCII or line ends.


def event(at: int) -> bytes:
    return '{"id": "evt_1",  "type": "ping", "note": "grüße ☃ \\u00fc"}\n'.encode()


def gocardless_events(at: int) -> bytes:
    return b'{"events": [{"id": "EV1", "resource_type": "ping"}], "meta": {"webhook_id": "WB1"}}'


def airtable_notification(at: int) -> bytes:
    return b'{"base":{"id":"appping"},"webhook":{"id":"ach1"},"timestamp":"2025-10-09T08:53:20.000Z"}'


def pusher_events(at: int) -> bytes:
    return f'{{"time_ms": {at * 1_000}, "events": [{{"name": "ping", "channel": "grüße"}}]}}'.encode()


def sendgrid_events(at: int) -> bytes:
    # The line break is part of the body.
    return '[{"event":"ping","email":"grüße@example.com"}]\r\n'.encode()


def mailgun_event(at: int) -> bytes:
    proof = {"timestamp": str(at), "token": MAILGUN_TOKEN}
    return json.dumps({"signature": proof, "event-data": {"event": "unsigned"}}).encode()


def adyen_notification(at: int) -> bytes:
    item = {
        "pspReference": "7914073381342284",
        "merchantAccountCode": "TestMerchant",
        "merchantReference": "ping-1407325143704",
        "amount": {"value": 1130, "currency": "EUR"},
        "eventCode": "AUTHORISATION",
        "success": "true",
        "reason": "unsigned",
        "additionalData": {"cardSummary": "1111"},
    }
    return json.dumps({"live": "false", "notificationItems": [{"NotificationRequestItem": item}]}).encode()


# Signatures


def standard_webhooks(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    return _standard("webhook", b64decode(secret.removeprefix("whsec_")), secret, body, url, at, delivery_id)


def svix(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    return _standard("svix", b64decode(secret.removeprefix("whsec_")), secret, body, url, at, delivery_id)


def polar(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    return _standard("webhook", secret.encode(), secret, body, url, at, delivery_id)


def _standard(family: str, key: bytes, secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = b64(mac(key, f"{delivery_id}.{at}.".encode() + body))
    headers = {
        f"{family}-id": delivery_id,
        f"{family}-timestamp": str(at),
        f"{family}-signature": f"v1,{signature}",
    }
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def stripe(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = mac(secret.encode(), f"{at}.".encode() + body).hex()
    headers = {"Stripe-Signature": f"t={at},v1={signature}"}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def elevenlabs(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = mac(secret.encode(), f"{at}.".encode() + body).hex()
    headers = {"ElevenLabs-Signature": f"t={at},v0={signature}"}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def workos(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = mac(secret.encode(), f"{at * 1_000}.".encode() + body).hex()
    headers = {"WorkOS-Signature": f"t={at * 1_000}, v1={signature}"}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def paddle(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = mac(secret.encode(), f"{at}:".encode() + body).hex()
    headers = {"Paddle-Signature": f"ts={at};h1={signature}"}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def slack(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = mac(secret.encode(), f"v0:{at}:".encode() + body).hex()
    headers = {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={signature}"}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def hubspot_v3(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    timestamp = str(at * 1_000)
    signature = b64(mac(secret.encode(), b"POST" + url.encode() + body + timestamp.encode()))
    headers = {"X-HubSpot-Request-Timestamp": timestamp, "X-HubSpot-Signature-v3": signature}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def box(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    timestamp = datetime.fromtimestamp(at, timezone(timedelta(hours=-7))).isoformat()
    headers = {
        "BOX-DELIVERY-ID": delivery_id,
        "BOX-DELIVERY-TIMESTAMP": timestamp,
        "BOX-SIGNATURE-VERSION": "1",
        "BOX-SIGNATURE-ALGORITHM": "HmacSHA256",
        "BOX-SIGNATURE-PRIMARY": b64(mac(secret.encode(), body + timestamp.encode())),
    }
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def square(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    headers = {"x-square-hmacsha256-signature": b64(mac(secret.encode(), url.encode() + body))}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def twilio(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signed_url = f"{url}?bodySHA256={sha256(body).hexdigest()}"
    headers = {
        "X-Twilio-Signature": b64(mac(secret.encode(), signed_url.encode(), "sha1")),
        "I-Twilio-Idempotency-Token": delivery_id,
    }
    return SignedDelivery(secret=secret, headers=headers, body=body, url=signed_url, at=at)


def easypost(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    key = unicodedata.normalize("NFKD", secret).encode()
    headers = {"X-Hmac-Signature": f"hmac-sha256-hex={mac(key, body).hex()}"}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def airtable(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    headers = {"X-Airtable-Content-MAC": f"hmac-sha256={mac(b64decode(secret), body).hex()}"}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def cloudinary(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = hashlib.new("sha1", body + str(at).encode() + secret.encode()).hexdigest()
    headers = {"X-Cld-Timestamp": str(at), "X-Cld-Signature": signature}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def pusher(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    headers = {"X-Pusher-Key": "278d425bdf160c739803", "X-Pusher-Signature": mac(secret.encode(), body).hex()}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def line(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    headers = {"x-line-signature": b64(mac(secret.encode(), body))}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def hex_hmac_of_body(header: str, prefix: str = "") -> SignFunction:
    def sign(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
        headers = {header: prefix + mac(secret.encode(), body).hex()}
        return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)

    return sign


def mailgun(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    content = json.loads(body)
    proof = content["signature"]
    proof["signature"] = mac(secret.encode(), (proof["timestamp"] + proof["token"]).encode()).hex()
    return SignedDelivery(secret=secret, headers={}, body=json.dumps(content).encode(), url=url, at=at)


def adyen(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    content = json.loads(body)
    item = content["notificationItems"][0]["NotificationRequestItem"]
    signed_values = [
        item["pspReference"],
        item.get("originalReference", ""),
        item["merchantAccountCode"],
        item["merchantReference"],
        str(item["amount"]["value"]),
        item["amount"]["currency"],
        item["eventCode"],
        item["success"],
    ]
    item["additionalData"]["hmacSignature"] = b64(mac(bytes.fromhex(secret), ":".join(signed_values).encode()))
    return SignedDelivery(secret=secret, headers={}, body=json.dumps(content).encode(), url=url, at=at)


def discord(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = ED25519_KEYS[bytes.fromhex(secret)].sign(str(at).encode() + body).hex()
    headers = {"X-Signature-Timestamp": str(at), "X-Signature-Ed25519": signature}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def telnyx(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = b64(ED25519_KEYS[b64decode(secret)].sign(f"{at}|".encode() + body))
    headers = {"telnyx-timestamp": str(at), "telnyx-signature-ed25519": signature}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def sendgrid(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    signature = ECDSA_KEYS[secret].sign(str(at).encode() + body, ec.ECDSA(hashes.SHA256()))
    headers = {
        "X-Twilio-Email-Event-Webhook-Timestamp": str(at),
        "X-Twilio-Email-Event-Webhook-Signature": b64(signature),
    }
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def netlify(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    token = hs256(secret, {"iss": "netlify", "sha256": sha256(body).hexdigest()})
    return SignedDelivery(secret=secret, headers={"X-Webhook-Signature": token}, body=body, url=url, at=at)


def livekit(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    claims = {"iss": "APIhookmill", "nbf": at, "exp": at + 300, "sha256": b64(sha256(body).digest())}
    return SignedDelivery(secret=secret, headers={"Authorization": hs256(secret, claims)}, body=body, url=url, at=at)


def gitlab_token(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    headers = {"X-Gitlab-Token": secret, "X-Gitlab-Event": "Push Hook", "Idempotency-Key": delivery_id}
    return SignedDelivery(secret=secret, headers=headers, body=body, url=url, at=at)


def hugging_face(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> SignedDelivery:
    return SignedDelivery(secret=secret, headers={"X-Webhook-Secret": secret}, body=body, url=url, at=at)


def mac(key: bytes, content: bytes, algorithm: str = "sha256") -> bytes:
    return hmac.new(key, content, algorithm).digest()


def b64(octets: bytes) -> str:
    return b64encode(octets).decode()


def hs256(secret: str, claims: dict[str, object]) -> str:
    parts = [json.dumps(each).encode() for each in ({"alg": "HS256", "typ": "JWT"}, claims)]
    content = b".".join(map(_unpadded, parts))
    return (content + b"." + _unpadded(mac(secret.encode(), content))).decode()


def _unpadded(octets: bytes) -> bytes:
    return urlsafe_b64encode(octets).rstrip(b"=")


def _value_at(content: Any, path: list[str]) -> Any:
    for step in path:
        content = content[int(step) if step.isdigit() else step]
    return content


def _set_or_delete(fields: dict[str, Any], name: str, value: str | None):
    if value is None:
        del fields[name]
    else:
        fields[name] = value


def _signer(
    scheme: str,
    sign: SignFunction,
    signature_location: str,
    make_secret: Callable[[str, int], str] = text_secret,
    make_body: Callable[[int], bytes] = event,
    covered_word: bytes | None = b"ping",
    uncovered_word: bytes | None = None,
    covers_url: bool = False,
    delivery_id: str = DELIVERY_ID,
) -> ReferenceSigner:
    return ReferenceSigner(
        scheme=scheme,
        sign=sign,
        secret=make_secret(scheme, 1),
        other_secret=make_secret(scheme, 2),
        signature_location=signature_location,
        make_body=make_body,
        covered_word=covered_word,
        uncovered_word=uncovered_word,
        covers_url=covers_url,
        delivery_id=delivery_id,
    )


REFERENCE_SIGNERS = {
    signer.scheme: signer
    for signer in (
        _signer(
            "adyen",
            adyen,
            "json:notificationItems.0.NotificationRequestItem.additionalData.hmacSignature",
            hex_secret,
            adyen_notification,
            uncovered_word=b"unsigned",
        ),
        _signer("airtable", airtable, "X-Airtable-Content-MAC", base64_secret, airtable_notification),
        _signer("box", box, "BOX-SIGNATURE-PRIMARY"),
        _signer("cloudinary", cloudinary, "X-Cld-Signature"),
        _signer("coinbase_commerce", hex_hmac_of_body("X-CC-Webhook-Signature"), "X-CC-Webhook-Signature"),
        _signer("discord", discord, "X-Signature-Ed25519", ed25519_hex_key),
        _signer("easypost", easypost, "X-Hmac-Signature", secret_that_nfkd_changes),
        _signer("elevenlabs", elevenlabs, "ElevenLabs-Signature"),
        _signer("github", hex_hmac_of_body("X-Hub-Signature-256", "sha256="), "X-Hub-Signature-256"),
        _signer("gitlab_token", gitlab_token, "X-Gitlab-Token", covered_word=None, uncovered_word=b"ping"),
        _signer("gocardless", hex_hmac_of_body("Webhook-Signature"), "Webhook-Signature", make_body=gocardless_events),
        _signer("hubspot_v3", hubspot_v3, "X-HubSpot-Signature-v3", covers_url=True),
        _signer("hugging_face", hugging_face, "X-Webhook-Secret", covered_word=None, uncovered_word=b"ping"),
        _signer("line", line, "x-line-signature"),
        _signer("livekit", livekit, "Authorization"),
        _signer(
            "mailgun",
            mailgun,
            "json:signature.signature",
            make_body=mailgun_event,
            uncovered_word=b"unsigned",
            delivery_id=MAILGUN_TOKEN,
        ),
        _signer("meta", hex_hmac_of_body("X-Hub-Signature-256", "sha256="), "X-Hub-Signature-256"),
        _signer("netlify", netlify, "X-Webhook-Signature"),
        _signer("paddle", paddle, "Paddle-Signature"),
        _signer("polar", polar, "webhook-signature"),
        _signer("pusher", pusher, "X-Pusher-Signature", make_body=pusher_events),
        _signer("razorpay", hex_hmac_of_body("X-Razorpay-Signature"), "X-Razorpay-Signature"),
        _signer("sendgrid", sendgrid, "X-Twilio-Email-Event-Webhook-Signature", ecdsa_base64_key, sendgrid_events),
        _signer("slack", slack, "X-Slack-Signature"),
        _signer("square", square, "x-square-hmacsha256-signature", covers_url=True),
        _signer("standard_webhooks", standard_webhooks, "webhook-signature", whsec_secret),
        _signer("stripe", stripe, "Stripe-Signature", whsec_secret),
        _signer("svix", svix, "svix-signature", whsec_secret),
        _signer("telnyx", telnyx, "telnyx-signature-ed25519", ed25519_base64_key),
        _signer("twilio", twilio, "X-Twilio-Signature", covers_url=True),
        _signer("workos", workos, "WorkOS-Signature"),
    )
}
"""By scheme."""
