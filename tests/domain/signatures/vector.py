"""A signed request of every scheme, which this project did not sign, and functions that change it."""

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
class Vector:
    """The content of a vector file."""

    scheme: Scheme
    secret: str
    key: Key
    request: SignedRequest
    at: int
    """When the request was signed, in seconds since 1970."""
    delivery_id: bytes | None
    record: Mapping[str, Any]
    """All fields of the file."""

    def verify(self, request: SignedRequest | None = None, late_seconds: int = 0) -> VerificationResult:
        return verify(self.scheme, [self.key], request or self.request, (self.at + late_seconds) * 1_000_000)

    def signatures(self) -> list[str]:
        """Every signature of the request, without its prefix."""
        signatures: list[str] = []
        self.with_signatures(lambda signature: (signatures.append(signature), signature)[1])
        return signatures

    def with_signatures(self, change: Callable[[str], str]) -> SignedRequest:
        """The request with every signature changed, and nothing else."""
        rule = self.scheme.signature

        def change_after_prefix(value: str) -> str:
            return rule.prefix + change(value.removeprefix(rule.prefix))

        headers, body = dict(self.request.headers), self.request.body
        for source in rule.sources:
            kind, _, name = source.partition(":")
            if kind == "json":
                body = _with_changed_value(body, name.split("."), change_after_prefix)
            for number in [""] if kind == "header" else range(1, 101):
                header = f"{name}{number}".lower().encode()
                if header in headers:
                    value = headers[header].decode()
                    headers[header] = self._with_changed_entries(value, change_after_prefix).encode(
                        "utf-8", "surrogatepass"
                    )
        return replace(self.request, headers=headers, body=body)

    def _with_changed_entries(self, header: str, change: Callable[[str], str]) -> str:
        list_format = self.scheme.signature.list_format
        if list_format is None:
            return change(header)
        parts = header.split(list_format.separator)
        if list_format.positional:
            return list_format.separator.join([parts[0], *map(change, parts[1:])])
        name = f"{list_format.tag}," if list_format.tag else f"{list_format.field}="
        return list_format.separator.join(
            name + change(part.removeprefix(name)) if part.startswith(name) else part for part in parts
        )


def _with_changed_value(body: bytes, steps: list[str], change: Callable[[str], str]) -> bytes:
    content = json.loads(body)
    parent = content
    for step in steps[:-1]:
        parent = parent[int(step)] if isinstance(parent, list) else parent[step]
    parent[steps[-1]] = change(parent[steps[-1]])
    return json.dumps(content).encode()


@cache
def vector_of(name: str) -> Any:
    """The `Vector` of this scheme, as `Any`: an attribute that is None must fail the test, not the type check."""
    record = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    scheme = catalogue.find(name)
    body = base64.b64decode(record["body_base64"]) if "body_base64" in record else record["body"].encode()
    headers = {header.lower().encode(): value.encode() for header, value in record["headers"].items()}
    return Vector(
        scheme=scheme,
        secret=record["secret"],
        key=prepare_key(scheme, record["secret"]),
        request=SignedRequest(headers, frozenset(), body, record["url"]),
        at=record["at"],
        delivery_id=record["delivery_id"].encode() if record["delivery_id"] is not None else None,
        record=record,
    )


def names_where(condition: Callable[[Scheme], bool]) -> list[str]:
    """The names of the schemes that satisfy the condition."""
    return [scheme.name for scheme in catalogue.schemes() if condition(scheme)]


def decoded(scheme: Scheme, signature: str) -> bytes:
    """The bytes of a signature, decoded without the verifier's decoders."""
    match scheme.signature.encoding:
        case Encoding.HEX:
            return bytes.fromhex(signature)
        case Encoding.BASE64:
            return base64.b64decode(signature)
        case Encoding.BASE64URL:
            return base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
        case Encoding.TEXT:
            return signature.encode()
