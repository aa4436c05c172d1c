"""The keys of definition files. They are the contract's names; everywhere else the same things are in snake_case.

A webhook's keys and the domain's fields are mapped to each other here, and nowhere else. An automation's keys are the
domain's names.
"""

from enum import StrEnum
from typing import Final


class WebhookKey(StrEnum):
    """A key of a webhook's file. Its member is named like the field that it stands for."""

    NAME = "name"
    AUTH_MODE = "authMode"
    SIGNATURE_SCHEME = "signatureScheme"
    SIGNATURE_OPTIONS = "signatureOptions"
    ANSWERS_HANDSHAKES = "answersHandshakes"
    SECRET_NAME = "secretName"
    DELIVERY_ID_HEADER = "deliveryIdHeader"
    EVENT_HEADER = "eventHeader"
    ENABLED = "enabled"

    @property
    def field(self) -> str:
        """The name of the attribute of `Webhook` and `WebhookDefinition`."""
        return self.name.lower()


AUTOMATION_KEYS: Final = ("name", "enabled", "runner", "triggers")
