"""Checks that a webhook's mode, signature scheme, secret and headers are compatible."""

import os
from typing import TYPE_CHECKING, Any

from hookmill.domain.errors import Invalid
from hookmill.domain.secret import GENERATED_BYTES, SecretValue, generate_value, is_url_safe
from hookmill.domain.webhook import AuthMode, Webhook, usable_delivery_id_header, usable_event_header

if TYPE_CHECKING:
    from hookmill.domain.signatures.scheme import Scheme


def compatible_scheme(
    mode: AuthMode, name: str | None, options: dict[str, Any] | None, answers_handshakes: bool
) -> "Scheme | None":
    """The signature scheme; None if the mode is not `signature`. Raises `Invalid` if the arguments are incompatible."""
    if mode is not AuthMode.SIGNATURE:
        for option, is_set in (
            ("A signature scheme", name is not None),
            ("Signature options", options is not None),
            ("Answering handshakes", answers_handshakes),
        ):
            if is_set:
                raise Invalid(f"{option} can only be used with auth mode signature. Omit it, or choose that mode.")
        return None
    scheme = scheme_named(name, options)
    if answers_handshakes and scheme.handshake is None:
        raise Invalid(f"{scheme.title} sends no signed challenges. Leave handshakes off.")
    return scheme


def scheme_of(webhook: Webhook) -> "Scheme | None":
    """The webhook's signature scheme; None if its mode is not `signature`."""
    if webhook.auth_mode is not AuthMode.SIGNATURE:
        return None
    return scheme_named(webhook.signature_scheme, webhook.signature_options)


def scheme_named(name: str | None, options: dict[str, Any] | None) -> "Scheme":
    """The scheme with this name or alias. Raises `Invalid` if there is none, or if it does not have these options."""
    # Imported here, because most commands don't need the catalogue, and start faster without it.
    from hookmill.domain.signatures import rule

    return rule.scheme_named(name, options)


def generate_secret(scheme: "Scheme | None", scheme_name: str | None) -> SecretValue | None:
    """A new secret; None if only the provider can make it. `scheme_name` is the scheme's name or one of its aliases."""
    entropy = os.urandom(GENERATED_BYTES)
    if scheme is None:
        return generate_value(entropy)
    from hookmill.domain.signatures.key import make_secret, service_makes_secrets

    # An alias is another provider that signs in the same way, and makes its own secrets.
    is_alias = scheme_name != scheme.name
    return make_secret(scheme, entropy) if service_makes_secrets(scheme) and not is_alias else None


def refuse_unfit_secret(mode: AuthMode, scheme: "Scheme | None", value: SecretValue, prefix: str = "") -> None:
    """Raises `Invalid` for a secret that could never authenticate a delivery. `prefix` begins the error text."""
    if mode is AuthMode.URL_TOKEN and not is_url_safe(value):
        raise Invalid(f"{prefix}A url_token secret is part of the URL. Use only letters, digits and - . _ ~.")
    if scheme is not None:
        from hookmill.domain.signatures.key import prepare_key

        try:
            prepare_key(scheme, value.reveal())
        except Invalid as error:
            raise Invalid(f"{prefix}{error}") from None


def compatible_delivery_id_header(scheme: "Scheme | None", header: str | None) -> str | None:
    """A webhook's delivery id header. Raises `Invalid` for a header that contains a credential or a signature."""
    if header is None:
        return None
    header = usable_delivery_id_header(header)
    if scheme is not None and header.lower().encode() in scheme.compiled.signature_or_signed_headers:
        raise Invalid(
            f"{header} is part of {scheme.title}'s signature. Delivery ids are stored and shown. Choose another header."
        )
    return header


def compatible_event_header(scheme: "Scheme | None", scheme_name: str | None, header: str | None) -> str | None:
    """A webhook's event header. Raises `Invalid` for a header that contains a credential or a signature.

    Also raises `Invalid` if the scheme already defines where the event type is.
    """
    if header is None:
        return None
    header = usable_event_header(header)
    if scheme is None:
        return header
    from hookmill.domain.signatures import rule

    return rule.usable_event_header_for(scheme, scheme_name, header)


def defines_event_type(webhook: Webhook) -> bool:
    """Whether the webhook's configuration defines where its deliveries have their event type."""
    if webhook.event_header is not None:
        return True
    scheme = scheme_of(webhook)
    return scheme is not None and scheme.event_for(webhook.signature_scheme) is not None
