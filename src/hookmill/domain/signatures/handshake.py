"""The reply to a provider's signed challenge. The module is pure, and expects verified requests."""

import hmac
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from hookmill.domain.delivery import HandshakeReply
from hookmill.domain.payload import Json
from hookmill.domain.signatures.key import Key
from hookmill.domain.signatures.reading import Reader, RequestValues, SignedRequest, Template, source_reader, value_at
from hookmill.domain.signatures.scheme import Scheme

REPLY_BYTES_MAX: Final = 8192


def handshake_reply(scheme: Scheme, keys: Sequence[Key], request: SignedRequest) -> HandshakeReply | None:
    """The reply, if the request is a challenge; otherwise None. The request's signature must be verified."""
    rule = scheme.handshake
    if rule is None or not keys:
        return None
    values = RequestValues(request)
    if not all(_has_value(values, source, expected) for source, expected in rule.when.items()):
        return None
    if any(source_reader(source)(values) is not None for source in rule.when_absent):
        return None
    values.secret = keys[0].secret_bytes
    if rule.reply is None:
        text = _template(rule.text, scheme.algorithm.digest).fill(values)
        return _reply_unless_too_large(rule.status, "text/plain; charset=utf-8", text)
    fields: dict[str, Json] = {}
    for name, value in rule.reply.items():
        if isinstance(value, str):
            filled = _template(value, scheme.algorithm.digest).fill(values)
            if filled is None:
                return None
            value = filled.decode("utf-8", "replace")
        fields[name] = value
    return _reply_unless_too_large(rule.status, "application/json", json.dumps(fields).encode())


def _reply_unless_too_large(status: int, content_type: str, body: bytes | None) -> HandshakeReply | None:
    if body is None or len(body) > REPLY_BYTES_MAX:
        return None
    return HandshakeReply(status, content_type, body)


def _has_value(values: RequestValues, source: str, expected: Json) -> bool:
    kind, _, name = source.partition(":")
    if kind == "header":
        return source_reader(source)(values) == str(expected).encode()
    value = value_at(values.body_value(), name.split("."))
    # Python considers True, 1 and 1.0 equal; in JSON they differ.
    return type(value) is type(expected) and value == expected


@lru_cache(maxsize=64)
def _template(text: str, digest: str) -> Template:
    readers = {
        name: _hmac_reader(name.removeprefix("hmac:"), digest)
        for name in _placeholders(text)
        if name.startswith("hmac:")
    }
    return Template(text, readers)


def _placeholders(text: str) -> list[str]:
    return [part.partition("}")[0] for part in text.split("{")[1:]]


def _hmac_reader(source: str, digest: str) -> Reader:
    read = source_reader(source)

    def read_hmac(values: RequestValues) -> bytes | None:
        value = read(values)
        return None if value is None else hmac.digest(values.secret, value, digest).hex().encode()

    return read_hmac
