"""/me and /factories: the key's own identity, and the factories that it can see."""

from collections.abc import Sequence
from typing import Annotated, Self

from fastapi import APIRouter, Response
from msgspec import Meta

from hookmill.domain.factory import Factory
from hookmill.domain.permission import ActorKind, Caller, Role
from hookmill.presentation.factory import FactoryView
from hookmill.presentation.view import View
from hookmill.web.api.access import AdminAccess, AnyKey, ManagementDependency, ViewerAccess
from hookmill.web.api.bodies import FactoryChanges, FactoryCreation
from hookmill.web.api.fields import PAGE_SIZE, Cursor, FactoryInPath, Limit
from hookmill.web.api.idempotency import Idempotency
from hookmill.web.api.paging import ResultPage, paginate
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route
from hookmill.web.api.urls import api_path

routes = APIRouter(route_class=Route, tags=["Factories"])


class FactoryPage(ResultPage[FactoryView], frozen=True):
    """Factories, by name."""


class FactoryRoleView(View, frozen=True):
    name: str
    role: Role


class CallerView(View, frozen=True):
    kind: ActorKind
    id: str
    name: str
    is_admin: Annotated[bool, Meta(description="Whether the role is admin, for the whole team.")]
    factories: Annotated[list[FactoryRoleView], Meta(description="The factories that the key can see, with its role.")]

    @classmethod
    def of(cls, caller: Caller, factories: Sequence[Factory]) -> Self:
        return cls(
            kind=caller.actor.kind,
            id=caller.actor.id,
            name=caller.actor.name,
            is_admin=caller.is_admin,
            factories=[
                FactoryRoleView(name=factory.name, role=Role.ADMIN if caller.is_admin else caller.roles[factory.id])
                for factory in factories
            ],
        )


@routes.get("/me", operation_id="show_me", summary="Show the API key in use", response_model=CallerView)
def show_me(caller: AnyKey, management: ManagementDependency) -> Response:
    """Returns the API key that authenticates the request: its id, its name and its roles."""
    return json_response(CallerView.of(caller, management.access.visible_factories(caller)))


@routes.get("/factories", operation_id="list_factories", summary="List factories", response_model=FactoryPage)
def list_factories(
    caller: AnyKey, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Lists the factories that the key can see, by name."""
    factories = management.access.visible_factories(caller)
    items, next_cursor = paginate(factories, lambda factory: (factory.name,), limit=limit, cursor=cursor)
    return json_response(FactoryPage(items=[FactoryView.of(factory) for factory in items], next_cursor=next_cursor))


@routes.post(
    "/factories",
    operation_id="create_factory",
    summary="Create a factory",
    response_model=FactoryView,
    status_code=201,
)
def create_factory(
    permission: AdminAccess, management: ManagementDependency, body: FactoryCreation, idempotency: Idempotency
) -> Response:
    """Creates an empty factory."""

    def create() -> Response:
        factory = management.factories.create(permission, body.name)
        return json_response(FactoryView.of(factory), 201, location=api_path("factories", factory.name))

    return idempotency.respond(permission, create)


@routes.get("/factories/{factory}", operation_id="show_factory", summary="Show a factory", response_model=FactoryView)
def show_factory(permission: ViewerAccess) -> Response:
    """Returns a factory: its name, whether definition files define it, and its limit of running runs."""
    return json_response(FactoryView.of(permission.factory))


@routes.patch(
    "/factories/{factory}", operation_id="change_factory", summary="Change a factory", response_model=FactoryView
)
def change_factory(
    permission: AdminAccess, management: ManagementDependency, factory: FactoryInPath, body: FactoryChanges
) -> Response:
    """Changes the maximum number of the factory's runs that are performed at the same time.

    Runs that are running continue, even above the new limit.
    """
    changes = body.changes()
    if "max_running" in changes:
        return json_response(
            FactoryView.of(management.factories.set_max_running(permission, factory, changes["max_running"]))
        )
    return json_response(FactoryView.of(management.factories.named(permission, factory)))
