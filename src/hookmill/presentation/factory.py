"""A factory as JSON."""

from typing import Annotated, Self

from msgspec import Meta

from hookmill.domain.factory import Factory
from hookmill.domain.run_policy import MaxRunning
from hookmill.presentation.view import View


class FactoryView(View, frozen=True):
    name: str
    defined_by_files: Annotated[
        bool,
        Meta(
            description="Whether definition files define its webhooks and automations. "
            "Other channels can then only enable, disable, rotate and sync."
        ),
    ]
    max_running: MaxRunning

    @classmethod
    def of(cls, factory: Factory) -> Self:
        return cls(name=factory.name, defined_by_files=factory.defined_by_files, max_running=factory.max_running)
