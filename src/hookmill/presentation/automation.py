"""An automation as JSON."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from msgspec import UNSET, Meta, UnsetType

from hookmill.domain.automation import Automation
from hookmill.domain.moment import iso
from hookmill.presentation.view import ExactView, Timestamp, View


class TriggerFilterView(View, frozen=True):
    webhook_ids: list[str]
    event: Annotated[
        list[str] | UnsetType, Meta(description="The event types that match. Omitted: every delivery matches.")
    ] = UNSET
    payload: Annotated[
        dict[str, Any] | UnsetType, Meta(description="The payload filter. Omitted: every payload matches.")
    ] = UNSET


class TriggerView(View, frozen=True):
    """Which deliveries start an automation: by webhook, event type and payload."""

    provider: str
    event: str
    filter: TriggerFilterView


class AutomationInListView(ExactView, frozen=True):
    """An automation without its prompt, which may be long."""

    automation_id: str
    name: str
    enabled: bool
    version: int
    runner: str
    triggers: list[Any]
    """Each like `TriggerView`. A trigger that this version can't read is shown as it is stored."""
    created_at: Timestamp
    updated_at: Timestamp
    warnings: Annotated[list[str], Meta(description="What keeps it from starting runs although it is enabled.")]

    @classmethod
    def of(cls, automation: Automation, warnings: Sequence[str]) -> Self:
        return cls(
            automation_id=automation.id,
            name=automation.name,
            enabled=automation.enabled,
            version=automation.version,
            runner=automation.runner,
            triggers=[trigger.as_json() for trigger in automation.all_triggers],
            created_at=iso(automation.created_at),
            updated_at=iso(automation.updated_at),
            warnings=list(warnings),
        )


class AutomationView(AutomationInListView, frozen=True):
    prompt: str

    @classmethod
    def of(cls, automation: Automation, warnings: Sequence[str]) -> Self:
        return AutomationInListView.of(automation, warnings).extended(cls, prompt=automation.prompt)
