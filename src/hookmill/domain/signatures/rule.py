"""A webhook's scheme and keys, ready to judge by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.generic import GENERIC, generic_scheme, read_generic
from hookmill.domain.signatures.key import Key, prepare_key
from hookmill.domain.signatures.scheme import Scheme


@dataclass(frozen=True, slots=True)
class SignatureRule:
    """How one webhook's deliveries are signed."""

    scheme: Scheme
    keys: tuple[Key, ...]
    """The active ones. Without any, nothing verifies."""
    previous_keys: tuple[Key, ...] = ()
    """Those that no longer count: a refused signature that matches one of them can be explained."""
    answers_handshakes: bool = False
    trouble: str | None = None
    """Why there is no active key, for the owner."""


def scheme_named(name: str | None, options: Any) -> Scheme:
    """The scheme that a webhook names, with what its user filled in for `hmac`. Raises `Invalid`."""
    if options is not None and not isinstance(options, Mapping):
        raise Invalid("What a sender's signature is like is described by a JSON object.")
    if name == GENERIC:
        return generic_scheme(read_generic(options or {}))
    if name is None:
        raise Invalid(f"Auth mode signature needs a signature scheme. Allowed are: {', '.join(allowed_names())}.")
    if options is not None:
        raise Invalid(f"Signature options are for the scheme {GENERIC} alone; {name} is fully known.")
    return catalogue.find(name, also=(GENERIC,))


def usable_event_header(scheme: Scheme, name: str | None, header: str) -> str:
    """`header`, if a webhook of this scheme may name it as the one with the event's type. `name` is what the webhook
    calls the scheme. Raises `Invalid`."""
    if (event := scheme.event_for(name)) is not None:
        kind, _, place = event.source.partition(":")
        where = f"the header {place}" if kind == "header" else f"the field {place} of the body"
        raise Invalid(f"The event type of {name} is in {where}, and is read there. Leave the event header out.")
    # Another header that the sender signs is the best place for it.
    if header.lower().encode() in scheme.compiled.proving_headers:
        raise Invalid(
            f"{header} contains {scheme.title}'s proof, but event types are stored and shown. Choose another."
        )
    return header


def allowed_names() -> tuple[str, ...]:
    """The signature schemes that a webhook may name."""
    return tuple(sorted((*catalogue.names(), GENERIC)))


def rule_for(
    scheme: Scheme, secret: str | None, previous: str | None, *, answers_handshakes: bool = False
) -> SignatureRule:
    """The rule for these secrets. One that makes no key is the owner's trouble, and nobody's exception."""
    keys, trouble = _keys(scheme, secret)
    return SignatureRule(scheme, keys, _keys(scheme, previous)[0], answers_handshakes, trouble)


def _keys(scheme: Scheme, secret: str | None) -> tuple[tuple[Key, ...], str | None]:
    if secret is None:
        return (), "The webhook has no secret yet: supply the provider's."
    try:
        return (prepare_key(scheme, secret),), None
    except Invalid as error:
        return (), str(error)
