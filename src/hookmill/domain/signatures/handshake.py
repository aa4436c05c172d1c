"""A provider's challenge and the answer that it waits for. Pure, and only for requests that are verified already."""

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hookmill.domain.payload import Json
from hookmill.domain.signatures.key import Key
from hookmill.domain.signatures.reading import Reader, SignedRequest, Template, Verification, source, value_at
from hookmill.domain.signatures.scheme import Scheme

ANSWER_BYTES_MAX: Final = 8192


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer instead of the usual 202."""

    status: int
    content_type: str
    body: bytes


def answer(scheme: Scheme, keys: Sequence[Key], request: SignedRequest) -> Reply | None:
    """The answer to a challenge; None for every other request. Ask for verified requests only."""
    rule = scheme.handshake
    if rule is None or not keys:
        return None
    verification = Verification(request)
    if not all(_says(verification, where, wanted) for where, wanted in rule.when.items()):
        return None
    verification.secret = keys[0].shared
    if rule.reply is None:
        text = _template(rule.text, scheme.algorithm.digest).fill(verification)
        return _reply(rule.status, "text/plain; charset=utf-8", text)
    filled: dict[str, Json] = {}
    for name, value in rule.reply.items():
        if isinstance(value, str):
            written = _template(value, scheme.algorithm.digest).fill(verification)
            if written is None:
                return None
            value = written.decode("utf-8", "replace")
        filled[name] = value
    return _reply(rule.status, "application/json", json.dumps(filled).encode())


def _reply(status: int, content_type: str, body: bytes | None) -> Reply | None:
    if body is None or len(body) > ANSWER_BYTES_MAX:
        return None
    return Reply(status, content_type, body)


def _says(verification: Verification, where: str, wanted: Json) -> bool:
    kind, _, name = where.partition(":")
    if kind == "header":
        return source(where)(verification) == str(wanted).encode()
    found = value_at(verification.body_value(), name.split("."))
    # To Python, True is 1 and 1.0 is 1; to a provider they aren't.
    return type(found) is type(wanted) and found == wanted


@lru_cache(maxsize=64)
def _template(text: str, digest: str) -> Template:
    named = {name: _keyed(name.removeprefix("hmac:"), digest) for name in _names(text) if name.startswith("hmac:")}
    return Template(text, named)


def _names(text: str) -> list[str]:
    return [part.partition("}")[0] for part in text.split("{")[1:]]


def _keyed(where: str, digest: str) -> Reader:
    read = source(where)

    def read_keyed(verification: Verification) -> bytes | None:
        value = read(verification)
        return None if value is None else hmac.digest(verification.secret, value, digest).hex().encode()

    return read_keyed
