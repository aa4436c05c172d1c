"""The shell line that posts a sample delivery: whole, on one line, ready to be copied."""

import shlex
from typing import Final, assert_never

from hookmill.domain.webhook import AuthMode

_SAMPLE: Final = '{"message": "Hello from curl"}'


def curl_line(mode: AuthMode, url: str, secret: str) -> str | None:
    """It holds the secret. None for a webhook whose deliveries must be signed: a fixed line can't do that."""
    match mode:
        case AuthMode.TOKEN:
            credential = ["-H", f"Authorization: Bearer {secret}"]
        case AuthMode.URL_TOKEN:
            credential = []
        case AuthMode.SIGNATURE:
            return None
        case _:
            assert_never(mode)
    return shlex.join(["curl", *credential, "-H", "Content-Type: application/json", "-d", _SAMPLE, url])
