"""Others' word on what a provider's signature is: the provider's own SDK, or a library that knows nothing of us.

`ORACLES` names them all. `by_hand` makes each signature once more from the provider's rule, with hashes and keys alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.oracles import independent, official
from tests.oracles.request import Given, Signs

__all__ = ["ORACLES", "Given", "Oracle"]


@dataclass(frozen=True, slots=True)
class Oracle:
    """What a package says about requests in a scheme."""

    scheme: str
    package: str
    accepts: Callable[[Given], bool]
    signs: Signs | None = None
    past: int | None = None
    """The greatest age in seconds that it accepts; None where it accepts any."""
    future: int | None = None
    """How far ahead, in the same way."""
    official: bool = True
    """The provider publishes it."""

    def __str__(self) -> str:
        return f"{self.scheme}, {self.package}"


ORACLES = (
    Oracle("adyen", "adyen", official.accepted_by_adyen, official.signed_by_adyen),
    Oracle("airtable", "pyairtable", independent.accepted_by_pyairtable, official=False),
    Oracle("box", "box-sdk-gen", official.accepted_by_box, official.signed_by_box, past=600, future=0),
    Oracle("cloudinary", "cloudinary", official.accepted_by_cloudinary, past=7200),
    Oracle("coinbase_commerce", "coinbase-commerce", official.accepted_by_coinbase_commerce),
    Oracle("discord", "discord-interactions", official.accepted_by_discord_interactions),
    Oracle("easypost", "easypost", official.accepted_by_easypost),
    Oracle("elevenlabs", "elevenlabs", official.accepted_by_elevenlabs, past=1800),
    Oracle("github", "gidgethub", independent.accepted_by_gidgethub, official=False),
    Oracle("gitlab_token", "gidgetlab", independent.accepted_by_gidgetlab, official=False),
    Oracle("gocardless", "gocardless-pro", official.accepted_by_gocardless_pro),
    Oracle("hubspot_v3", "hubspot-api-client", official.accepted_by_hubspot, official.signed_by_hubspot, past=299),
    Oracle("hugging_face", "huggingface-hub", official.accepted_by_huggingface_hub),
    Oracle("line", "line-bot-sdk", official.accepted_by_linebot),
    Oracle("livekit", "livekit-api", official.accepted_by_livekit, official.signed_by_livekit, past=359, future=60),
    Oracle("mailgun", "mailgun", official.accepted_by_mailgun, past=900, future=900),
    Oracle("meta", "pywa", independent.accepted_by_pywa, official=False),
    Oracle("netlify", "pyjwt", independent.accepted_by_pyjwt, independent.signed_by_pyjwt, official=False),
    Oracle("paddle", "paddle-python-sdk", official.accepted_by_paddle, official.signed_by_paddle, past=5, future=5),
    Oracle("polar", "polar-sdk", official.accepted_by_polar, past=300, future=300),
    Oracle("pusher", "pusher", official.accepted_by_pusher, official.signed_by_pusher, past=300, future=300),
    Oracle("razorpay", "razorpay", official.accepted_by_razorpay),
    Oracle("sendgrid", "sendgrid", official.accepted_by_sendgrid),
    Oracle("slack", "slack-sdk", official.accepted_by_slack_sdk, official.signed_by_slack_sdk, past=300, future=300),
    Oracle("square", "squareup", official.accepted_by_square),
    Oracle("standard_webhooks", "anthropic", official.accepted_by_anthropic, past=300, future=300),
    Oracle("standard_webhooks", "openai", official.accepted_by_openai, past=300, future=300),
    Oracle("standard_webhooks", "replicate", official.accepted_by_replicate, past=300, future=300),
    Oracle(
        "standard_webhooks",
        "standardwebhooks",
        official.accepted_by_standardwebhooks,
        official.signed_by_standardwebhooks,
        past=300,
        future=300,
    ),
    Oracle("standard_webhooks", "svix", official.accepted_by_svix, official.signed_by_svix, past=300, future=300),
    Oracle("stripe", "stripe", official.accepted_by_stripe, official.signed_by_stripe, past=300),
    Oracle("svix", "resend", official.accepted_by_resend, past=300, future=300),
    Oracle("svix", "svix", official.accepted_by_svix, official.signed_by_svix, past=300, future=300),
    Oracle("telnyx", "telnyx", official.accepted_by_telnyx, past=300, future=300),
    Oracle("twilio", "twilio", official.accepted_by_twilio, official.signed_by_twilio),
    Oracle("workos", "workos", official.accepted_by_workos, past=180, future=180),
)
"""Ordered by scheme."""
