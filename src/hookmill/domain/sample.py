"""Samples for new users: the automation that a first start creates, and a `curl` line that posts a delivery."""

import shlex
from collections.abc import Iterable
from typing import Final, assert_never

from hookmill.domain.automation import Automation
from hookmill.domain.webhook import AuthMode

FIRST_START_NAME: Final = "first"
"""The name of the webhook and the name of the automation that a first start creates."""
FIRST_START_PROMPT: Final = """\
A delivery came in at the webhook `first`. Read event-payload.json, and say in one friendly paragraph what it asks for.
"""

# The shell inserts the current time. So if a user pastes the line again, the body differs, and there is no Duplicate.
# Seconds are the smallest unit that every `date` supports.
_SAMPLE_BODY: Final = """'{"message": "Hello from curl", "sent_at": '$(date +%s)'}'"""


def curl_line(mode: AuthMode, url: str, secret: str) -> str | None:
    """A shell line that posts a sample delivery. It contains the secret.

    None for the mode `signature`, because a fixed line can't sign.
    """
    match mode:
        case AuthMode.TOKEN:
            credential = ["-H", f"Authorization: Bearer {secret}"]
        case AuthMode.URL_TOKEN:
            credential = []
        case AuthMode.SIGNATURE:
            return None
        case _:
            assert_never(mode)
    command = shlex.join(["curl", *credential, "-H", "Content-Type: application/json"])
    return f"{command} -d {_SAMPLE_BODY} {shlex.quote(url)}"


def unchanged_first_automation(automations: Iterable[Automation]) -> Automation | None:
    """The automation that the first start created, if its name and prompt are unchanged."""
    return next(
        (each for each in automations if (each.name, each.prompt) == (FIRST_START_NAME, FIRST_START_PROMPT)), None
    )
