"""Each provider's signature made step by step from the provider's own rule, with nothing but hashes and keys.

Written from the providers' pages, so that what checks a signature is never tested with what it was made from.
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

from tests.oracles.request import Given, Signs

AT = 1_760_000_000
URL = "https://hooks.example.com/in/9f3c2a"
DELIVERY_ID = "msg_2Zf8qkQ1"
MAILGUN_TOKEN = "ping1c0ffee"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """How a provider signs, with two secrets as users paste them, and where in a request the signature is."""

    scheme: str
    signs: Signs
    secret: str
    another_secret: str
    carrier: str
    """A header, or where it is in the body: "json:" and a path."""
    body: Callable[[int], bytes]
    covers: bytes | None = b"ping"
    """A word in the body that the signature covers."""
    leaves: bytes | None = None
    """A word in the body that it does not cover."""
    covers_url: bool = False
    delivery_id: str = DELIVERY_ID

    def __str__(self) -> str:
        return self.scheme

    def sent(self, body: bytes | None = None) -> Given:
        return self.signs(self.secret, self.body(AT) if body is None else body, URL, AT, self.delivery_id)

    def signature(self, given: Given) -> str:
        if not self.carrier.startswith("json:"):
            return given.headers[self.carrier]
        *path, last = self.carrier.removeprefix("json:").split(".")
        return str(_at(json.loads(given.body), path)[last])

    def with_signature(self, given: Given, signature: str | None) -> Given:
        """The same request with this for a signature, or without one."""
        if self.carrier.startswith("json:"):
            *path, last = self.carrier.removeprefix("json:").split(".")
            content = json.loads(given.body)
            _put(_at(content, path), last, signature)
            return replace(given, body=json.dumps(content).encode())
        headers: dict[str, Any] = dict(given.headers)
        _put(headers, self.carrier, signature)
        return replace(given, headers=headers)


def altered(body: bytes, word: bytes) -> bytes:
    """The body with one word turned round: as long as before, and as good JSON."""
    assert body.count(word) == 1
    return body.replace(word, word[::-1])


# Secrets


def text(scheme: str, number: int) -> str:
    return f"{scheme}-{sha256(f'{scheme} {number}'.encode()).hexdigest()[:40]}"


def in_base64(scheme: str, number: int) -> str:
    return b64(sha256(f"{scheme} {number}".encode()).digest())


def behind_whsec(scheme: str, number: int) -> str:
    return f"whsec_{in_base64(scheme, number)}"


def in_hex(scheme: str, number: int) -> str:
    return sha256(f"{scheme} {number}".encode()).hexdigest().upper()


def with_odd_letters(scheme: str, number: int) -> str:
    # A ligature and a composed umlaut: both change under NFKD.
    return f"{text(scheme, number)}-ﬁ-\u00fc"


def ed25519_in_hex(scheme: str, number: int) -> str:
    return _ed25519(number).hex()


def ed25519_in_base64(scheme: str, number: int) -> str:
    return b64(_ed25519(number))


def ecdsa_in_base64(scheme: str, number: int) -> str:
    private = ec.derive_private_key(1_000_003 * number, ec.SECP256R1())
    public = b64(private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    ECDSA_KEYS[public] = private
    return public


def private_half(secret: str) -> str:
    """What a provider signs with: the private half of a public key, and any other secret itself."""
    if secret in ECDSA_KEYS:
        return b64(ECDSA_KEYS[secret].private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    for public, private in ED25519_KEYS.items():
        if secret == public.hex():
            return private.private_bytes_raw().hex()
        if secret == b64(public):
            return b64(private.private_bytes_raw())
    return secret


def _ed25519(number: int) -> bytes:
    private = ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    public = private.public_key().public_bytes_raw()
    ED25519_KEYS[public] = private
    return public


ED25519_KEYS: dict[bytes, ed25519.Ed25519PrivateKey] = {}
ECDSA_KEYS: dict[str, ec.EllipticCurvePrivateKey] = {}
"""The provider's halves, by the public halves that its users paste."""


# Bodies: none is plain, all are what the provider's SDK takes for one of its own


def event(at: int) -> bytes:
    return '{"id": "evt_1",  "type": "ping", "note": "grüße ☃ \\u00fc"}\n'.encode()


def gocardless_events(at: int) -> bytes:
    return b'{"events": [{"id": "EV1", "resource_type": "ping"}], "meta": {"webhook_id": "WB1"}}'


def airtable_notification(at: int) -> bytes:
    return b'{"base":{"id":"appping"},"webhook":{"id":"ach1"},"timestamp":"2025-10-09T08:53:20.000Z"}'


def pusher_events(at: int) -> bytes:
    return f'{{"time_ms": {at * 1_000}, "events": [{{"name": "ping", "channel": "grüße"}}]}}'.encode()


def sendgrid_events(at: int) -> bytes:
    # The line end belongs to the body.
    return '[{"event":"ping","email":"grüße@example.com"}]\r\n'.encode()


def mailgun_event(at: int) -> bytes:
    proof = {"timestamp": str(at), "token": MAILGUN_TOKEN}
    return json.dumps({"signature": proof, "event-data": {"event": "loose"}}).encode()


def adyen_notification(at: int) -> bytes:
    item = {
        "pspReference": "7914073381342284",
        "merchantAccountCode": "TestMerchant",
        "merchantReference": "ping-1407325143704",
        "amount": {"value": 1130, "currency": "EUR"},
        "eventCode": "AUTHORISATION",
        "success": "true",
        "reason": "loose",
        "additionalData": {"cardSummary": "1111"},
    }
    return json.dumps({"live": "false", "notificationItems": [{"NotificationRequestItem": item}]}).encode()


# Signatures


def standard_webhooks(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    return _standard("webhook", b64decode(secret.removeprefix("whsec_")), secret, body, url, at, delivery_id)


def svix(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    return _standard("svix", b64decode(secret.removeprefix("whsec_")), secret, body, url, at, delivery_id)


def polar(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    return _standard("webhook", secret.encode(), secret, body, url, at, delivery_id)


def _standard(family: str, key: bytes, secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = b64(mac(key, f"{delivery_id}.{at}.".encode() + body))
    headers = {
        f"{family}-id": delivery_id,
        f"{family}-timestamp": str(at),
        f"{family}-signature": f"v1,{signature}",
    }
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def stripe(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = mac(secret.encode(), f"{at}.".encode() + body).hex()
    headers = {"Stripe-Signature": f"t={at},v1={signature}"}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def elevenlabs(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = mac(secret.encode(), f"{at}.".encode() + body).hex()
    headers = {"ElevenLabs-Signature": f"t={at},v0={signature}"}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def workos(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = mac(secret.encode(), f"{at * 1_000}.".encode() + body).hex()
    headers = {"WorkOS-Signature": f"t={at * 1_000}, v1={signature}"}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def paddle(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = mac(secret.encode(), f"{at}:".encode() + body).hex()
    headers = {"Paddle-Signature": f"ts={at};h1={signature}"}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def slack(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = mac(secret.encode(), f"v0:{at}:".encode() + body).hex()
    headers = {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={signature}"}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def hubspot_v3(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    stamp = str(at * 1_000)
    signature = b64(mac(secret.encode(), b"POST" + url.encode() + body + stamp.encode()))
    headers = {"X-HubSpot-Request-Timestamp": stamp, "X-HubSpot-Signature-v3": signature}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def box(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    stamp = datetime.fromtimestamp(at, timezone(timedelta(hours=-7))).isoformat()
    headers = {
        "BOX-DELIVERY-ID": delivery_id,
        "BOX-DELIVERY-TIMESTAMP": stamp,
        "BOX-SIGNATURE-VERSION": "1",
        "BOX-SIGNATURE-ALGORITHM": "HmacSHA256",
        "BOX-SIGNATURE-PRIMARY": b64(mac(secret.encode(), body + stamp.encode())),
    }
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def square(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    headers = {"x-square-hmacsha256-signature": b64(mac(secret.encode(), url.encode() + body))}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def twilio(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    called = f"{url}?bodySHA256={sha256(body).hexdigest()}"
    headers = {
        "X-Twilio-Signature": b64(mac(secret.encode(), called.encode(), "sha1")),
        "I-Twilio-Idempotency-Token": delivery_id,
    }
    return Given(secret=secret, headers=headers, body=body, url=called, at=at)


def easypost(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    key = unicodedata.normalize("NFKD", secret).encode()
    headers = {"X-Hmac-Signature": f"hmac-sha256-hex={mac(key, body).hex()}"}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def airtable(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    headers = {"X-Airtable-Content-MAC": f"hmac-sha256={mac(b64decode(secret), body).hex()}"}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def cloudinary(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = hashlib.new("sha1", body + str(at).encode() + secret.encode()).hexdigest()
    headers = {"X-Cld-Timestamp": str(at), "X-Cld-Signature": signature}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def pusher(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    headers = {"X-Pusher-Key": "278d425bdf160c739803", "X-Pusher-Signature": mac(secret.encode(), body).hex()}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def line(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    headers = {"x-line-signature": b64(mac(secret.encode(), body))}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def hex_of_the_body(header: str, prefix: str = "") -> Signs:
    def signs(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
        headers = {header: prefix + mac(secret.encode(), body).hex()}
        return Given(secret=secret, headers=headers, body=body, url=url, at=at)

    return signs


def mailgun(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    content = json.loads(body)
    proof = content["signature"]
    proof["signature"] = mac(secret.encode(), (proof["timestamp"] + proof["token"]).encode()).hex()
    return Given(secret=secret, headers={}, body=json.dumps(content).encode(), url=url, at=at)


def adyen(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    content = json.loads(body)
    item = content["notificationItems"][0]["NotificationRequestItem"]
    signed = [
        item["pspReference"],
        item.get("originalReference", ""),
        item["merchantAccountCode"],
        item["merchantReference"],
        str(item["amount"]["value"]),
        item["amount"]["currency"],
        item["eventCode"],
        item["success"],
    ]
    item["additionalData"]["hmacSignature"] = b64(mac(bytes.fromhex(secret), ":".join(signed).encode()))
    return Given(secret=secret, headers={}, body=json.dumps(content).encode(), url=url, at=at)


def discord(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = ED25519_KEYS[bytes.fromhex(secret)].sign(str(at).encode() + body).hex()
    headers = {"X-Signature-Timestamp": str(at), "X-Signature-Ed25519": signature}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def telnyx(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = b64(ED25519_KEYS[b64decode(secret)].sign(f"{at}|".encode() + body))
    headers = {"telnyx-timestamp": str(at), "telnyx-signature-ed25519": signature}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def sendgrid(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    signature = ECDSA_KEYS[secret].sign(str(at).encode() + body, ec.ECDSA(hashes.SHA256()))
    headers = {
        "X-Twilio-Email-Event-Webhook-Timestamp": str(at),
        "X-Twilio-Email-Event-Webhook-Signature": b64(signature),
    }
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def netlify(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    token = hs256(secret, {"iss": "netlify", "sha256": sha256(body).hexdigest()})
    return Given(secret=secret, headers={"X-Webhook-Signature": token}, body=body, url=url, at=at)


def livekit(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    claims = {"iss": "APIhookmill", "nbf": at, "exp": at + 300, "sha256": b64(sha256(body).digest())}
    return Given(secret=secret, headers={"Authorization": hs256(secret, claims)}, body=body, url=url, at=at)


def gitlab_token(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    headers = {"X-Gitlab-Token": secret, "X-Gitlab-Event": "Push Hook", "Idempotency-Key": delivery_id}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def hugging_face(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    return Given(secret=secret, headers={"X-Webhook-Secret": secret}, body=body, url=url, at=at)


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


def _at(content: Any, path: list[str]) -> Any:
    for step in path:
        content = content[int(step) if step.isdigit() else step]
    return content


def _put(place: dict[str, Any], name: str, value: str | None) -> None:
    if value is None:
        del place[name]
    else:
        place[name] = value


def _scheme(
    scheme: str,
    signs: Signs,
    carrier: str,
    secrets: Callable[[str, int], str] = text,
    body: Callable[[int], bytes] = event,
    covers: bytes | None = b"ping",
    leaves: bytes | None = None,
    covers_url: bool = False,
    delivery_id: str = DELIVERY_ID,
) -> tuple[str, ByHand]:
    return scheme, ByHand(
        scheme=scheme,
        signs=signs,
        secret=secrets(scheme, 1),
        another_secret=secrets(scheme, 2),
        carrier=carrier,
        body=body,
        covers=covers,
        leaves=leaves,
        covers_url=covers_url,
        delivery_id=delivery_id,
    )


BY_HAND = dict(
    [
        _scheme(
            "adyen",
            adyen,
            "json:notificationItems.0.NotificationRequestItem.additionalData.hmacSignature",
            in_hex,
            adyen_notification,
            leaves=b"loose",
        ),
        _scheme("airtable", airtable, "X-Airtable-Content-MAC", in_base64, airtable_notification),
        _scheme("box", box, "BOX-SIGNATURE-PRIMARY"),
        _scheme("cloudinary", cloudinary, "X-Cld-Signature"),
        _scheme("coinbase_commerce", hex_of_the_body("X-CC-Webhook-Signature"), "X-CC-Webhook-Signature"),
        _scheme("discord", discord, "X-Signature-Ed25519", ed25519_in_hex),
        _scheme("easypost", easypost, "X-Hmac-Signature", with_odd_letters),
        _scheme("elevenlabs", elevenlabs, "ElevenLabs-Signature"),
        _scheme("github", hex_of_the_body("X-Hub-Signature-256", "sha256="), "X-Hub-Signature-256"),
        _scheme("gitlab_token", gitlab_token, "X-Gitlab-Token", covers=None, leaves=b"ping"),
        _scheme("gocardless", hex_of_the_body("Webhook-Signature"), "Webhook-Signature", body=gocardless_events),
        _scheme("hubspot_v3", hubspot_v3, "X-HubSpot-Signature-v3", covers_url=True),
        _scheme("hugging_face", hugging_face, "X-Webhook-Secret", covers=None, leaves=b"ping"),
        _scheme("line", line, "x-line-signature"),
        _scheme("livekit", livekit, "Authorization"),
        _scheme(
            "mailgun",
            mailgun,
            "json:signature.signature",
            body=mailgun_event,
            leaves=b"loose",
            delivery_id=MAILGUN_TOKEN,
        ),
        _scheme("meta", hex_of_the_body("X-Hub-Signature-256", "sha256="), "X-Hub-Signature-256"),
        _scheme("netlify", netlify, "X-Webhook-Signature"),
        _scheme("paddle", paddle, "Paddle-Signature"),
        _scheme("polar", polar, "webhook-signature"),
        _scheme("pusher", pusher, "X-Pusher-Signature", body=pusher_events),
        _scheme("razorpay", hex_of_the_body("X-Razorpay-Signature"), "X-Razorpay-Signature"),
        _scheme("sendgrid", sendgrid, "X-Twilio-Email-Event-Webhook-Signature", ecdsa_in_base64, sendgrid_events),
        _scheme("slack", slack, "X-Slack-Signature"),
        _scheme("square", square, "x-square-hmacsha256-signature", covers_url=True),
        _scheme("standard_webhooks", standard_webhooks, "webhook-signature", behind_whsec),
        _scheme("stripe", stripe, "Stripe-Signature", behind_whsec),
        _scheme("svix", svix, "svix-signature", behind_whsec),
        _scheme("telnyx", telnyx, "telnyx-signature-ed25519", ed25519_in_base64),
        _scheme("twilio", twilio, "X-Twilio-Signature", covers_url=True),
        _scheme("workos", workos, "WorkOS-Signature"),
    ]
)
"""By scheme."""
