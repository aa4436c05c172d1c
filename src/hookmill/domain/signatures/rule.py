"""A webhook's scheme and keys, ready for verification."""

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
    """The scheme and the keys of one webhook's deliveries."""

    scheme: Scheme
    keys: tuple[Key, ...]
    """The active keys. Without an active key, every delivery is refused."""
    previous_keys: tuple[Key, ...] = ()
    """Keys that are no longer valid. If a refused signature matches one of them, the diagnosis says so."""
    answers_handshakes: bool = False
    key_error: str | None = None
    """Why there is no active key, for the owner."""


def scheme_named(name: str | None, options: Any) -> Scheme:
    """The scheme of a webhook, with the webhook's options if the scheme is `hmac`. Raises `Invalid`."""
    if options is not None and not isinstance(options, Mapping):
        raise Invalid("The signature options are a JSON object.")
    if name == GENERIC:
        return generic_scheme(read_generic(options or {}))
    if name is None:
        raise Invalid(f"Auth mode signature needs a signature scheme. Allowed are: {', '.join(allowed_names())}.")
    if options is not None:
        raise Invalid(f"Only the scheme {GENERIC} has signature options; {name} has none.")
    return catalogue.find(name, further_names=(GENERIC,))


def usable_event_header_for(scheme: Scheme, name: str | None, header: str) -> str:
    """`header`, if a webhook with this scheme may have it as its event header. Raises `Invalid`.

    `name` is the webhook's name for the scheme, which may be an alias.
    """
    if (event := scheme.event_for(name)) is not None:
        kind, _, key = event.source.partition(":")
        source = f"the header {key}" if kind == "header" else f"the field {key} of the body"
        raise Invalid(f"The event type of {name} is read from {source}. Leave the event header out.")
    # A header that the signature covers, but that contains no part of the proof, is allowed.
    if header.lower().encode() in scheme.compiled.proving_headers:
        raise Invalid(
            f"{header} contains {scheme.title}'s proof, but event types are stored and shown. Choose another."
        )
    return header


def allowed_names() -> tuple[str, ...]:
    """The names of signature schemes that a webhook may have."""
    return tuple(sorted((*catalogue.names(), GENERIC)))


def rule_for(
    scheme: Scheme, secret: str | None, previous: str | None, *, answers_handshakes: bool = False
) -> SignatureRule:
    """The rule for these secrets. An unusable secret sets `key_error`; it raises no exception."""
    keys, key_error = _prepare_keys(scheme, secret)
    return SignatureRule(scheme, keys, _prepare_keys(scheme, previous)[0], answers_handshakes, key_error)


def _prepare_keys(scheme: Scheme, secret: str | None) -> tuple[tuple[Key, ...], str | None]:
    if secret is None:
        return (), "The webhook has no secret yet: enter the provider's secret."
    try:
        return (prepare_key(scheme, secret),), None
    except Invalid as error:
        return (), str(error)
