"""A signature scheme as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from hookmill.presentation.view import View

if TYPE_CHECKING:
    from hookmill.domain.signatures.scheme import Scheme


class SchemeView(View, frozen=True):
    """A provider whose signatures can be verified."""

    name: str
    aliases: list[str]
    title: str
    docs: str
    algorithm: str
    covers_body: Annotated[bool, Meta(description="Whether the signature covers the body.")]
    covers_time: Annotated[bool, Meta(description="Whether the signature covers the time of the request.")]
    covers_id: Annotated[bool, Meta(description="Whether the signature covers the provider's delivery id.")]
    event: Annotated[
        str | None,
        Meta(description="Where the event type is for the requested name: `header:NAME`, or `json:PATH` in the body."),
    ]
    alias_events: Annotated[
        dict[str, str | None],
        Meta(
            description="The place of the event type, by alias, where it differs from the scheme's. "
            "Null: deliveries of the alias have no event type."
        ),
    ]
    covers_event: Annotated[bool, Meta(description="Whether the signature covers the event type.")]
    proof: Annotated[
        str, Meta(description="The kind of evidence that confirms this entry: sdk, library, vector or none.")
    ]
    proven_by: Annotated[str, Meta(description="The source of this evidence.")]
    experimental: bool
    setup: list[str]

    @classmethod
    def of(cls, scheme: Scheme, name: str | None = None) -> Self:
        """`name` is the requested name or alias; None for `scheme.name`. It decides only `event` and `covers_event`."""
        event = scheme.event_for(name)
        return cls(
            name=scheme.name,
            aliases=list(scheme.aliases),
            title=scheme.title,
            docs=scheme.docs,
            algorithm=scheme.algorithm.value,
            covers_body=scheme.covers_body,
            covers_time=scheme.covers_time,
            covers_id=scheme.covers_id,
            event=event.source if event is not None else None,
            alias_events={alias: rule.source for alias, rule in scheme.alias_events.items()}
            | dict.fromkeys(scheme.aliases_without_event),
            covers_event=scheme.covers_event(name),
            proof=scheme.proof.kind.value,
            proven_by=scheme.proof.source,
            experimental=scheme.experimental,
            setup=list(scheme.setup),
        )
