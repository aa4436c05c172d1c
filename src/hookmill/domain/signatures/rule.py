"""A webhook's scheme and keys, ready for verification."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.generic import GENERIC_SCHEME, generic_scheme, read_generic_options
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
    """Whether the ingress replies to the provider's signed challenges."""
    key_error: str | None = None
    """Why there is no active key, for the owner."""


def scheme_named(name: str | None, options: Any) -> Scheme:
    """The scheme of a webhook, with the webhook's options if the scheme is `hmac`. Raises `Invalid`."""
    if options is not None and not isinstance(options, Mapping):
        raise Invalid("The signature options must be a JSON object.")
    if name == GENERIC_SCHEME:
        return generic_scheme(read_generic_options(options or {}))
    if name is None:
        raise Invalid(f"Auth mode signature needs a signature scheme. Allowed are: {', '.join(allowed_names())}.")
    if options is not None:
        raise Invalid(f"Only the scheme {GENERIC_SCHEME} has signature options; {name} has none.")
    return catalogue.find(name, further_names=(GENERIC_SCHEME,))


def usable_event_header_for(scheme: Scheme, name: str | None, header: str) -> str:
    """`header`. Raises `Invalid` if a webhook with this scheme can't have it as its event header.

    `name` is the webhook's name for the scheme, which may be an alias.
    """
    if (event := scheme.event_for(name)) is not None:
        kind, _, key = event.source.partition(":")
        source = f"the header {key}" if kind == "header" else f"the field {key} of the body"
        raise Invalid(f"The event type of {name} is read from {source}. Leave the event header out.")
    # A header that the signature covers, but that contains no part of the proof, is allowed.
    if header.lower().encode() in scheme.compiled.proving_headers:
        raise Invalid(
            f"{header} is part of {scheme.title}'s signature. Event types are stored and shown. Choose another header."
        )
    return header


def allowed_names() -> tuple[str, ...]:
    """The names of signature schemes that a webhook may have."""
    return tuple(sorted((*catalogue.names(), GENERIC_SCHEME)))


def rule_for(
    scheme: Scheme, secret: str | None, previous_secret: str | None, *, answers_handshakes: bool = False
) -> SignatureRule:
    """The rule for these secrets. If `secret` is unusable, the rule's `key_error` says why, and nothing is raised."""
    keys, key_error = _prepare_keys(scheme, secret)
    return SignatureRule(scheme, keys, _prepare_keys(scheme, previous_secret)[0], answers_handshakes, key_error)


def _prepare_keys(scheme: Scheme, secret: str | None) -> tuple[tuple[Key, ...], str | None]:
    """The key of the secret, and None; without a usable secret, no key, and the reason."""
    if secret is None:
        return (), "The webhook has no secret yet: enter the provider's secret."
    try:
        return (prepare_key(scheme, secret),), None
    except Invalid as error:
        return (), str(error)
