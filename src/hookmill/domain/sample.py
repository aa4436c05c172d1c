"""What lets a newcomer try the service: the automation that a first start makes, and the shell line that posts a
sample delivery: whole, on one line, ready to be copied."""

import shlex
from collections.abc import Iterable
from typing import Final, assert_never

from hookmill.domain.automation import Automation
from hookmill.domain.webhook import AuthMode

FIRST: Final = "first"
"""What a first start names the webhook and the automation that it makes."""
FIRST_PROMPT: Final = """\
A delivery came in at the webhook `first`. Read event-payload.json, and say in one friendly paragraph what it asks for.
"""

# The shell puts the time in, outside of the quotes: pasted again, the line posts another event and no Duplicate.
# Seconds are the smallest unit that every `date` knows.
_SAMPLE: Final = """'{"message": "Hello from curl", "sent_at": '$(date +%s)'}'"""


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
    command = shlex.join(["curl", *credential, "-H", "Content-Type: application/json"])
    return f"{command} -d {_SAMPLE} {shlex.quote(url)}"


def ready_made(automations: Iterable[Automation]) -> Automation | None:
    """The automation of the first start, while it is as that made it."""
    return next((each for each in automations if (each.name, each.prompt) == (FIRST, FIRST_PROMPT)), None)
