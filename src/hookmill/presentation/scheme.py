"""A signature scheme as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

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
    covers_body: bool
    covers_time: bool
    covers_id: bool
    proof: str
    proven_by: str
    experimental: bool
    setup: list[str]

    @classmethod
    def of(cls, scheme: Scheme) -> Self:
        return cls(
            name=scheme.name,
            aliases=list(scheme.aliases),
            title=scheme.title,
            docs=scheme.docs,
            algorithm=scheme.algorithm.value,
            covers_body=scheme.covers_body,
            covers_time=scheme.covers_time,
            covers_id=scheme.covers_id,
            proof=scheme.proof.kind.value,
            proven_by=scheme.proof.source,
            experimental=scheme.experimental,
            setup=list(scheme.setup),
        )
