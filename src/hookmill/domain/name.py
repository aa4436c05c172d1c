"""The names of webhooks, automations, schedules, factories, members and keys."""

import re
from typing import Final

from hookmill.domain.errors import Invalid

_NAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,100}\Z")


def usable_name(kind: str, name: str) -> str:
    """`name`, trimmed. Raises `Invalid` unless it has 1 to 100 characters, all of which UTF-8 can encode.

    Control characters and line separators are invalid. `kind` is the noun for the error text, such as `webhook`.
    """
    trimmed = name.strip()
    if _NAME.match(trimmed) and not any("\ud800" <= character <= "\udfff" for character in trimmed):
        return trimmed
    raise Invalid(
        f"A {kind}'s name must have 1 to 100 characters, none of them a control character, a line separator or half of "
        f"a surrogate pair; got {name[:100]!r}."
    )
