"""`hmac`: a scheme that a user fills in, for senders that the catalogue doesn't know."""

import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures.encoding import Encoding, TimeUnit
from hookmill.domain.signatures.scheme import (
    Algorithm,
    Proof,
    ProofKind,
    Scheme,
    SecretDecoding,
    SecretRule,
    Signature,
    Timestamp,
)

GENERIC: Final = "hmac"
TOLERANCE_SECONDS_MAX: Final = 86_400
CONTENT_CHARACTERS_MAX: Final = 512
PREFIX_CHARACTERS_MAX: Final = 64


class GenericHmac(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user fills in."""

    header: str
    """The header that holds the signature."""
    prefix: str = ""
    """What stands before it there, such as `sha256=`."""
    algorithm: str = "sha256"
    encoding: str = "hex"
    secret: str = "text"
    """How the secret becomes the key."""
    content: str = "{body}"
    """What is signed: text with {body}, {ts}, {url} and {header:NAME}."""
    timestamp_header: str | None = None
    timestamp_unit: str = "s"
    tolerance_seconds: int | None = None
    """How old or how far ahead a signed time may be; None for any age."""


_ALGORITHMS: Final = {
    "sha1": Algorithm.HMAC_SHA1,
    "sha256": Algorithm.HMAC_SHA256,
    "sha512": Algorithm.HMAC_SHA512,
}
_ENCODINGS: Final = {one.value: one for one in (Encoding.HEX, Encoding.BASE64, Encoding.BASE64URL)}
_SECRETS: Final = {one.value: one for one in (SecretDecoding.TEXT, SecretDecoding.BASE64, SecretDecoding.HEX)}
_UNITS: Final = {one.value: one for one in TimeUnit}
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")
_PREFIX: Final = re.compile(r"[\x20-\x7e]*\Z")
_PLACEHOLDER: Final = re.compile(r"\{(body|ts|url|header:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100})\}")
_NO_PROOF: Final = {"cookie", "host", "content-length", "connection", "transfer-encoding"}


def read_generic(fields: Mapping[str, object]) -> GenericHmac:
    """What a user filled in, by field name. Raises `Invalid` that names the field."""
    try:
        return msgspec.convert(dict(fields), GenericHmac)
    except (msgspec.ValidationError, UnicodeError) as fault:
        allowed = ", ".join(GenericHmac.__struct_fields__)
        raise Invalid(f"The scheme {GENERIC} can't be read: {_said(fault)}. Its fields are {allowed}.") from fault


def _said(fault: Exception) -> str:
    return "a text holds half of a surrogate pair" if isinstance(fault, UnicodeError) else str(fault)


def generic_scheme(given: GenericHmac) -> Scheme:
    """The scheme that a user described. Raises `Invalid` that names the field at fault."""
    header = _header("header", given.header)
    if len(given.prefix) > PREFIX_CHARACTERS_MAX or not _PREFIX.match(given.prefix):
        raise _fault("prefix", f"it has at most {PREFIX_CHARACTERS_MAX} printable ASCII characters")
    algorithm = _choice("algorithm", given.algorithm, _ALGORITHMS)
    encoding = _choice("encoding", given.encoding, _ENCODINGS)
    decode = _choice("secret", given.secret, _SECRETS)
    content = _content(given.content)
    return Scheme(
        name=GENERIC,
        title="the sender",
        docs="",
        algorithm=algorithm,
        signature=Signature(sources=(f"header:{header}",), encoding=encoding, prefix=given.prefix),
        content=content,
        timestamp=_timestamp(given, content),
        secret=SecretRule(decode=decode),
        proof=Proof(kind=ProofKind.NONE, source="described by its user"),
    )


def _content(given: str) -> str:
    if len(given) > CONTENT_CHARACTERS_MAX:
        raise _fault("content", f"it has at most {CONTENT_CHARACTERS_MAX} characters")
    if not given.isprintable() and any(one not in "\r\n\t" for one in given if not one.isprintable()):
        raise _fault("content", "of control characters, only line breaks and tabs are signed anywhere")
    literal = _PLACEHOLDER.sub("", given)
    if "{" in literal or "}" in literal:
        raise _fault("content", "the placeholders are {body}, {ts}, {url} and {header:NAME}, and no other braces")
    if "{body}" not in given:
        # Whoever holds one delivery could put any other body under its signature.
        raise _fault("content", "without {body} anybody could change the body; put it where the sender signs it")
    return _PLACEHOLDER.sub(lambda placeholder: placeholder.group().lower(), given)


def _timestamp(given: GenericHmac, content: str) -> Timestamp | None:
    unit = _choice("timestamp_unit", given.timestamp_unit, _UNITS)
    if given.timestamp_header is None:
        if "{ts}" in content:
            raise _fault("timestamp_header", "{ts} is signed, so name the header that holds the time")
        if given.tolerance_seconds is not None:
            raise _fault("tolerance_seconds", "an age needs a timestamp_header, and {ts} in the content")
        return None
    header = _header("timestamp_header", given.timestamp_header)
    if "{ts}" not in content:
        raise _fault("timestamp_header", "a time that isn't signed proves nothing; put {ts} into the content")
    tolerance = given.tolerance_seconds
    if tolerance is not None and not 1 <= tolerance <= TOLERANCE_SECONDS_MAX:
        raise _fault("tolerance_seconds", f"it is from 1 to {TOLERANCE_SECONDS_MAX}")
    return Timestamp(
        sources=(f"header:{header}",), unit=unit, tolerance_seconds=tolerance, enforced=tolerance is not None
    )


def _header(field: str, name: str) -> str:
    if not _HEADER.match(name):
        raise _fault(field, "it is a header name of letters, digits and dashes, such as X-Signature")
    if name.lower() in _NO_PROOF:
        raise _fault(field, f"{name} belongs to the connection and holds no signature")
    return name.lower()


_Choice = TypeVar("_Choice")


def _choice(field: str, given: str, choices: Mapping[str, _Choice]) -> _Choice:
    if given not in choices:
        raise _fault(field, f"{given[:40]!r} is none of {', '.join(choices)}")
    return choices[given]


def _fault(field: str, what: str) -> Invalid:
    return Invalid(f"{field} of the scheme {GENERIC} can't be used: {what}.")
