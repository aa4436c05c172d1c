"""What a destination says about a request that it refused: one quoted line without any part of a credential."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from hookmill.domain.alarm_destination import UrlParts
from hookmill.domain.text import shown

CHARACTERS_MAX: Final = 300
PARSED_BYTES_MAX: Final = 65_536
_PART_CHARACTERS: Final = 12
"""A text that has so many characters of a credential in a row is not shown."""


def secret_parts(url: UrlParts, headers: Mapping[str, str]) -> list[str]:
    """What no answer may repeat: the token, or the parts of the URL of a chat or a webhook, one of which may be one."""
    token = headers.get("Authorization", "").removeprefix("Bearer ")
    parts = re.split(r"[/?&=]", f"{url.target}?{unquote(url.target)}")
    return [token] if token else [part for part in parts if len(part) >= _PART_CHARACTERS]


def quoted_answer(body: bytes, credentials: Iterable[str]) -> str | None:
    """The destination's own words, quoted; None if the body has none that people can read."""
    text = " ".join(_text(body[:PARSED_BYTES_MAX]).split())
    if not text:
        return None
    if any(_has_part(form, credential) for form in (text, unquote(text)) for credential in credentials):
        return "its text contains a part of the credential and is not shown"
    text = shown(text).replace('"', "'")
    return f'"{text if len(text) <= CHARACTERS_MAX else text[:CHARACTERS_MAX] + "…"}"'


def _text(body: bytes) -> str:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace").strip()
        # An HTML page is the gateway's, and JSON that is cut can't be read.
        return "" if text[:1] in ("<", "{", "[") else text
    if not isinstance(answer, dict):
        return answer if isinstance(answer, str) else ""
    names = ("message", "error_description", "detail", "title", "error")
    text = next((value for name in names if isinstance(value := answer.get(name), str)), "")
    errors = answer.get("errors")
    details = [_detail(each) for each in errors[:5]] if isinstance(errors, list) else []
    return ": ".join(part for part in (text, "; ".join(detail for detail in details if detail)) if part)


def _detail(error: Any) -> str:
    if isinstance(error, dict):
        if isinstance(error.get("message"), str):
            return str(error["message"])
        return " ".join(value for name in ("field", "code") if isinstance(value := error.get(name), str))
    return error if isinstance(error, str) else ""


def _has_part(text: str, credential: str) -> bool:
    # The destination knows the credential, so the time that this takes tells it nothing.
    length = min(_PART_CHARACTERS, len(credential))
    parts = (credential[start : start + length] for start in range(len(credential) - length + 1))
    return length > 0 and any(part in text for part in parts)
