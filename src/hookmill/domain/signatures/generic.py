"""The scheme `hmac`: a user describes the signature of a sender that is not in the catalogue."""

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

GENERIC_SCHEME: Final = "hmac"
TOLERANCE_SECONDS_MAX: Final = 86_400
CONTENT_CHARACTERS_MAX: Final = 512
PREFIX_CHARACTERS_MAX: Final = 64


class GenericHmac(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the scheme `hmac`, as a user enters them."""

    header: str
    """The header that contains the signature."""
    prefix: str = ""
    """The text before the signature in the header, such as `sha256=`."""
    algorithm: str = "sha256"
    encoding: str = "hex"
    secret: str = "text"
    """How the secret is decoded: `text`, `base64` or `hex`."""
    content: str = "{body}"
    """The signed content: text with {body}, {ts}, {url} and {header:NAME}."""
    timestamp_header: str | None = None
    timestamp_unit: str = "s"
    tolerance_seconds: int | None = None
    """The maximum distance of the signed time from now, past or future; None for no limit."""


_ALGORITHMS: Final = {
    "sha1": Algorithm.HMAC_SHA1,
    "sha256": Algorithm.HMAC_SHA256,
    "sha512": Algorithm.HMAC_SHA512,
}
_ENCODINGS: Final = {encoding.value: encoding for encoding in (Encoding.HEX, Encoding.BASE64, Encoding.BASE64URL)}
_SECRET_DECODINGS: Final = {
    decoding.value: decoding for decoding in (SecretDecoding.TEXT, SecretDecoding.BASE64, SecretDecoding.HEX)
}
_UNITS: Final = {unit.value: unit for unit in TimeUnit}
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")
_PREFIX: Final = re.compile(r"[\x20-\x7e]*\Z")
_PLACEHOLDER: Final = re.compile(r"\{(body|ts|url|header:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100})\}")
_UNUSABLE_HEADERS: Final = {"cookie", "host", "content-length", "connection", "transfer-encoding"}


def read_generic_options(fields: Mapping[str, object]) -> GenericHmac:
    """The options in a mapping from names to values. Raises `Invalid` with a pointer to the wrong option."""
    try:
        return msgspec.convert(dict(fields), GenericHmac)
    except (msgspec.ValidationError, UnicodeError) as fault:
        reason = "a text contains half of a surrogate pair" if isinstance(fault, UnicodeError) else str(fault)
        option = re.search(r"`\$\.(\w+)`", reason)
        allowed = ", ".join(GenericHmac.__struct_fields__)
        raise Invalid(
            f"The options of the scheme {GENERIC_SCHEME} can't be read: {reason}. They are {allowed}.",
            pointer=f"/{option[1]}" if option else "",
        ) from fault


def generic_scheme(options: GenericHmac) -> Scheme:
    """The scheme that a user described. Raises `Invalid` with a pointer to the wrong option."""
    header = _header("header", options.header)
    if len(options.prefix) > PREFIX_CHARACTERS_MAX or not _PREFIX.match(options.prefix):
        raise _invalid_error("prefix", f"it must have at most {PREFIX_CHARACTERS_MAX} characters, all printable ASCII")
    algorithm = _choice("algorithm", options.algorithm, _ALGORITHMS)
    encoding = _choice("encoding", options.encoding, _ENCODINGS)
    decoding = _choice("secret", options.secret, _SECRET_DECODINGS)
    content = _content(options.content)
    return Scheme(
        name=GENERIC_SCHEME,
        title="the sender",
        docs="",
        algorithm=algorithm,
        signature=Signature(sources=(f"header:{header}",), encoding=encoding, prefix=options.prefix),
        content=content,
        timestamp=_timestamp(options, content),
        secret=SecretRule(decode=decoding),
        proof=Proof(kind=ProofKind.NONE, source="described by its user"),
    )


def _content(content: str) -> str:
    if len(content) > CONTENT_CHARACTERS_MAX:
        raise _invalid_error("content", f"it must have at most {CONTENT_CHARACTERS_MAX} characters")
    if any(character not in "\r\n\t" for character in content if not character.isprintable()):
        raise _invalid_error("content", "the only control characters that senders sign are line breaks and tabs")
    content_without_placeholders = _PLACEHOLDER.sub("", content)
    if "{" in content_without_placeholders or "}" in content_without_placeholders:
        raise _invalid_error("content", "braces are only for the placeholders {body}, {ts}, {url} and {header:NAME}")
    if "{body}" not in content:
        # An attacker who sees one delivery could send any other body with its signature.
        raise _invalid_error(
            "content", "without {body} anybody could change the body; put it where the sender signs it"
        )
    # Header names are compared in lower case.
    return _PLACEHOLDER.sub(lambda placeholder: placeholder.group().lower(), content)


def _timestamp(options: GenericHmac, content: str) -> Timestamp | None:
    unit = _choice("timestamp_unit", options.timestamp_unit, _UNITS)
    if options.timestamp_header is None:
        if "{ts}" in content:
            raise _invalid_error("timestamp_header", "{ts} is signed, so enter the name of the header with the time")
        if options.tolerance_seconds is not None:
            raise _invalid_error("tolerance_seconds", "a tolerance needs a timestamp_header, and {ts} in the content")
        return None
    header = _header("timestamp_header", options.timestamp_header)
    if "{ts}" not in content:
        raise _invalid_error("timestamp_header", "a time that isn't signed proves nothing; put {ts} into the content")
    tolerance = options.tolerance_seconds
    if tolerance is not None and not 1 <= tolerance <= TOLERANCE_SECONDS_MAX:
        raise _invalid_error("tolerance_seconds", f"it must be from 1 to {TOLERANCE_SECONDS_MAX}")
    return Timestamp(
        sources=(f"header:{header}",), unit=unit, tolerance_seconds=tolerance, enforced=tolerance is not None
    )


def _header(field: str, name: str) -> str:
    if not _HEADER.match(name):
        raise _invalid_error(field, "it must be a header name of letters, digits and dashes, such as X-Signature")
    if name.lower() in _UNUSABLE_HEADERS:
        raise _invalid_error(
            field, f"{name} belongs to the connection, so no sender puts a signature or its time there"
        )
    return name.lower()


_Choice = TypeVar("_Choice")


def _choice(field: str, value: str, choices: Mapping[str, _Choice]) -> _Choice:
    if value not in choices:
        raise _invalid_error(field, f"{value[:40]!r} is none of {', '.join(choices)}")
    return choices[value]


def _invalid_error(field: str, reason: str) -> Invalid:
    return Invalid(f"{field} of the scheme {GENERIC_SCHEME} can't be used: {reason}.", pointer=f"/{field}")
