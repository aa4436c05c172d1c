"""Why was a signed request refused? One sentence for the owner, who can't see the sender's side.

The sentence never holds a secret, a signature or anything of the body: only names of headers and of providers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.encoding import Encoding, base64_secret, hex_secret
from hookmill.domain.signatures.key import Key, prepare_key, without_prefix
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.scheme import Algorithm, Scheme, SecretDecoding, Timestamp, signature_size
from hookmill.domain.signatures.verify import Failure, Unverified, Verified, verify

OTHERS_NAMED_MAX: Final = 3


def diagnose(
    scheme: Scheme, keys: Sequence[Key], previous_keys: Sequence[Key], request: SignedRequest, now_us: int
) -> str:
    """What is probably wrong and what to do, in one sentence. Costs several verifications; never raises."""
    verdict = verify(scheme, keys, request, now_us)
    if isinstance(verdict, Verified):
        return "The signature is right."
    match verdict.reason:
        case Failure.STALE:
            return _stale(scheme, verdict)
        case Failure.AHEAD:
            return (
                f"The signature is from {verdict.seconds} s in the future: compare the sender's clock with this "
                "machine's."
            )
        case Failure.NO_SIGNATURE:
            return _absent(scheme, keys, request, now_us)
        case Failure.MISMATCH | Failure.WRONG_PREFIX | Failure.WRONG_ENCODING | Failure.NO_ENTRY | Failure.NO_TIMESTAMP:
            return (
                _found_by_trying(scheme, keys, previous_keys, request, now_us)
                or _another_provider(scheme, keys, request, now_us)
                or _as_it_stands(scheme, verdict)
            )
        case _:
            return _as_it_stands(scheme, verdict)


def _stale(scheme: Scheme, verdict: Unverified) -> str:
    if scheme.jwt is not None:
        return f"The signed token expired {verdict.seconds} s ago: compare the sender's clock with this machine's."
    allowed = scheme.timestamp.tolerance_seconds if scheme.timestamp else 0
    return (
        f"The signature is {verdict.seconds} s old and {allowed} s are allowed: a late repeat, or one of the two "
        "clocks is wrong."
    )


def _absent(scheme: Scheme, keys: Sequence[Key], request: SignedRequest, now_us: int) -> str:
    other = _another_provider(scheme, keys, request, now_us)
    if other is not None:
        return other
    where = _place(scheme)
    return f"The request has no signature in {where}: check that the sender has a secret, and that it posts from there."


def _place(scheme: Scheme) -> str:
    kind, _, name = scheme.signature.sources[0].partition(":")
    if kind == "json":
        return f"the body's field {name}"
    return f"the header {name}1" if kind == "numbered" else f"the header {name}"


def _found_by_trying(
    scheme: Scheme, keys: Sequence[Key], previous_keys: Sequence[Key], request: SignedRequest, now_us: int
) -> str | None:
    """What would have made the signature match."""

    def matches(tried: Sequence[Key], sent: SignedRequest) -> bool:
        verdict = verify(scheme, tried, sent, now_us)
        # A signature that is right and old is still right: that is what is looked for here.
        return isinstance(verdict, Verified) or verdict.reason in {Failure.STALE, Failure.AHEAD}

    if previous_keys and matches(previous_keys, request):
        return "The signature matches the previous secret: give the sender the new one."
    for sentence, body in _other_bodies(request.body):
        if matches(keys, replace(request, body=body)):
            return sentence
    for key in keys:
        for sentence, other in _other_keys(scheme, key):
            if matches([other], request):
                return sentence
    return None


def _other_bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    trimmed = body.strip()
    if trimmed != body:
        yield "The signature matches without the white space around the body: something on the way added it.", trimmed
    for ending in (b"\n", b"\r\n"):
        yield (
            "The signature matches with a line break after the body: something on the way took it off.",
            body + ending,
        )


def _other_keys(scheme: Scheme, key: Key) -> Iterator[tuple[str, Key]]:
    if key.public is not None:
        return
    text = key.text.reveal()
    bare = without_prefix(scheme.secret, text)
    literal = scheme.secret.decode is SecretDecoding.TEXT
    unwrapped = bare.removeprefix("whsec_")

    def with_bytes(shared: bytes) -> Key:
        return replace(key, shared=shared)

    written = text.encode("utf-8", "surrogatepass")
    if literal:
        decoders: dict[str, Callable[[str], bytes | None]] = {"base64": base64_secret, "hexadecimal": hex_secret}
        for form, decode in decoders.items():
            decoded = decode(unwrapped)
            if decoded:
                yield (
                    f"The signature matches when the secret is read as {form}, which {scheme.title} doesn't do: the "
                    "sender signs in another way, so choose another scheme.",
                    with_bytes(decoded),
                )
    else:
        sentence = (
            f"The signature matches when the secret is taken literally, but {scheme.title} decodes it "
            f"({scheme.secret.decode}): the sender should decode it too, or choose another scheme."
        )
        yield sentence, with_bytes(written)
        yield sentence, with_bytes(bare.encode("utf-8", "surrogatepass"))
    for ending in (b"\n", b"\r\n", b" "):
        yield (
            "The signature matches with white space after the secret: the sender's copy of it ends in a line break "
            "or a space, so enter it there again.",
            with_bytes(written + ending),
        )
    trimmed = text.strip()
    if trimmed != text:
        try:
            yield (
                "The signature matches without the white space around the secret: enter it here again.",
                prepare_key(scheme, trimmed),
            )
        except Invalid:
            return


def _another_provider(scheme: Scheme, keys: Sequence[Key], request: SignedRequest, now_us: int) -> str | None:
    """The scheme that fits the request better: one that verifies it, or else those whose headers it bears."""
    others = [
        other
        for other in catalogue.schemes()
        if other.name != scheme.name and not _is_weaker(other, scheme) and _bears_headers_of(other, request)
    ]
    for other in others:
        if _verifies(other, keys, request, now_us):
            return (
                f"The signature is right for the scheme {other.name} ({other.title}): make a webhook with that scheme, "
                "and give its URL to the sender."
            )
    if not others or _bears_headers_of(scheme, request):
        return None
    named = [f"{other.name} ({other.title})" for other in others[:OTHERS_NAMED_MAX]]
    more = " among others" if len(others) > OTHERS_NAMED_MAX else ""
    return f"The request has no {_place(scheme).removeprefix('the ')}; its headers look like {', '.join(named)}{more}."


def _is_weaker(other: Scheme, scheme: Scheme) -> bool:
    # Some providers send an older signature beside: nobody should go back to it.
    return other.algorithm is Algorithm.HMAC_SHA1 and scheme.algorithm is not Algorithm.HMAC_SHA1


def _bears_headers_of(scheme: Scheme, request: SignedRequest) -> bool:
    names = [where.partition(":")[2] for where in scheme.signature.sources if not where.startswith("json:")]
    for name in names:
        value = request.headers.get(name.encode()) or request.headers.get(f"{name}1".encode())
        # Authorization is everybody's: only its first word tells whose.
        if value and (name != "authorization" or _begins(scheme, value)):
            return True
    return False


def _begins(scheme: Scheme, value: bytes) -> bool:
    return bool(scheme.signature.prefix) and value.startswith(scheme.signature.prefix.encode())


def _verifies(other: Scheme, keys: Sequence[Key], request: SignedRequest, now_us: int) -> bool:
    if other.algorithm.uses_public_key:
        return False
    for key in keys:
        try:
            tried = prepare_key(other, key.text.reveal())
        except Invalid:
            continue
        if isinstance(verify(other, [tried], request, now_us), Verified):
            return True
    return False


_ADVICE: Final = {
    Failure.MISMATCH: "check that the sender and this webhook hold the same secret, and that nothing on the way "
    "changes the body",
    Failure.WRONG_PREFIX: "check that the sender uses this scheme",
    Failure.WRONG_ENCODING: "check that the sender uses this scheme",
    Failure.NO_ENTRY: "check that the sender uses this scheme and its version",
    Failure.NO_TIMESTAMP: "check that the sender uses this scheme, and that nothing on the way drops headers",
    Failure.BAD_TIMESTAMP: "check that the sender uses this scheme",
    Failure.INCOMPLETE: "check that nothing on the way drops headers or fields",
    Failure.REPEATED_HEADER: "check what stands between the sender and this service",
    Failure.BODY_CHANGED: "something on the way changes the body",
    Failure.WRONG_CLAIMS: "check that the sender uses this scheme",
    Failure.TOO_LONG: "no sender of this scheme does that",
    Failure.TOO_MANY: "no sender of this scheme does that",
    Failure.NO_KEY: "enter the sender's secret",
}


def _as_it_stands(scheme: Scheme, verdict: Unverified) -> str:
    reason, expected, place = str(verdict.reason), "", _place(scheme)
    if verdict.reason is Failure.WRONG_PREFIX:
        expected = f" (they begin with {scheme.signature.prefix.strip()})"
    elif verdict.reason is Failure.WRONG_ENCODING:
        expected = f" ({_written(scheme)})"
    elif verdict.reason is Failure.NO_ENTRY and scheme.signature.entries is not None:
        entries = scheme.signature.entries
        expected = f" ({entries.field}=…)" if entries.field else f" ({entries.tag},…)" if entries.tag else ""
    elif verdict.reason in {Failure.NO_TIMESTAMP, Failure.BAD_TIMESTAMP} and scheme.timestamp is not None:
        place = _place_of_time(scheme, scheme.timestamp)
    return f"{reason[0].upper()}{reason[1:]}{expected}, in {place}: {_ADVICE[verdict.reason]}."


def _written(scheme: Scheme) -> str:
    size = signature_size(scheme.algorithm)
    if size is None or scheme.signature.encoding is not Encoding.HEX:
        return scheme.signature.encoding
    return f"{2 * size} hexadecimal digits"


def _place_of_time(scheme: Scheme, timestamp: Timestamp) -> str:
    kind, _, name = timestamp.sources[0].partition(":")
    if kind == "field":
        return f"{name}=… beside the signature in {_place(scheme)}"
    return f"the body's field {name}" if kind == "json" else f"the header {name}"
