"""A signed request of every scheme, made by something other than Hookmill, and ways to spoil it."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.encoding import Encoding
from hookmill.domain.signatures.key import Key, prepare_key
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.scheme import Scheme
from hookmill.domain.signatures.verify import VerificationResult, verify

VECTORS = Path(__file__).parent / "vectors"
NAMES = [scheme.name for scheme in catalogue.schemes()]


@dataclass(frozen=True)
class Example:
    scheme: Scheme
    secret: str
    key: Key
    request: SignedRequest
    at: int
    delivery_id: bytes | None
    record: Mapping[str, Any]

    def judge(self, request: SignedRequest | None = None, late_seconds: int = 0) -> VerificationResult:
        return verify(self.scheme, [self.key], request or self.request, (self.at + late_seconds) * 1_000_000)

    def signatures(self) -> list[str]:
        """Every signature that the request bears, without its prefix."""
        found: list[str] = []
        self.with_signatures(lambda one: (found.append(one), one)[1])
        return found

    def with_signatures(self, change: Callable[[str], str]) -> SignedRequest:
        """The request with every signature in it changed, and nothing else."""
        signature = self.scheme.signature

        def changed(value: str) -> str:
            return signature.prefix + change(value.removeprefix(signature.prefix))

        headers, body = dict(self.request.headers), self.request.body
        for where in signature.sources:
            kind, _, name = where.partition(":")
            if kind == "json":
                body = _changed_at(body, name.split("."), changed)
            for number in [""] if kind == "header" else range(1, 101):
                header = f"{name}{number}".lower().encode()
                if header in headers:
                    value = headers[header].decode()
                    headers[header] = self._in_list(value, changed).encode("utf-8", "surrogatepass")
        return replace(self.request, headers=headers, body=body)

    def _in_list(self, value: str, changed: Callable[[str], str]) -> str:
        list_format = self.scheme.signature.list_format
        if list_format is None:
            return changed(value)
        parts = value.split(list_format.separator)
        if list_format.positional:
            return list_format.separator.join([parts[0], *map(changed, parts[1:])])
        mark = f"{list_format.tag}," if list_format.tag else f"{list_format.field}="
        return list_format.separator.join(
            mark + changed(part.removeprefix(mark)) if part.startswith(mark) else part for part in parts
        )


def _changed_at(body: bytes, steps: list[str], changed: Callable[[str], str]) -> bytes:
    whole = json.loads(body)
    place = whole
    for step in steps[:-1]:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[steps[-1]] = changed(place[steps[-1]])
    return json.dumps(whole).encode()


@cache
def example(name: str) -> Any:
    """The `Example` of this scheme. What it lacks is a test's failure and no matter of types."""
    record = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    scheme = catalogue.find(name)
    body = base64.b64decode(record["body_base64"]) if "body_base64" in record else record["body"].encode()
    headers = {header.lower().encode(): value.encode() for header, value in record["headers"].items()}
    return Example(
        scheme=scheme,
        secret=record["secret"],
        key=prepare_key(scheme, record["secret"]),
        request=SignedRequest(headers, frozenset(), body, record["url"]),
        at=record["at"],
        delivery_id=record["delivery_id"].encode() if record["delivery_id"] is not None else None,
        record=record,
    )


def those(fits: Callable[[Scheme], bool]) -> list[str]:
    """The names of the schemes that a test applies to."""
    return [scheme.name for scheme in catalogue.schemes() if fits(scheme)]


def raw(scheme: Scheme, signature: str) -> bytes:
    """The bytes that a signature stands for, decoded without the verifier's help."""
    match scheme.signature.encoding:
        case Encoding.HEX:
            return bytes.fromhex(signature)
        case Encoding.BASE64:
            return base64.b64decode(signature)
        case Encoding.BASE64URL:
            return base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
        case Encoding.TEXT:
            return signature.encode()
