"""/factories/{factory}/definitions: the factory's webhooks and automations as files, planned, applied and exported."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Response
from msgspec import Meta

from hookmill import definitions
from hookmill.domain.permission import Channel, MayManage
from hookmill.domain.webhook import Webhook
from hookmill.management import Management
from hookmill.presentation.view import ExactNumbersView, View
from hookmill.web.api.access import ManagementDependency, ManagerAccess
from hookmill.web.api.bodies import DefinitionApply, DefinitionFiles
from hookmill.web.api.expensive import expensive
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(prefix="/factories/{factory}/definitions", route_class=Route, tags=["Definition files"])


class DefinitionExportView(View, frozen=True):
    files: Annotated[dict[str, str], Meta(description="The text of each file by its path.")]
    defined_by_files: Annotated[bool, Meta(description="Whether only files can change the factory.")]


class DefinitionWarningView(View, frozen=True):
    file: str
    line: Annotated[int | None, Meta(description="From 1. Null if it is about the whole tree.")]
    column: int | None
    message: str


class DefinitionChangeView(View, frozen=True):
    key: str
    before: Any
    after: Any
    concerns_senders: Annotated[bool, Meta(description="Whether deliveries are refused until the sender adapts.")]


class DefinitionStepView(View, frozen=True):
    """A webhook or automation that the plan creates, changes or removes."""

    act: str
    kind: str
    name: str
    id: Annotated[str | None, Meta(description="Null if it does not exist yet.")]
    file: Annotated[str | None, Meta(description="Null if it is removed.")]
    changes: tuple[DefinitionChangeView, ...]


class WebhookUrlView(View, frozen=True):
    name: str
    uid: str
    url: str


class DefinitionPlanView(ExactNumbersView, frozen=True):
    """What an apply changes. The texts are those of the command line."""

    factory: str
    applied: bool
    changes: Annotated[bool, Meta(description="Whether an apply changes anything.")]
    takes_over: Annotated[bool, Meta(description="Whether only files can change the factory afterwards.")]
    needs_consent: Annotated[str | None, Meta(description="Why `allow_deletions` is needed. Null: it is not.")]
    unchanged: Annotated[int, Meta(description="The number of webhooks and automations that match their files.")]
    steps: tuple[DefinitionStepView, ...]
    warnings: tuple[DefinitionWarningView, ...]
    webhooks: Annotated[tuple[WebhookUrlView, ...], Meta(description="The present webhooks, with their URLs.")]
    summary: str
    lines: Annotated[tuple[str, ...], Meta(description="The steps for people. Their first characters are + ~ and -.")]
    digest: Annotated[str, Meta(description="Send it with the apply, so that nothing else is applied.")]


@routes.get(
    "", operation_id="export_definitions", summary="Export definition files", response_model=DefinitionExportView
)
@expensive
def export_definitions(permission: ManagerAccess, management: ManagementDependency) -> Response:
    """Returns the factory as definition files. Applying them changes nothing. They have names of secrets, no values."""
    files = definitions.export(management, _by_files(permission))
    return json_response(DefinitionExportView(files=files, defined_by_files=permission.factory.defined_by_files))


@routes.post(
    "/plan", operation_id="plan_definitions", summary="Plan definition files", response_model=DefinitionPlanView
)
@expensive
def plan_definitions(permission: ManagerAccess, management: ManagementDependency, body: DefinitionFiles) -> Response:
    """Returns what applying the files would change, and changes nothing. If they can't be applied, the
    response is 422, with every problem at its line and column."""
    may = _by_files(permission)
    desired = definitions.definitions_for(management, may, definitions.files_of(body.files))
    plan = definitions.plan(management, may, desired)
    tested = definitions.backtest(management, may, desired)
    return json_response(_plan_view(management, may, plan, tested, management.webhooks.all(may), is_applied=False))


@routes.post(
    "/apply", operation_id="apply_definitions", summary="Apply definition files", response_model=DefinitionPlanView
)
@expensive
def apply_definitions(permission: ManagerAccess, management: ManagementDependency, body: DefinitionApply) -> Response:
    """Changes the factory to match the files, all or nothing. Afterwards, only files can change its definitions.

    A repeated request changes nothing more.
    """
    may = _by_files(permission)
    desired = definitions.definitions_for(management, may, definitions.files_of(body.files))
    # Before the apply, so that a problem with it can't hide that the apply was done.
    tested = definitions.backtest(management, may, desired) if not desired.problems else []
    result = definitions.apply(
        management, may, desired, may_delete=body.allow_deletions, expected_digest=body.expected_digest
    )
    return json_response(_plan_view(management, may, result.plan, tested, result.webhooks, is_applied=True))


def _by_files(permission: MayManage) -> MayManage:
    """The permission through definition files, which may change a factory that is defined by files."""
    return replace(permission, actor=replace(permission.actor, channel=Channel.FILES))


def _plan_view(
    management: Management,
    may: MayManage,
    plan: definitions.Plan,
    tested: Sequence[definitions.Problem],
    webhooks: Sequence[Webhook],
    *,
    is_applied: bool,
) -> DefinitionPlanView:
    return msgspec.convert(
        plan.as_json()
        | {
            "factory": may.factory.name,
            "applied": is_applied,
            "warnings": [warning.as_json() for warning in sorted([*plan.warnings, *tested])],
            "webhooks": [
                {"name": webhook.name, "uid": webhook.uid, "url": management.webhooks.url(webhook)}
                for webhook in webhooks
            ],
            "summary": definitions.summary_of(plan),
            "lines": list(definitions.lines_of_plan(plan)),
            "digest": plan.digest,
        },
        DefinitionPlanView,
    )
