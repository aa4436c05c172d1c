"""Reads the values that a scheme needs from a request: headers, values in the body, the URL, and templates of them.

Each scheme is compiled once into readers. A reader never raises, and returns None for an absent value.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hookmill.domain.payload import Json, NotJson, parse


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request as it was received, or is about to be signed."""

    headers: Mapping[bytes, bytes]
    """The first value of each header, by its name in lower case."""
    conflicting_headers: frozenset[bytes]
    """The headers that occurred more than once with different values."""
    body: bytes
    url: str
    """The public URL from the settings, with the path and query of this request. Never derived from `Host`."""
    method: str = "POST"


class RequestValues:
    """The values that readers read from one request. The body is parsed when a reader first needs it.

    The verifier or the signer sets the attributes that don't come from the request alone: the two times and the secret.
    """

    __slots__ = ("_body", "_is_parsed", "request", "secret", "timestamp", "timestamp_in_signature_header")

    def __init__(self, request: SignedRequest) -> None:
        self.request = request
        self.timestamp = b""
        """The time as the provider wrote it, because the provider signs this text."""
        self.timestamp_in_signature_header: bytes | None = None
        """The time in a signature header such as `t=…,v1=…`."""
        self.secret = b""
        """The secret, decoded. Some schemes sign text that contains it."""
        self._is_parsed = False
        self._body: Json = None

    def body_value(self) -> Json:
        if not self._is_parsed:
            parsed = parse(self.request.body)
            self._body = None if isinstance(parsed, NotJson) else parsed.value
            self._is_parsed = True
        return self._body


Reader = Callable[[RequestValues], bytes | None]


def header_reader(name: str) -> Reader:
    key = name.lower().encode()

    def read(values: RequestValues) -> bytes | None:
        # A blank header counts as absent.
        return (values.request.headers.get(key) or b"").strip(b" \t") or None

    return read


def body_reader(path: str) -> Reader:
    """A reader of a string, whole number or boolean of a JSON body, as text. `path` has names with dots between them.

    The step `0` reads the only element of an array. If there are more elements, the value counts as absent, because the
    signature would not cover them.
    """
    steps = path.split(".")

    def read(values: RequestValues) -> bytes | None:
        return _text(value_at(values.body_value(), steps))

    return read


def value_at(value: Json, steps: Iterable[str]) -> Json:
    """The value at a path of the body; None if it is absent or null."""
    for step in steps:
        if type(value) is dict:
            value = value.get(step)
        elif type(value) is list and step == "0" and len(value) == 1:
            value = value[0]
        else:
            return None
    return value


def _text(value: Json) -> bytes | None:
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    if type(value) is bool:
        return b"true" if value else b"false"
    # No provider's ids are longer, and the interpreter may refuse to convert longer numbers to text.
    if type(value) is int and -(2**63) <= value < 2**64:
        return b"%d" % value
    return None


def first_of(readers: Iterable[Reader]) -> Reader:
    """A reader of the first value that is present."""
    choices = tuple(readers)

    def read(values: RequestValues) -> bytes | None:
        for choice in choices:
            if (value := choice(values)) is not None:
                return value
        return None

    return choices[0] if len(choices) == 1 else read


def source_reader(source: str) -> Reader:
    """A reader of `header:NAME`, `json:PATH`, or `field:NAME`, an entry of the signature's header."""
    kind, _, name = source.partition(":")
    if kind == "header" and name != name.lower():
        # With one spelling, schemes can be compared by their headers.
        raise ValueError(f"write header names in lower case: 'header:{name.lower()}'")
    if kind == "header" and name:
        return header_reader(name)
    if kind == "json" and name:
        return body_reader(name)
    if kind == "field" and name:
        # The verifier has read the entry from the signature's header. Only timestamps are read from entries.
        return lambda values: values.timestamp_in_signature_header
    raise ValueError(f"{source!r} is not a source; write header:NAME, json:PATH or field:NAME")


class Template:
    """Text with placeholders for values of a request."""

    __slots__ = ("_only_reader", "_parts", "placeholders")

    def __init__(self, text: str, readers: Mapping[str, Reader]) -> None:
        """`readers` adds placeholders to those that every template has.

        Raises `ValueError` for an unknown placeholder, and for a brace outside a placeholder.
        """
        # The pieces are literal text and names of placeholders in turn.
        pieces = _PLACEHOLDER.split(text)
        self.placeholders = frozenset(pieces[1::2])
        stray = [literal for literal in pieces[::2] if "{" in literal or "}" in literal]
        if stray:
            raise ValueError(f"a brace outside a placeholder at {stray[0][:40]!r}")
        self._parts: list[bytes | Reader] = [
            _placeholder_reader(piece, readers) if number % 2 else piece.encode()
            for number, piece in enumerate(pieces)
            if piece or number % 2
        ]
        self._only_reader = self._parts[0] if len(self._parts) == 1 and not isinstance(self._parts[0], bytes) else None

    def fill(self, values: RequestValues) -> bytes | None:
        """The text for this request; None if the value of a placeholder is absent."""
        if self._only_reader is not None:
            # Most providers sign only the body. Joining would copy it.
            return self._only_reader(values)
        pieces = []
        for part in self._parts:
            piece = part if isinstance(part, bytes) else part(values)
            if piece is None:
                return None
            pieces.append(piece)
        return b"".join(pieces)


_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


def _placeholder_reader(name: str, readers: Mapping[str, Reader]) -> Reader:
    reader = readers.get(name) or _BUILT_IN_READERS.get(name)
    if reader is not None:
        return reader
    kind, _, rest = name.partition(":")
    if kind == "json?" and rest:
        read = body_reader(rest)
        return lambda values: read(values) or b""
    if kind in {"header", "json"} and rest:
        return source_reader(name)
    allowed = ", ".join(
        f"{{{each}}}" for each in (*_BUILT_IN_READERS, *readers, "header:NAME", "json:PATH", "json?:PATH")
    )
    raise ValueError(f"unknown placeholder {{{name[:40]}}}; allowed are {allowed}")


def _path(values: RequestValues) -> bytes:
    _, _, rest = values.request.url.partition("://")
    _, slash, path = rest.partition("/")
    return (slash + path).encode("utf-8", "surrogatepass") or b"/"


_BUILT_IN_READERS: Final[Mapping[str, Reader]] = {
    "body": lambda values: values.request.body,
    "ts": lambda values: values.timestamp,
    "url": lambda values: values.request.url.encode("utf-8", "surrogatepass"),
    "path": _path,
    "method": lambda values: values.request.method.encode("utf-8", "surrogatepass"),
    "secret": lambda values: values.secret,
}


def signed_headers_reader(list_header: str, separator: str, headers_max: int) -> Reader:
    """A reader of `name:value` of every header that `list_header` lists, sorted by name, with separators between them.

    The value counts as absent if one of these headers is absent or conflicting, or if there are too many.
    """
    read_list = header_reader(list_header)

    def read(values: RequestValues) -> bytes | None:
        names = sorted(name.strip(b" \t").lower() for name in (read_list(values) or b"").split(b","))
        headers = values.request.headers
        conflicting = values.request.conflicting_headers
        if len(names) > headers_max or any(name not in headers or name in conflicting for name in names):
            return None
        return separator.encode().join(name + b":" + headers[name].strip(b" \t") for name in names)

    return read
