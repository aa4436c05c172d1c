"""Temporary webhooks, with which `hookmill doctor` tests a deployment, are recognized by their names.

Their names contain random digits, which their secrets' names repeat. So a leftover of a killed `doctor` is recognized,
and no other webhook is.
"""

import re
from typing import Final

NAME_PREFIX: Final = "hookmill-doctor-"
SECRET_NAME_PREFIX: Final = "HOOKMILL_DOCTOR_"
_NAME: Final = re.compile(rf"{NAME_PREFIX}([0-9a-f]{{16}})\Z")


def is_probe(name: str, secret_name: str) -> bool:
    """Whether a `doctor` has created the webhook with this name, which uses the team secret with this name."""
    match = _NAME.match(name)
    return match is not None and secret_name == f"{SECRET_NAME_PREFIX}{match[1].upper()}"
