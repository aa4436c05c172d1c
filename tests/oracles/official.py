"""What each provider's own SDK says about a request, one function a provider. An SDK is imported when it is asked.

`accepted_by_…` is True or False, and catches only the exceptions by which an SDK refuses. `signed_by_…` is there where
an SDK can sign.
"""

import asyncio
import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from tests.oracles.request import Given, moment, refused

NO_CLIENT = cast(Any, None)
"""For a check that belongs to an API's client without needing one."""


# Standard Webhooks and those who use them


def accepted_by_standardwebhooks(given: Given) -> bool:
    from standardwebhooks import Webhook, WebhookVerificationError

    with moment(given.at):
        try:
            Webhook(given.secret).verify(given.body, given.headers, json_parse=False)
        except WebhookVerificationError:
            return False
    return True


def signed_by_standardwebhooks(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from standardwebhooks import Webhook

    signature = Webhook(secret).sign(delivery_id, datetime.fromtimestamp(at, UTC), body.decode())
    headers = {"webhook-id": delivery_id, "webhook-timestamp": str(at), "webhook-signature": signature}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def accepted_by_svix(given: Given) -> bool:
    from svix.webhooks import Webhook, WebhookVerificationError

    with moment(given.at):
        try:
            Webhook(given.secret).verify(given.body, given.headers)
        except WebhookVerificationError:
            return False
    return True


def signed_by_svix(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from svix.webhooks import Webhook

    signature = Webhook(secret).sign(delivery_id, datetime.fromtimestamp(at, UTC), body.decode())
    headers = {"svix-id": delivery_id, "svix-timestamp": str(at), "svix-signature": signature}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def accepted_by_openai(given: Given) -> bool:
    from openai import InvalidWebhookSignatureError, OpenAI

    with OpenAI(api_key="unused") as client, moment(given.at):
        try:
            client.webhooks.verify_signature(given.body, given.headers, secret=given.secret)
        except InvalidWebhookSignatureError:
            return False
        except ValueError as refusal:
            return refused(refusal)
    return True


def accepted_by_anthropic(given: Given) -> bool:
    from anthropic import Anthropic
    from standardwebhooks import WebhookVerificationError

    with Anthropic(api_key="unused") as client, moment(given.at):
        try:
            client.beta.webhooks.unwrap(given.text, headers=given.headers, key=given.secret)
        except WebhookVerificationError:
            return False
    return True


def accepted_by_resend(given: Given) -> bool:
    from resend import Webhooks

    told = {
        "id": given.header("svix-id"),
        "timestamp": given.header("svix-timestamp"),
        "signature": given.header("svix-signature"),
    }
    with moment(given.at):
        try:
            Webhooks.verify({"payload": given.text, "headers": told, "webhook_secret": given.secret})
        except ValueError as refusal:
            return refused(refusal)
    return True


def accepted_by_replicate(given: Given) -> bool:
    from replicate.webhook import Webhooks, WebhookSigningSecret, WebhookValidationError

    secret = WebhookSigningSecret(key=given.secret)
    with moment(given.at):
        try:
            Webhooks.validate(headers=given.headers, body=given.text, secret=secret, tolerance=300)
        except WebhookValidationError:
            return False
    return True


def accepted_by_polar(given: Given) -> bool:
    from polar.webhooks import PolarWebhookUnknownTypeError, PolarWebhookVerificationError, validate_event

    with moment(given.at):
        try:
            validate_event(given.body, given.headers, given.secret, frozenset(), lambda event: event)
        except PolarWebhookVerificationError:
            return False
        except PolarWebhookUnknownTypeError:
            # It looks at the kind of an event once the signature is right.
            return True
    return True


# Signatures of the body, alone or with a time or an address


def accepted_by_stripe(given: Given) -> bool:
    from stripe import SignatureVerificationError, WebhookSignature

    with moment(given.at):
        try:
            WebhookSignature.verify_header(given.body, given.header("stripe-signature"), given.secret, tolerance=300)
        except SignatureVerificationError:
            return False
    return True


def signed_by_stripe(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from stripe import WebhookSignature

    headers = {"Stripe-Signature": WebhookSignature.generate_signature_header(body.decode(), secret, timestamp=at)}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def accepted_by_slack_sdk(given: Given) -> bool:
    from slack_sdk.signature import SignatureVerifier

    clock = SimpleNamespace(now=lambda: float(given.at))
    return bool(SignatureVerifier(given.secret, clock=clock).is_valid_request(given.body, given.headers))


def signed_by_slack_sdk(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from slack_sdk.signature import SignatureVerifier

    signature = SignatureVerifier(secret).generate_signature(timestamp=str(at), body=body)
    headers = {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": signature}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def accepted_by_huggingface_hub(given: Given) -> bool:
    from huggingface_hub import _webhooks_server as server

    # The check itself needs no FastAPI. It names two of its types and makes one of them when it refuses.
    with patch.multiple(server, create=True, Request=object, JSONResponse=lambda *_, **refusal: refusal):
        door = server._wrap_webhook_to_check_secret(lambda: True, webhook_secret=given.secret)
        return asyncio.run(door(SimpleNamespace(headers=given.lowered))) is True


def accepted_by_twilio(given: Given) -> bool:
    from twilio.request_validator import RequestValidator

    return bool(RequestValidator(given.secret).validate(given.url, given.text, given.header("x-twilio-signature")))


def signed_by_twilio(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from twilio.request_validator import RequestValidator

    validator = RequestValidator(secret)
    called = f"{url}?bodySHA256={validator.compute_hash(body.decode())}"
    headers = {"X-Twilio-Signature": validator.compute_signature(called, {}), "I-Twilio-Idempotency-Token": delivery_id}
    return Given(secret=secret, headers=headers, body=body, url=called, at=at)


def accepted_by_razorpay(given: Given) -> bool:
    from razorpay.errors import SignatureVerificationError
    from razorpay.utility import Utility

    try:
        Utility().verify_webhook_signature(given.text, given.header("x-razorpay-signature"), given.secret)
    except SignatureVerificationError:
        return False
    return True


def accepted_by_coinbase_commerce(given: Given) -> bool:
    from coinbase_commerce.error import SignatureVerificationError
    from coinbase_commerce.webhook import WebhookSignature

    try:
        WebhookSignature.verify_sig_header(given.text, given.header("x-cc-webhook-signature"), given.secret)
    except SignatureVerificationError:
        return False
    return True


def accepted_by_linebot(given: Given) -> bool:
    from linebot.v3.webhook import SignatureValidator

    return bool(SignatureValidator(given.secret).validate(given.text, given.header("x-line-signature")))


def accepted_by_gocardless_pro(given: Given) -> bool:
    from gocardless_pro import webhooks
    from gocardless_pro.errors import InvalidSignatureError

    try:
        webhooks.parse(given.text, given.secret, given.header("webhook-signature"))
    except InvalidSignatureError:
        return False
    return True


def accepted_by_easypost(given: Given) -> bool:
    from easypost.errors import SignatureVerificationError
    from easypost.util import validate_webhook

    try:
        validate_webhook(given.body, {"X-Hmac-Signature": given.header("x-hmac-signature")}, given.secret)
    except SignatureVerificationError:
        return False
    return True


def accepted_by_square(given: Given) -> bool:
    from square.utils.webhooks_helper import verify_signature

    return bool(
        verify_signature(
            request_body=given.text,
            signature_header=given.header("x-square-hmacsha256-signature"),
            signature_key=given.secret,
            notification_url=given.url,
        )
    )


def accepted_by_hubspot(given: Given) -> bool:
    from hubspot.exceptions import InvalidSignatureTimestampError
    from hubspot.utils.signature import Signature

    with moment(given.at):
        try:
            return bool(
                Signature.is_valid(
                    signature=given.header("x-hubspot-signature-v3"),
                    client_secret=given.secret,
                    request_body=given.text,
                    http_uri=given.url,
                    http_method="POST",
                    signature_version="v3",
                    timestamp=given.header("x-hubspot-request-timestamp"),
                )
            )
        except InvalidSignatureTimestampError:
            return False


def signed_by_hubspot(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from hubspot.utils.signature import Signature

    stamp = str(at * 1_000)
    signature = Signature.get_signature(secret, body.decode(), "v3", url, "POST", stamp)
    headers = {"X-HubSpot-Request-Timestamp": stamp, "X-HubSpot-Signature-v3": signature}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def accepted_by_paddle(given: Given) -> bool:
    from paddle_billing.Notifications import Secret, Verifier

    request = SimpleNamespace(body=given.body, headers={"Paddle-Signature": given.header("paddle-signature")})
    with moment(given.at):
        return bool(Verifier().verify(request, Secret(given.secret)))


def signed_by_paddle(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from paddle_billing.Notifications.PaddleSignature import PaddleSignature

    mac = PaddleSignature.calculate_hmac(secret, f"{at}:".encode() + body).hexdigest()
    return Given(secret=secret, headers={"Paddle-Signature": f"ts={at};h1={mac}"}, body=body, url=url, at=at)


def accepted_by_workos(given: Given) -> bool:
    from workos.webhooks import Webhooks

    with moment(given.at):
        try:
            Webhooks(NO_CLIENT).verify_header(
                event_body=given.body, event_signature=given.header("workos-signature"), secret=given.secret
            )
        except ValueError as refusal:
            return refused(refusal)
    return True


def accepted_by_elevenlabs(given: Given) -> bool:
    from elevenlabs.errors import BadRequestError
    from elevenlabs.webhooks_custom import WebhooksClient

    checks = WebhooksClient(client_wrapper=NO_CLIENT)
    with moment(given.at):
        try:
            checks.construct_event(given.text, given.header("elevenlabs-signature"), given.secret)
        except BadRequestError:
            return False
    return True


def accepted_by_cloudinary(given: Given) -> bool:
    import cloudinary
    from cloudinary.utils import verify_notification_signature

    cloudinary.config(api_secret=given.secret)
    stamp, signature = given.header("x-cld-timestamp"), given.header("x-cld-signature")
    with moment(given.at):
        return bool(verify_notification_signature(given.text, stamp, signature, algorithm="sha1"))


def accepted_by_box(given: Given) -> bool:
    from box_sdk_gen import WebhooksManager

    with moment(given.at):
        return bool(WebhooksManager.validate_message(given.text, given.lowered, given.secret))


def signed_by_box(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from box_sdk_gen.internal.utils import compute_webhook_signature

    headers = {
        "box-delivery-id": delivery_id,
        "box-delivery-timestamp": datetime.fromtimestamp(at, timezone(timedelta(hours=-7))).isoformat(),
        "box-signature-algorithm": "HmacSHA256",
        "box-signature-version": "1",
    }
    headers["box-signature-primary"] = compute_webhook_signature(body.decode(), headers, secret)
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


def accepted_by_pusher(given: Given) -> bool:
    from pusher import Pusher

    # Its users look up by this name, which is no secret, what they verify with.
    key = given.header("x-pusher-key")
    if not key:
        return False
    app = Pusher(app_id="1", key=key, secret=given.secret)
    with moment(given.at):
        return app.validate_webhook(key, given.header("x-pusher-signature"), given.text) is not None


def signed_by_pusher(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from pusher.signature import sign

    headers = {"X-Pusher-Key": "278d425bdf160c739803", "X-Pusher-Signature": sign(secret, body.decode())}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)


# Signatures that are part of the body


def accepted_by_mailgun(given: Given) -> bool:
    from mailgun.security import SecurityGuard

    proof = json.loads(given.body)["signature"]
    with moment(given.at):
        return bool(
            SecurityGuard.verify_webhook(given.secret, proof["token"], proof["timestamp"], proof.get("signature", ""))
        )


def accepted_by_adyen(given: Given) -> bool:
    from Adyen.util import is_valid_hmac_notification

    notification = json.loads(given.body)
    notification["notificationItems"][0]["NotificationRequestItem"]["additionalData"].setdefault("hmacSignature", "-")
    return bool(is_valid_hmac_notification(notification, given.secret))


def signed_by_adyen(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from Adyen.util import generate_notification_sig

    notification = json.loads(body)
    item = notification["notificationItems"][0]["NotificationRequestItem"]
    item["additionalData"]["hmacSignature"] = generate_notification_sig(item, secret).decode()
    return Given(secret=secret, headers={}, body=json.dumps(notification).encode(), url=url, at=at)


# Public keys


def accepted_by_sendgrid(given: Given) -> bool:
    from sendgrid.helpers.eventwebhook import EventWebhook

    stamp = given.header("x-twilio-email-event-webhook-timestamp")
    signature = given.header("x-twilio-email-event-webhook-signature")
    return bool(EventWebhook(given.secret).verify_signature(given.text, signature, stamp))


def accepted_by_discord_interactions(given: Given) -> bool:
    from discord_interactions import verify_key

    signature, stamp = given.header("x-signature-ed25519"), given.header("x-signature-timestamp")
    return bool(verify_key(given.body, signature, stamp, given.secret))


def accepted_by_telnyx(given: Given) -> bool:
    from telnyx.lib.webhook_verification import WebhookVerificationError, verify_webhook_signature

    with moment(given.at):
        try:
            verify_webhook_signature(given.body, given.headers, given.secret)
        except WebhookVerificationError:
            return False
    return True


# Tokens


def accepted_by_livekit(given: Given) -> bool:
    import jwt
    from livekit.api import TokenVerifier, WebhookReceiver

    token = given.header("authorization")
    with moment(given.at):
        try:
            # The name of the API key, which is no secret, is the token's own: there is one secret to ask about here.
            key = jwt.decode(token, options={"verify_signature": False}).get("iss", "nobody")
            WebhookReceiver(TokenVerifier(key, given.secret)).receive(given.text, token)
        except jwt.InvalidTokenError:
            return False
        except Exception as refusal:
            # It has no exception of its own for a token that is good and belongs to another body.
            if refusal.args in {("hash mismatch",), ("sha256 was not found in the token",)}:
                return False
            raise
    return True


def signed_by_livekit(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    from livekit.api import AccessToken

    with moment(at):
        token = AccessToken("APIhookmill", secret).with_sha256(b64encode(sha256(body).digest()).decode()).to_jwt()
    return Given(secret=secret, headers={"Authorization": token}, body=body, url=url, at=at)
