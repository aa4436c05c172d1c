"""What other hosts say: their words are shown to people only if they have no part of a credential."""

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from html import unescape
from typing import Any, Final
from urllib.parse import unquote

from hookmill.domain.alarm_destination import UrlParts
from hookmill.domain.masking import SECRET_BYTES_MIN, forms_of
from hookmill.domain.text import shown
from hookmill.outbound.proxies import proxy_credentials

CHARACTERS_MAX: Final = 300
PARSED_BYTES_MAX: Final = 65_536
HIDDEN: Final = "its text contains a part of the credential and is not shown"
_EXAMINED_CHARACTERS: Final = 4_096
"""More than is shown, so that the first characters of a credential are not shown before the cut."""
_PART_CHARACTERS: Final = 12
"""A text that has so many characters of a credential in a row is not shown."""


def secret_parts(url: UrlParts, headers: Mapping[str, str]) -> list[str]:
    """What no answer may repeat: the token, or the parts of the URL of a chat or a webhook, one of which may be one."""
    token = headers.get("Authorization", "").removeprefix("Bearer ")
    parts = re.split(r"[/?&=]", f"{url.target}?{unquote(url.target)}")
    return [token] if token else [part for part in parts if len(part) >= _PART_CHARACTERS]


def quoted_answer(body: bytes, credentials: Iterable[str]) -> str | None:
    """The destination's own words, quoted; None if the body has none that people can read."""
    return quoted(_text(body[:PARSED_BYTES_MAX]), credentials)


def quoted(text: str, credentials: Iterable[str]) -> str | None:
    """The text of another host, quoted, or `HIDDEN`; None if it is empty."""
    text = " ".join(text.split())
    if not text:
        return None
    if has_part(text, credentials):
        return HIDDEN
    text = shown(text).replace('"', "'")
    return f'"{text if len(text) <= CHARACTERS_MAX else text[:CHARACTERS_MAX] + "…"}"'


def has_part(text: str, credentials: Iterable[str]) -> bool:
    """Whether the beginning of the text has a part of one of the credentials, or of one for a proxy.

    The credentials are compared in the forms of `forms_of`, without regard to case. White space or other characters
    between their letters and digits may divide them.
    """
    # The host knows the credential, so the time that this takes tells it nothing.
    text = text[:_EXAMINED_CHARACTERS]
    views = {view.casefold() for view in (text, unquote(text), unescape(text))}
    views |= {compact for view in views for compact in (_letters_and_digits(view), "".join(view.split()))}
    known = (*credentials, *proxy_credentials())
    parts = {part for credential in (*known, *map(_password_in, known)) for part in _parts(credential)}
    sizes = {len(part) for part in parts}
    return any(
        view[start : start + size] in parts for view in views for size in sizes for start in range(len(view) - size + 1)
    )


def _password_in(credential: str) -> str:
    """The password in a header of HTTP Basic authentication; empty if it is none."""
    try:
        password = b64decode(credential.removeprefix("Basic "), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
    return password if len(password) >= SECRET_BYTES_MIN else ""


def _parts(credential: str) -> Iterator[str]:
    encoded = credential.encode("utf-8", "surrogatepass")
    for form in {credential, *(form.decode("utf-8", "replace") for form in forms_of(encoded))}:
        folded = form.casefold()
        compact = _letters_and_digits(folded)
        for text in (folded, compact if len(compact) >= SECRET_BYTES_MIN else ""):
            size = min(_PART_CHARACTERS, len(text))
            if size:
                yield from (text[start : start + size] for start in range(len(text) - size + 1))


def _letters_and_digits(text: str) -> str:
    return "".join(filter(str.isalnum, text))


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
