"""A webhook as JSON. Its secret is shown once, and only if the service generated it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

import msgspec
from msgspec import Meta

from hookmill.domain.moment import iso
from hookmill.domain.webhook import Webhook, WebhookSpec, WebhookState
from hookmill.presentation.view import GeneratedSecret, Timestamp, View

if TYPE_CHECKING:
    # Only for types: importing `hookmill.management` takes longer than most commands take in all.
    from hookmill.management import Management, WebhookWithSecret


class WebhookView(View, WebhookSpec, frozen=True, kw_only=True):
    """What a person has set, and what the service adds."""

    uid: str
    secret_name: Annotated[str, Meta(description="The name of the team secret that the webhook uses.")]
    state: WebhookState
    url: Annotated[
        str,
        Meta(description="The URL that senders post to. In a `url_token` webhook's URL, `{token}` replaces the token."),
    ]
    has_secret: Annotated[bool, Meta(description="False until the provider's secret is supplied.")]
    secret_is_current: Annotated[bool, Meta(description="False if the team secret has a newer value: sync to use it.")]
    warnings: Annotated[tuple[str, ...], Meta(description="Why it may not work as it is meant.")]
    created_at: Timestamp

    @classmethod
    def of(cls, management: Management, webhook: Webhook) -> Self:
        return cls(
            **msgspec.structs.asdict(webhook.spec),
            uid=webhook.uid,
            state=webhook.state,
            url=management.webhooks.url(webhook),
            has_secret=webhook.has_secret,
            secret_is_current=webhook.secret_is_current,
            warnings=management.webhooks.warnings(webhook),
            created_at=iso(webhook.created_at),
        )


class WebhookWithSecretView(WebhookView, frozen=True, kw_only=True):
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
