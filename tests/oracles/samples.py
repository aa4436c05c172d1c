"""A delivery of each scheme with an oracle, signed by our own signer. The SDKs show that it signs correctly."""

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from hookmill.domain.signatures.catalogue import find
from hookmill.domain.signatures.sign import sign
from tests.oracles.signed_delivery import SignedDelivery
from tests.support.example_keys import ExampleSecret, example_pair

AT = 1_760_000_000
URL = "https://hooks.example.com/in/9f3c2a"
DELIVERY_ID = "msg_2Zf8qkQ1"

# Bodies that the SDKs accept as their provider's. They contain spaces, escapes, characters beyond ASCII or line ends.

EVENT = '{"id": "evt_1",  "type": "ping", "note": "grüße ☃ \\u00fc"}\n'.encode()
GOCARDLESS_EVENTS = b'{"events": [{"id": "EV1", "resource_type": "ping"}], "meta": {"webhook_id": "WB1"}}'
AIRTABLE_NOTIFICATION = b'{"base":{"id":"appping"},"webhook":{"id":"ach1"},"timestamp":"2025-10-09T08:53:20.000Z"}'
PUSHER_EVENTS = f'{{"time_ms": {AT * 1_000}, "events": [{{"name": "ping", "channel": "grüße"}}]}}'.encode()
SENDGRID_EVENTS = '[{"event":"ping","email":"grüße@example.com"}]\r\n'.encode()
"""The line break is part of the body."""
MAILGUN_EVENT = b'{"signature": {"timestamp": "0", "token": "ping1c0ffee"}, "event-data": {"event": "unsigned"}}'
ADYEN_ITEM = {
    "pspReference": "7914073381342284",
    "merchantAccountCode": "TestMerchant",
    "merchantReference": "ping-1407325143704",
    "amount": {"value": 1130, "currency": "EUR"},
    "eventCode": "AUTHORISATION",
    "success": "true",
    "reason": "unsigned",
    "additionalData": {"cardSummary": "1111"},
}
ADYEN_NOTIFICATION = json.dumps({"live": "false", "notificationItems": [{"NotificationRequestItem": ADYEN_ITEM}]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    scheme: str
    body: bytes = EVENT
    covered_word: bytes | None = b"ping"
    """A word in the body that the signature covers."""
    covers_whole_body: bool = True
    covers_url: bool = False
    delivery_id: str = DELIVERY_ID

    def __str__(self) -> str:
        return self.scheme

    @property
    def secret(self) -> str:
        return self._secrets(1).webhook_secret

    @property
    def other_secret(self) -> str:
        return self._secrets(2).webhook_secret

    def _secrets(self, number: int) -> ExampleSecret:
        entropy = sha256(f"{self.scheme} {number}".encode()).digest() * 2
        pair = example_pair(find(self.scheme), entropy)
        if self.scheme == "easypost":
            # NFKD changes both the ligature and the composed umlaut.
            text = f"{pair.webhook_secret}-ﬁ-\u00fc"
            return ExampleSecret(text, text)
        if self.scheme == "sendgrid":
            return replace(pair, webhook_secret="".join(pair.webhook_secret.splitlines()[1:-1]))
        return pair

    def delivery(self, body: bytes | None = None) -> SignedDelivery:
        secrets = self._secrets(1)
        content = self.body if body is None else body
        request = sign(find(self.scheme), secrets.sender_secret, content, URL, AT * 1_000_000, self.delivery_id)
        return SignedDelivery(
            secret=secrets.webhook_secret, headers=dict(request.headers), body=request.body, url=request.url, at=AT
        )

    def signature(self, delivery: SignedDelivery) -> str:
        _, fields, name = self._place_of_signature(delivery)
        return str(fields[name])

    def with_signature(self, delivery: SignedDelivery, signature: str | None) -> SignedDelivery:
        """The delivery with another signature, or without one."""
        content, fields, name = self._place_of_signature(delivery)
        if signature is None:
            del fields[name]
        else:
            fields[name] = signature
        return replace(delivery, headers=content) if content is fields else replace(delivery, body=_json(content))

    def _place_of_signature(self, delivery: SignedDelivery) -> tuple[Any, Any, str]:
        """Copies of the headers or of the parsed body, of the object in it with the signature, and the key there."""
        kind, _, path = find(self.scheme).signature.sources[0].partition(":")
        if kind == "header":
            headers = dict(delivery.headers)
            return headers, headers, path
        content = fields = json.loads(delivery.body)
        *steps, name = path.split(".")
        for step in steps:
            fields = fields[int(step) if step.isdigit() else step]
        return content, fields, name


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


def with_reversed_word(body: bytes, word: bytes) -> bytes:
    """The body with one word reversed. It has the same length, and is still valid JSON."""
    assert body.count(word) == 1
    return body.replace(word, word[::-1])


_OTHERS = """
    box cloudinary coinbase_commerce discord easypost elevenlabs github line livekit meta netlify paddle polar razorpay
    slack standard_webhooks stripe svix telnyx workos
""".split()

SAMPLES = {
    sample.scheme: sample
    for sample in (
        Sample(scheme="adyen", body=ADYEN_NOTIFICATION.encode(), covers_whole_body=False),
        Sample(scheme="airtable", body=AIRTABLE_NOTIFICATION),
        Sample(scheme="gitlab_token", covered_word=None, covers_whole_body=False),
        Sample(scheme="gocardless", body=GOCARDLESS_EVENTS),
        Sample(scheme="hubspot_v3", covers_url=True),
        Sample(scheme="hugging_face", covered_word=None, covers_whole_body=False),
        Sample(scheme="mailgun", body=MAILGUN_EVENT, covers_whole_body=False, delivery_id="ping1c0ffee"),
        Sample(scheme="pusher", body=PUSHER_EVENTS),
        Sample(scheme="sendgrid", body=SENDGRID_EVENTS),
        Sample(scheme="square", covers_url=True),
        Sample(scheme="twilio", covers_url=True),
        *(Sample(scheme=scheme) for scheme in _OTHERS),
    )
}
"""By scheme."""
