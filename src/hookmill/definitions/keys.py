"""The keys of definition files, as the contract names them. Everywhere else the same fields are in snake_case.

Only this module maps a webhook's keys to the domain's fields. An automation's keys are the domain's names.
"""

import re
from hashlib import sha256
from typing import Final

from hookmill.domain.automation import AutomationWithoutPrompt
from hookmill.domain.errors import Fault
from hookmill.domain.ids import WebhookUid
from hookmill.domain.json_pointer import pointer_to, steps_of
from hookmill.domain.webhook import WebhookSpec


def key_of(field: str) -> str:
    """The key of a webhook's file that sets this field of `WebhookSpec`."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), field)


WEBHOOK_FIELDS: Final = {key_of(field): field for field in WebhookSpec.__struct_fields__}
"""The fields of `WebhookSpec` by key."""


def fault_in_file(fault: Fault) -> Fault:
    """A fault of a `WebhookSpec` with the keys of its file, in the pointer and in the message."""
    field, *others = steps_of(fault.pointer) or [""]
    if not field:
        return fault
    return Fault(pointer_to([key_of(field), *others]), fault.message.replace(field, key_of(field)))


REFERENCE: Final = "webhook:"
"""The prefix of a webhook's name where a file could also have its uid."""


def new_uid(name: str) -> WebhookUid:
    """Stands for the uid of a webhook with this name until an apply has created it. No webhook has such a uid."""
    return WebhookUid(f"{_NEW}{sha256(name.encode()).hexdigest()[:32]}")


def is_new(uid: WebhookUid) -> bool:
    """Whether it stands for the uid of a webhook that does not exist yet."""
    return uid.startswith(_NEW)


_NEW: Final = "wh_new-"


AUTOMATION_KEYS: Final = AutomationWithoutPrompt.__struct_fields__
"""The prompt is below the front matter."""
