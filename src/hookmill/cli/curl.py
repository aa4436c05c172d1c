"""The shell line that posts a sample delivery: whole, on one line, ready to be copied."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, assert_never

from hookmill.domain.webhook import AuthMode

if TYPE_CHECKING:
    from hookmill.management import WebhookWithSecret

_SAMPLE: Final = '{"message": "Hello from curl"}'


def curl_line(made: WebhookWithSecret) -> str | None:
    """It holds the secret. None for a webhook whose deliveries must be signed: a fixed line can't do that."""
    match made.webhook.auth_mode:
        case AuthMode.TOKEN:
            credential = ["-H", f"Authorization: Bearer {made.reveal()}"]
        case AuthMode.URL_TOKEN:
            credential = []
        case AuthMode.SIGNATURE:
            return None
        case _:
            assert_never(made.webhook.auth_mode)
    return shlex.join(["curl", *credential, "-H", "Content-Type: application/json", "-d", _SAMPLE, made.url])
