"""Diagnoses a refused signature in one sentence for the webhook's owner, who can't see the sender's configuration.

The sentence contains names of headers and providers, but never a secret, a signature or a part of the body.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.encoding import Encoding, decode_base64_secret, decode_hex_secret
from hookmill.domain.signatures.key import Key, prepare_key, without_prefix
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.scheme import Algorithm, Scheme, SecretDecoding, Timestamp, signature_size
from hookmill.domain.signatures.verify import Failure, Unverified, Verified, verify

OTHER_SCHEMES_NAMED_MAX: Final = 3


def diagnose(
    scheme: Scheme, keys: Sequence[Key], previous_keys: Sequence[Key], request: SignedRequest, now_us: int
) -> str:
    """The probable mistake and its fix, in one sentence. Costs several verifications; never raises."""
    result = verify(scheme, keys, request, now_us)
    if isinstance(result, Verified):
        return "The signature is valid."
    match result.reason:
        case Failure.STALE:
            return _staleness_in_words(scheme, result)
        case Failure.AHEAD:
            return (
                f"The signature is from {result.seconds} s in the future: compare the sender's clock with this "
                "machine's."
            )
        case Failure.NO_SIGNATURE:
            return _absence_in_words(scheme, keys, request, now_us)
        case Failure.MISMATCH | Failure.WRONG_PREFIX | Failure.WRONG_ENCODING | Failure.NO_ENTRY | Failure.NO_TIMESTAMP:
            return (
                _matching_variant_in_words(scheme, keys, previous_keys, request, now_us)
                or _other_schemes_in_words(scheme, keys, request, now_us)
                or _failure_in_words(scheme, result)
            )
        case _:
            return _failure_in_words(scheme, result)


def _staleness_in_words(scheme: Scheme, result: Unverified) -> str:
    if scheme.jwt is not None:
        return f"The signed token expired {result.seconds} s ago: compare the sender's clock with this machine's."
    allowed = scheme.timestamp.tolerance_seconds if scheme.timestamp else 0
    return (
        f"The signature is {result.seconds} s old and {allowed} s are allowed: this is a late retry, or one of the two "
        "clocks is wrong."
    )


def _absence_in_words(scheme: Scheme, keys: Sequence[Key], request: SignedRequest, now_us: int) -> str:
    other_schemes = _other_schemes_in_words(scheme, keys, request, now_us)
    if other_schemes is not None:
        return other_schemes
    location = _signature_location(scheme)
    return f"The request has no signature in {location}: check that the sender uses this scheme, and has a secret."


def _signature_location(scheme: Scheme) -> str:
    kind, _, name = scheme.signature.sources[0].partition(":")
    if kind == "json":
        return f"the body's field {name}"
    return f"the header {name}1" if kind == "numbered" else f"the header {name}"


def _matching_variant_in_words(
    scheme: Scheme, keys: Sequence[Key], previous_keys: Sequence[Key], request: SignedRequest, now_us: int
) -> str | None:
    """A sentence about the first changed body or key with which the signature matches; None if there is none."""

    def matches(keys: Sequence[Key], request: SignedRequest) -> bool:
        result = verify(scheme, keys, request, now_us)
        # A signature that is too old or too new matches too, because `verify` checks the age last.
        return isinstance(result, Verified) or result.reason in {Failure.STALE, Failure.AHEAD}

    if previous_keys and matches(previous_keys, request):
        return "The signature matches the previous secret: give the sender the new one."
    for sentence, body in _body_variants(request.body):
        if matches(keys, replace(request, body=body)):
            return sentence
    for key in keys:
        for sentence, other in _key_variants(scheme, key):
            if matches([other], request):
                return sentence
    return None


def _body_variants(body: bytes) -> Iterator[tuple[str, bytes]]:
    trimmed = body.strip()
    if trimmed != body:
        yield "The signature matches without the white space around the body: a proxy in between adds it.", trimmed
    for ending in (b"\n", b"\r\n"):
        yield (
            "The signature matches with a line break after the body: a proxy in between removes it.",
            body + ending,
        )


def _key_variants(scheme: Scheme, key: Key) -> Iterator[tuple[str, Key]]:
    if key.public_key is not None:
        return
    text = key.text.reveal()
    text_without_prefix = without_prefix(scheme.secret, text)
    is_literal = scheme.secret.decode is SecretDecoding.TEXT

    def with_bytes(secret_bytes: bytes) -> Key:
        return replace(key, secret_bytes=secret_bytes)

    literal = text.encode("utf-8", "surrogatepass")
    if is_literal:
        decoders: dict[str, Callable[[str], bytes | None]] = {
            "base64": decode_base64_secret,
            "hexadecimal": decode_hex_secret,
        }
        for form, decode in decoders.items():
            decoded = decode(text_without_prefix.removeprefix("whsec_"))
            if decoded:
                yield (
                    f"The signature matches if the secret is decoded as {form}, which {scheme.title} doesn't do: the "
                    "sender has another scheme, so choose that one.",
                    with_bytes(decoded),
                )
    else:
        sentence = (
            f"The signature matches if the secret is not decoded, but {scheme.title} decodes it "
            f"({scheme.secret.decode}): the sender should decode the secret too, or choose another scheme."
        )
        yield sentence, with_bytes(literal)
        yield sentence, with_bytes(text_without_prefix.encode("utf-8", "surrogatepass"))
    for ending in (b"\n", b"\r\n", b" "):
        yield (
            "The signature matches with white space after the secret: the sender's copy ends in a line break or a "
            "space, so enter the secret there again.",
            with_bytes(literal + ending),
        )
    trimmed = text.strip()
    if trimmed != text:
        try:
            yield (
                "The signature matches without the white space around the secret: enter the secret here again.",
                prepare_key(scheme, trimmed),
            )
        except Invalid:
            return


def _other_schemes_in_words(scheme: Scheme, keys: Sequence[Key], request: SignedRequest, now_us: int) -> str | None:
    """A sentence about another scheme that verifies the request, or else about schemes whose header the request has."""
    others = [
        other
        for other in catalogue.schemes()
        if other.name != scheme.name and not _is_weaker(other, scheme) and _has_signature_header(other, request)
    ]
    for other in others:
        if _verifies(other, keys, request, now_us):
            return (
                f"The signature is valid for the scheme {other.name} ({other.title}): create a webhook with that "
                "scheme, and enter its URL at the sender."
            )
    if not others or _has_signature_header(scheme, request):
        return None
    candidates = [f"{other.name} ({other.title})" for other in others[:OTHER_SCHEMES_NAMED_MAX]]
    more = " among others" if len(others) > OTHER_SCHEMES_NAMED_MAX else ""
    location = _signature_location(scheme).removeprefix("the ")
    return f"The request has no {location}; it has headers of {', '.join(candidates)}{more}."


def _is_weaker(other: Scheme, scheme: Scheme) -> bool:
    # Some providers also send an older SHA-1 signature, which must not be recommended.
    return other.algorithm is Algorithm.HMAC_SHA1 and scheme.algorithm is not Algorithm.HMAC_SHA1


def _has_signature_header(scheme: Scheme, request: SignedRequest) -> bool:
    names = [source.partition(":")[2] for source in scheme.signature.sources if not source.startswith("json:")]
    for name in names:
        value = request.headers.get(name.encode()) or request.headers.get(f"{name}1".encode())
        # Many schemes use Authorization. Only the prefix of its value identifies the scheme.
        if value and (name != "authorization" or _has_prefix(scheme, value)):
            return True
    return False


def _has_prefix(scheme: Scheme, value: bytes) -> bool:
    return bool(scheme.signature.prefix) and value.startswith(scheme.signature.prefix.encode())


def _verifies(other: Scheme, keys: Sequence[Key], request: SignedRequest, now_us: int) -> bool:
    if other.algorithm.uses_public_key:
        return False
    for key in keys:
        try:
            other_key = prepare_key(other, key.text.reveal())
        except Invalid:
            continue
        if isinstance(verify(other, [other_key], request, now_us), Verified):
            return True
    return False


_ADVICE: Final = {
    Failure.MISMATCH: "check that the sender and this webhook have the same secret, and that no proxy changes the body",
    Failure.WRONG_PREFIX: "check that the sender uses this scheme",
    Failure.WRONG_ENCODING: "check that the sender uses this scheme",
    Failure.NO_ENTRY: "check that the sender uses this scheme and its version",
    Failure.NO_TIMESTAMP: "check that the sender uses this scheme, and that no proxy removes headers",
    Failure.BAD_TIMESTAMP: "check that the sender uses this scheme",
    Failure.INCOMPLETE: "check that no proxy removes headers or fields",
    Failure.REPEATED_HEADER: "check whether a proxy adds headers",
    Failure.BODY_CHANGED: "check whether a proxy changes the body",
    Failure.WRONG_CLAIMS: "check that the sender uses this scheme",
    Failure.TOO_LONG: "check that the sender uses this scheme, whose signatures are shorter",
    Failure.TOO_MANY: "check that the sender uses this scheme, which sends fewer",
    Failure.NO_KEY: "enter the sender's secret",
}


def _failure_in_words(scheme: Scheme, result: Unverified) -> str:
    reason, expected, location = str(result.reason), "", _signature_location(scheme)
    if result.reason is Failure.WRONG_PREFIX:
        expected = f" ({scheme.signature.prefix.strip()})"
    elif result.reason is Failure.WRONG_ENCODING:
        expected = f" ({_encoding_in_words(scheme)})"
    elif result.reason is Failure.NO_ENTRY and scheme.signature.list_format is not None:
        list_format = scheme.signature.list_format
        expected = (
            f" ({list_format.field}=…)" if list_format.field else f" ({list_format.tag},…)" if list_format.tag else ""
        )
    elif result.reason in {Failure.NO_TIMESTAMP, Failure.BAD_TIMESTAMP} and scheme.timestamp is not None:
        location = _timestamp_location(scheme, scheme.timestamp)
    return f"{reason[0].upper()}{reason[1:]}{expected}, in {location}: {_ADVICE[result.reason]}."


def _encoding_in_words(scheme: Scheme) -> str:
    size = signature_size(scheme.algorithm)
    if size is None or scheme.signature.encoding is not Encoding.HEX:
        return scheme.signature.encoding
    return f"{2 * size} hexadecimal digits"


def _timestamp_location(scheme: Scheme, timestamp: Timestamp) -> str:
    kind, _, name = timestamp.sources[0].partition(":")
    if kind == "field":
        return f"the entry {name}=… of {_signature_location(scheme)}"
    return f"the body's field {name}" if kind == "json" else f"the header {name}"
