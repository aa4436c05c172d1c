"""Test oracles for signatures: the providers' own SDKs, and independent libraries.

`ORACLES` lists them. They verify the deliveries of Hookmill's own signer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.oracles import independent, official
from tests.oracles.signed_delivery import SignedDelivery

__all__ = ["ORACLES", "Oracle"]


@dataclass(frozen=True, slots=True)
class Oracle:
    """A package that verifies the deliveries of a scheme."""

    scheme: str
    package: str
    accepts: Callable[[SignedDelivery], bool]
    official: bool = True
    """Whether the provider publishes the package."""

    def __str__(self) -> str:
        return f"{self.scheme}, {self.package}"


ORACLES = (
    Oracle("adyen", "adyen", official.accepted_by_adyen),
    Oracle("airtable", "pyairtable", independent.accepted_by_pyairtable, official=False),
    Oracle("box", "box-sdk-gen", official.accepted_by_box),
    Oracle("cloudinary", "cloudinary", official.accepted_by_cloudinary),
    Oracle("coinbase_commerce", "coinbase-commerce", official.accepted_by_coinbase_commerce),
    Oracle("discord", "discord-interactions", official.accepted_by_discord_interactions),
    Oracle("easypost", "easypost", official.accepted_by_easypost),
    Oracle("elevenlabs", "elevenlabs", official.accepted_by_elevenlabs),
    Oracle("github", "gidgethub", independent.accepted_by_gidgethub, official=False),
    Oracle("gitlab_token", "gidgetlab", independent.accepted_by_gidgetlab, official=False),
    Oracle("gocardless", "gocardless-pro", official.accepted_by_gocardless_pro),
    Oracle("hubspot_v3", "hubspot-api-client", official.accepted_by_hubspot),
    Oracle("hugging_face", "huggingface-hub", official.accepted_by_huggingface_hub),
    Oracle("line", "line-bot-sdk", official.accepted_by_linebot),
    Oracle("livekit", "livekit-api", official.accepted_by_livekit),
    Oracle("mailgun", "mailgun", official.accepted_by_mailgun),
    Oracle("meta", "pywa", independent.accepted_by_pywa, official=False),
    Oracle("netlify", "pyjwt", independent.accepted_by_pyjwt, official=False),
    Oracle("paddle", "paddle-python-sdk", official.accepted_by_paddle),
    Oracle("polar", "polar-sdk", official.accepted_by_polar),
    Oracle("pusher", "pusher", official.accepted_by_pusher),
    Oracle("razorpay", "razorpay", official.accepted_by_razorpay),
    Oracle("sendgrid", "sendgrid", official.accepted_by_sendgrid),
    Oracle("slack", "slack-sdk", official.accepted_by_slack_sdk),
    Oracle("square", "squareup", official.accepted_by_square),
    Oracle("standard_webhooks", "anthropic", official.accepted_by_anthropic),
    Oracle("standard_webhooks", "openai", official.accepted_by_openai),
    Oracle("standard_webhooks", "replicate", official.accepted_by_replicate),
    Oracle(
        "standard_webhooks",
        "standardwebhooks",
        official.accepted_by_standardwebhooks,
    ),
    Oracle("standard_webhooks", "svix", official.accepted_by_svix),
    Oracle("stripe", "stripe", official.accepted_by_stripe),
    Oracle("svix", "resend", official.accepted_by_resend),
    Oracle("svix", "svix", official.accepted_by_svix),
    Oracle("telnyx", "telnyx", official.accepted_by_telnyx),
    Oracle("twilio", "twilio", official.accepted_by_twilio),
    Oracle("workos", "workos", official.accepted_by_workos),
)
"""Ordered by scheme."""
