"""Does it fit? A webhook's mode, scheme, secret and headers, held against each other."""

import os
from typing import TYPE_CHECKING, Any

from hookmill.domain.errors import Invalid
from hookmill.domain.secret import GENERATED_BYTES, SecretValue, url_safe
from hookmill.domain.secret import generated as generated_token
from hookmill.domain.webhook import AuthMode, Webhook, usable_delivery_id_header
from hookmill.domain.webhook import usable_event_header as usable_as_event_header

if TYPE_CHECKING:
    from hookmill.domain.signatures.scheme import Scheme


def usable_scheme(
    mode: AuthMode, name: str | None, options: dict[str, Any] | None, answers_handshakes: bool
) -> "Scheme | None":
    """What a new webhook's deliveries are signed with. Raises `Invalid` where mode, scheme and options don't agree."""
    if mode is not AuthMode.SIGNATURE:
        for what, is_set in (
            ("A signature scheme goes", name is not None),
            ("Signature options go", options is not None),
            ("Answering handshakes goes", answers_handshakes),
        ):
            if is_set:
                raise Invalid(f"{what} with auth mode signature alone. Leave this out, or choose that mode.")
        return None
    scheme = scheme_named(name, options)
    if answers_handshakes and scheme.handshake is None:
        raise Invalid(f"{scheme.title} sends no signed challenge that could be answered. Leave handshakes off.")
    return scheme


def scheme_of(webhook: Webhook) -> "Scheme | None":
    if webhook.auth_mode is not AuthMode.SIGNATURE:
        return None
    return scheme_named(webhook.signature_scheme, webhook.signature_options)


def scheme_named(name: str | None, options: dict[str, Any] | None) -> "Scheme":
    # Most commands have nothing to do with providers, and start faster without them.
    from hookmill.domain.signatures.rule import scheme_named

    return scheme_named(name, options)


def generated_for(scheme: "Scheme | None", name: str | None) -> SecretValue | None:
    """A new secret; None where only the provider can make one. `name` is what the webhook calls its scheme."""
    entropy = os.urandom(GENERATED_BYTES)
    if scheme is None:
        return generated_token(entropy)
    from hookmill.domain.signatures.key import generated_secret, generates_secret

    # Another provider that signs in the same way has a secret of its own making.
    makes_its_own = name != scheme.name
    return generated_secret(scheme, entropy) if generates_secret(scheme) and not makes_its_own else None


def refuse_unfit_secret(mode: AuthMode, scheme: "Scheme | None", value: SecretValue, whose: str = "") -> None:
    """Raises `Invalid` for a secret that could never authenticate a delivery."""
    if mode is AuthMode.URL_TOKEN and not url_safe(value):
        raise Invalid(f"{whose}A url_token secret stands in the URL: use letters, digits and - . _ ~ only.")
    if scheme is not None:
        from hookmill.domain.signatures.key import prepare_key

        prepare_key(scheme, value.reveal())


def refuse_signing_header(scheme: "Scheme | None", header: str) -> None:
    if scheme is None:
        return
    from hookmill.domain.signatures.scheme import signing_headers

    if header.lower().encode() in signing_headers(scheme):
        raise Invalid(f"{header} holds {scheme.title}'s proof, and delivery ids are stored and shown. Choose another.")


def usable_header(scheme: "Scheme | None", header: str | None) -> str | None:
    """A webhook's delivery id header. Raises `Invalid` for one that carries a credential or a proof."""
    if header is None:
        return None
    header = usable_delivery_id_header(header)
    refuse_signing_header(scheme, header)
    return header


def usable_event_header(scheme: "Scheme | None", scheme_name: str | None, header: str | None) -> str | None:
    """A webhook's event header. Raises `Invalid` for one that carries a credential or a proof, and where the scheme
    says where the event's type stands."""
    if header is None:
        return None
    header = usable_as_event_header(header)
    if scheme is None:
        return header
    from hookmill.domain.signatures.rule import usable_event_header

    return usable_event_header(scheme, scheme_name, header)


def reports_events(webhook: Webhook) -> bool:
    """Whether it is known where deliveries to the webhook have their event type."""
    if webhook.event_header is not None or webhook.auth_mode is not AuthMode.SIGNATURE:
        return webhook.event_header is not None
    scheme = scheme_named(webhook.signature_scheme, webhook.signature_options)
    return scheme.event_for(webhook.signature_scheme) is not None
