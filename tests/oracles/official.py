"""Adapters of the providers' own SDKs. Each function imports its SDK when it is called.

`accepted_by_…` returns whether the SDK accepts a delivery, and catches only the exceptions by which the SDK refuses
one.
"""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from tests.oracles.signed_delivery import SignedDelivery, frozen_clock, require_plain_value_error

NO_CLIENT = cast(Any, None)
"""For verifiers that are methods of an API client, but don't use it."""


# Standard Webhooks and providers that use it


def accepted_by_standardwebhooks(delivery: SignedDelivery) -> bool:
    from standardwebhooks import Webhook, WebhookVerificationError

    with frozen_clock(delivery.at):
        try:
            Webhook(delivery.secret).verify(delivery.body, delivery.headers, json_parse=False)
        except WebhookVerificationError:
            return False
    return True


def accepted_by_svix(delivery: SignedDelivery) -> bool:
    from svix.webhooks import Webhook, WebhookVerificationError

    with frozen_clock(delivery.at):
        try:
            Webhook(delivery.secret).verify(delivery.body, delivery.headers)
        except WebhookVerificationError:
            return False
    return True


def accepted_by_openai(delivery: SignedDelivery) -> bool:
    from openai import InvalidWebhookSignatureError, OpenAI

    with OpenAI(api_key="unused") as client, frozen_clock(delivery.at):
        try:
            client.webhooks.verify_signature(delivery.body, delivery.headers, secret=delivery.secret)
        except InvalidWebhookSignatureError:
            return False
        except ValueError as error:
            require_plain_value_error(error)
            return False
    return True


def accepted_by_anthropic(delivery: SignedDelivery) -> bool:
    from anthropic import Anthropic
    from standardwebhooks import WebhookVerificationError

    with Anthropic(api_key="unused") as client, frozen_clock(delivery.at):
        try:
            client.beta.webhooks.unwrap(delivery.text, headers=delivery.headers, key=delivery.secret)
        except WebhookVerificationError:
            return False
    return True


def accepted_by_resend(delivery: SignedDelivery) -> bool:
    from resend import Webhooks

    headers = {
        "id": delivery.header("svix-id"),
        "timestamp": delivery.header("svix-timestamp"),
        "signature": delivery.header("svix-signature"),
    }
    with frozen_clock(delivery.at):
        try:
            Webhooks.verify({"payload": delivery.text, "headers": headers, "webhook_secret": delivery.secret})
        except ValueError as error:
            require_plain_value_error(error)
            return False
    return True


def accepted_by_replicate(delivery: SignedDelivery) -> bool:
    from replicate.webhook import Webhooks, WebhookSigningSecret, WebhookValidationError

    secret = WebhookSigningSecret(key=delivery.secret)
    with frozen_clock(delivery.at):
        try:
            Webhooks.validate(headers=delivery.headers, body=delivery.text, secret=secret, tolerance=300)
        except WebhookValidationError:
            return False
    return True


def accepted_by_polar(delivery: SignedDelivery) -> bool:
    from polar.webhooks import PolarWebhookUnknownTypeError, PolarWebhookVerificationError, validate_event

    with frozen_clock(delivery.at):
        try:
            validate_event(delivery.body, delivery.headers, delivery.secret, frozenset(), lambda event: event)
        except PolarWebhookVerificationError:
            return False
        except PolarWebhookUnknownTypeError:
            # The SDK reads the event type only after it has verified the signature.
            return True
    return True


# Signatures of the body, alone or with a time or a URL


def accepted_by_stripe(delivery: SignedDelivery) -> bool:
    from stripe import SignatureVerificationError, WebhookSignature

    with frozen_clock(delivery.at):
        try:
            WebhookSignature.verify_header(
                delivery.body, delivery.header("stripe-signature"), delivery.secret, tolerance=300
            )
        except SignatureVerificationError:
            return False
    return True


def accepted_by_slack_sdk(delivery: SignedDelivery) -> bool:
    from slack_sdk.signature import SignatureVerifier

    clock = SimpleNamespace(now=lambda: float(delivery.at))
    return bool(SignatureVerifier(delivery.secret, clock=clock).is_valid_request(delivery.body, delivery.headers))


def accepted_by_huggingface_hub(delivery: SignedDelivery) -> bool:
    from huggingface_hub import _webhooks_server as server

    # The SDK's check needs no FastAPI except these two types. It creates a `JSONResponse` to refuse a delivery.
    with patch.multiple(server, create=True, Request=object, JSONResponse=lambda *_, **fields: fields):
        handler = server._wrap_webhook_to_check_secret(lambda: True, webhook_secret=delivery.secret)
        return asyncio.run(handler(SimpleNamespace(headers=delivery.headers_in_lower_case))) is True


def accepted_by_twilio(delivery: SignedDelivery) -> bool:
    from twilio.request_validator import RequestValidator

    return bool(
        RequestValidator(delivery.secret).validate(delivery.url, delivery.text, delivery.header("x-twilio-signature"))
    )


def accepted_by_razorpay(delivery: SignedDelivery) -> bool:
    from razorpay.errors import SignatureVerificationError
    from razorpay.utility import Utility

    try:
        Utility().verify_webhook_signature(delivery.text, delivery.header("x-razorpay-signature"), delivery.secret)
    except SignatureVerificationError:
        return False
    return True


def accepted_by_coinbase_commerce(delivery: SignedDelivery) -> bool:
    from coinbase_commerce.error import SignatureVerificationError
    from coinbase_commerce.webhook import WebhookSignature

    try:
        WebhookSignature.verify_sig_header(delivery.text, delivery.header("x-cc-webhook-signature"), delivery.secret)
    except SignatureVerificationError:
        return False
    return True


def accepted_by_linebot(delivery: SignedDelivery) -> bool:
    from linebot.v3.webhook import SignatureValidator

    return bool(SignatureValidator(delivery.secret).validate(delivery.text, delivery.header("x-line-signature")))


def accepted_by_gocardless_pro(delivery: SignedDelivery) -> bool:
    from gocardless_pro import webhooks
    from gocardless_pro.errors import InvalidSignatureError

    try:
        webhooks.parse(delivery.text, delivery.secret, delivery.header("webhook-signature"))
    except InvalidSignatureError:
        return False
    return True


def accepted_by_easypost(delivery: SignedDelivery) -> bool:
    from easypost.errors import SignatureVerificationError
    from easypost.util import validate_webhook

    try:
        validate_webhook(delivery.body, {"X-Hmac-Signature": delivery.header("x-hmac-signature")}, delivery.secret)
    except SignatureVerificationError:
        return False
    return True


def accepted_by_square(delivery: SignedDelivery) -> bool:
    from square.utils.webhooks_helper import verify_signature

    return bool(
        verify_signature(
            request_body=delivery.text,
            signature_header=delivery.header("x-square-hmacsha256-signature"),
            signature_key=delivery.secret,
            notification_url=delivery.url,
        )
    )


def accepted_by_hubspot(delivery: SignedDelivery) -> bool:
    from hubspot.exceptions import InvalidSignatureTimestampError
    from hubspot.utils.signature import Signature

    with frozen_clock(delivery.at):
        try:
            return bool(
                Signature.is_valid(
                    signature=delivery.header("x-hubspot-signature-v3"),
                    client_secret=delivery.secret,
                    request_body=delivery.text,
                    http_uri=delivery.url,
                    http_method="POST",
                    signature_version="v3",
                    timestamp=delivery.header("x-hubspot-request-timestamp"),
                )
            )
        except InvalidSignatureTimestampError:
            return False


def accepted_by_paddle(delivery: SignedDelivery) -> bool:
    from paddle_billing.Notifications import Secret, Verifier

    request = SimpleNamespace(body=delivery.body, headers={"Paddle-Signature": delivery.header("paddle-signature")})
    with frozen_clock(delivery.at):
        return bool(Verifier().verify(request, Secret(delivery.secret)))


def accepted_by_workos(delivery: SignedDelivery) -> bool:
    from workos.webhooks import Webhooks

    with frozen_clock(delivery.at):
        try:
            Webhooks(NO_CLIENT).verify_header(
                event_body=delivery.body, event_signature=delivery.header("workos-signature"), secret=delivery.secret
            )
        except ValueError as error:
            require_plain_value_error(error)
            return False
    return True


def accepted_by_elevenlabs(delivery: SignedDelivery) -> bool:
    from elevenlabs.errors import BadRequestError
    from elevenlabs.webhooks_custom import WebhooksClient

    client = WebhooksClient(client_wrapper=NO_CLIENT)
    with frozen_clock(delivery.at):
        try:
            client.construct_event(delivery.text, delivery.header("elevenlabs-signature"), delivery.secret)
        except BadRequestError:
            return False
    return True


def accepted_by_cloudinary(delivery: SignedDelivery) -> bool:
    import cloudinary
    from cloudinary.utils import verify_notification_signature

    cloudinary.config(api_secret=delivery.secret)
    timestamp, signature = delivery.header("x-cld-timestamp"), delivery.header("x-cld-signature")
    with frozen_clock(delivery.at):
        return bool(verify_notification_signature(delivery.text, timestamp, signature, algorithm="sha1"))


def accepted_by_box(delivery: SignedDelivery) -> bool:
    from box_sdk_gen import WebhooksManager

    with frozen_clock(delivery.at):
        return bool(WebhooksManager.validate_message(delivery.text, delivery.headers_in_lower_case, delivery.secret))


def accepted_by_pusher(delivery: SignedDelivery) -> bool:
    from pusher import Pusher

    # An app finds its secret by this key, which is public.
    key = delivery.header("x-pusher-key")
    if not key:
        return False
    app = Pusher(app_id="1", key=key, secret=delivery.secret)
    with frozen_clock(delivery.at):
        return app.validate_webhook(key, delivery.header("x-pusher-signature"), delivery.text) is not None


# Signatures that are part of the body


def accepted_by_mailgun(delivery: SignedDelivery) -> bool:
    from mailgun.security import SecurityGuard

    proof = json.loads(delivery.body)["signature"]
    with frozen_clock(delivery.at):
        return bool(
            SecurityGuard.verify_webhook(
                delivery.secret, proof["token"], proof["timestamp"], proof.get("signature", "")
            )
        )


def accepted_by_adyen(delivery: SignedDelivery) -> bool:
    from Adyen.util import is_valid_hmac_notification

    notification = json.loads(delivery.body)
    notification["notificationItems"][0]["NotificationRequestItem"]["additionalData"].setdefault("hmacSignature", "-")
    return bool(is_valid_hmac_notification(notification, delivery.secret))


# Public keys


def accepted_by_sendgrid(delivery: SignedDelivery) -> bool:
    from sendgrid.helpers.eventwebhook import EventWebhook

    timestamp = delivery.header("x-twilio-email-event-webhook-timestamp")
    signature = delivery.header("x-twilio-email-event-webhook-signature")
    return bool(EventWebhook(delivery.secret).verify_signature(delivery.text, signature, timestamp))


def accepted_by_discord_interactions(delivery: SignedDelivery) -> bool:
    from discord_interactions import verify_key

    signature, timestamp = delivery.header("x-signature-ed25519"), delivery.header("x-signature-timestamp")
    return bool(verify_key(delivery.body, signature, timestamp, delivery.secret))


def accepted_by_telnyx(delivery: SignedDelivery) -> bool:
    from telnyx.lib.webhook_verification import WebhookVerificationError, verify_webhook_signature

    with frozen_clock(delivery.at):
        try:
            verify_webhook_signature(delivery.body, delivery.headers, delivery.secret)
        except WebhookVerificationError:
            return False
    return True


# Tokens


def accepted_by_livekit(delivery: SignedDelivery) -> bool:
    import jwt
    from livekit.api import TokenVerifier, WebhookReceiver

    token = delivery.header("authorization")
    with frozen_clock(delivery.at):
        try:
            # A receiver finds its secret by the public name of the API key. Here, any name has the same secret.
            key = jwt.decode(token, options={"verify_signature": False}).get("iss", "unknown")
            WebhookReceiver(TokenVerifier(key, delivery.secret)).receive(delivery.text, token)
        except jwt.InvalidTokenError:
            return False
        except Exception as error:
            # For a valid token of another body, the SDK raises a plain `Exception`.
            if error.args in {("hash mismatch",), ("sha256 was not found in the token",)}:
                return False
            raise
    return True
