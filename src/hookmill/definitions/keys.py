"""The keys of definition files, as the contract names them. Everywhere else the same fields are in snake_case.

Only this module maps a webhook's keys to the domain's fields. An automation's keys are the domain's names.
"""

from enum import StrEnum
from typing import Final

from hookmill.domain.automation import AutomationWithoutPrompt


class WebhookKey(StrEnum):
    """A key of a webhook's file. The name of each member, in lower case, is the field that the key sets."""

    NAME = "name"
    AUTH_MODE = "authMode"
    SIGNATURE_SCHEME = "signatureScheme"
    SIGNATURE_OPTIONS = "signatureOptions"
    ANSWERS_HANDSHAKES = "answersHandshakes"
    SECRET_NAME = "secretName"
    DELIVERY_ID_HEADER = "deliveryIdHeader"
    EVENT_HEADER = "eventHeader"
    ALLOWED_NETWORKS = "allowedNetworks"
    EXPECT_EVERY = "expectEvery"
    ENABLED = "enabled"

    @property
    def field(self) -> str:
        """The name of the attribute of `Webhook` and `WebhookDefinition`."""
        return self.name.lower()


AUTOMATION_KEYS: Final = AutomationWithoutPrompt.__struct_fields__
"""The prompt is below the front matter."""
