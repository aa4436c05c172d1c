"""A webhook as JSON. Its secret is shown once, and only if the service generated it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
from msgspec import Meta

from hookmill.domain.moment import iso
from hookmill.domain.webhook import AuthMode, Webhook, WebhookState
from hookmill.presentation.view import GeneratedSecret, Timestamp, View

if TYPE_CHECKING:
    # Only for types: importing `hookmill.management` takes longer than most commands take in all.
    from hookmill.management import Management, WebhookWithSecret


class WebhookView(View, frozen=True):
    uid: str
    name: str
    auth_mode: AuthMode
    secret_name: Annotated[str, Meta(description="The name of the team secret that the webhook uses.")]
    signature_scheme: str | None
    signature_options: dict[str, Any] | None
    answers_handshakes: bool
    delivery_id_header: str | None
    event_header: Annotated[
        str | None,
        Meta(description="The request header with the event type. Null if there is none, or if the scheme defines it."),
    ]
    allowed_networks: Annotated[
        tuple[str, ...],
        Meta(description="The networks from which deliveries are accepted. Empty: every network."),
    ]
    expect_every: Annotated[
        str | None,
        Meta(description="An alarm is raised if no delivery is accepted for this time, such as `1h`. Null: never."),
    ]
    enabled: bool
    state: WebhookState
    url: Annotated[
        str,
        Meta(description="The URL that senders post to. In a `url_token` webhook's URL, `{token}` replaces the token."),
    ]
    has_secret: Annotated[bool, Meta(description="False until the provider's secret is supplied.")]
    secret_is_current: Annotated[bool, Meta(description="False if the team secret has a newer value: sync to use it.")]
    created_at: Timestamp

    @classmethod
    def of(cls, management: Management, webhook: Webhook) -> Self:
        return cls(
            uid=webhook.uid,
            name=webhook.name,
            auth_mode=webhook.auth_mode,
            secret_name=webhook.secret_name,
            signature_scheme=webhook.signature_scheme,
            signature_options=webhook.signature_options,
            answers_handshakes=webhook.answers_handshakes,
            delivery_id_header=webhook.delivery_id_header,
            event_header=webhook.event_header,
            allowed_networks=webhook.allowed_networks,
            expect_every=webhook.expect_every,
            enabled=webhook.state is WebhookState.ENABLED,
            state=webhook.state,
            url=management.webhooks.url(webhook),
            has_secret=webhook.has_secret,
            secret_is_current=webhook.secret_is_current,
            created_at=iso(webhook.created_at),
        )


class WebhookWithSecretView(WebhookView, frozen=True):
    """A webhook, with its secret and its complete URL if the service has just generated the secret."""

    secret: GeneratedSecret

    @classmethod
    def showing_secret(
        cls, management: Management, webhook_with_secret: WebhookWithSecret, *, is_generated: bool
    ) -> Self:
        """`is_generated`: whether the service generated the secret. A supplied secret is not in the view."""
        view = WebhookView.of(management, webhook_with_secret.webhook)
        # Proxies may log responses, and terminals may keep their output.
        if not is_generated or webhook_with_secret.secret is None:
            return view.extended(cls, secret=None)
        view = msgspec.structs.replace(view, url=webhook_with_secret.url)
        return view.extended(cls, secret=webhook_with_secret.reveal())
