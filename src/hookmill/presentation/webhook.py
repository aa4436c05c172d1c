"""A webhook as JSON. Its secret is shown once, and only where it was generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
from msgspec import Meta

from hookmill.domain.moment import iso
from hookmill.domain.webhook import AuthMode, Webhook, WebhookState
from hookmill.presentation.view import Generated, Timestamp, View

if TYPE_CHECKING:
    # What stands behind it takes longer to import than most commands take to run.
    from hookmill.management import Management, WebhookWithSecret


class WebhookView(View, frozen=True):
    uid: str
    name: str
    auth_mode: AuthMode
    secret_name: Annotated[str, Meta(description="The team secret that holds its secret.")]
    signature_scheme: str | None
    signature_options: dict[str, Any] | None
    answers_handshakes: bool
    delivery_id_header: str | None
    event_header: Annotated[
        str | None,
        Meta(description="The request header that carries the event's type. Null where none does, or the scheme says."),
    ]
    enabled: bool
    state: WebhookState
    url: Annotated[
        str, Meta(description="Where senders post. Of a `url_token` webhook the token is left out: `{token}`.")
    ]
    has_secret: Annotated[bool, Meta(description="False until the provider's secret was supplied.")]
    secret_is_current: Annotated[
        bool, Meta(description="False when the team secret has a newer value: sync to use it.")
    ]
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
            enabled=webhook.state is WebhookState.ENABLED,
            state=webhook.state,
            url=management.webhooks.url(webhook),
            has_secret=webhook.has_secret,
            secret_is_current=webhook.secret_is_current,
            created_at=iso(webhook.created_at),
        )


class WebhookWithSecretView(WebhookView, frozen=True):
    """A webhook at the one moment when a secret that was generated for it is shown, and its complete URL."""

    secret: Generated

    @classmethod
    def once(cls, management: Management, created: WebhookWithSecret, *, generated: bool) -> Self:
        shown = WebhookView.of(management, created.webhook)
        # Whoever gave a secret knows it, and a proxy or a terminal remembers what it has passed on.
        if not generated or created.secret is None:
            return shown.extended(cls, secret=None)
        return msgspec.structs.replace(shown, url=created.url).extended(cls, secret=created.reveal())
