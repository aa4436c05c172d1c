"""/me and /factories: who you are here, and what you can see."""

from collections.abc import Sequence
from typing import Annotated, Self

from fastapi import APIRouter, Response
from msgspec import Meta

from hookmill.domain.factory import Factory
from hookmill.domain.permission import ActorKind, Caller, Role
from hookmill.presentation.factory import FactoryView
from hookmill.presentation.view import View
from hookmill.web.api.access import Administering, Knowing, Operations, Viewing
from hookmill.web.api.bodies import NewFactory
from hookmill.web.api.fields import LIMIT, Cursor, Limit
from hookmill.web.api.idempotency import OnlyOnce
from hookmill.web.api.paging import Page, page
from hookmill.web.api.representation import shown
from hookmill.web.api.route import Route
from hookmill.web.api.where import at

routes = APIRouter(route_class=Route, tags=["Factories"])


class FactoryPage(Page[FactoryView], frozen=True):
    """Factories, by name."""


class FactoryRoleView(View, frozen=True):
    name: str
    role: Role


class CallerView(View, frozen=True):
    kind: ActorKind
    id: str
    name: str
    is_admin: Annotated[bool, Meta(description="Whether the role is admin, over the whole team.")]
    factories: Annotated[list[FactoryRoleView], Meta(description="The factories that you can see, and as what.")]

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


@routes.get("/me", operation_id="show_me", summary="Who you are here", response_model=CallerView)
def show_me(caller: Knowing, management: Operations) -> Response:
    """What your key is called, and the factories that it opens."""
    return shown(CallerView.of(caller, management.access.factories(caller)))


@routes.get("/factories", operation_id="list_factories", summary="List factories", response_model=FactoryPage)
def list_factories(caller: Knowing, management: Operations, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """The factories that you can see."""
    found = management.access.factories(caller)
    items, further = page(found, lambda factory: (factory.name,), limit=limit, cursor=cursor)
    return shown(FactoryPage(items=[FactoryView.of(factory) for factory in items], next_cursor=further))


@routes.post(
    "/factories",
    operation_id="create_factory",
    summary="Create a factory",
    response_model=FactoryView,
    status_code=201,
)
def create_factory(may: Administering, management: Operations, given: NewFactory, once: OnlyOnce) -> Response:
    """A new factory, empty."""

    def make() -> Response:
        factory = management.factories.create(may, given.name)
        return shown(FactoryView.of(factory), 201, location=at("factories", factory.name))

    return once.answer(may, make)


@routes.get("/factories/{factory}", operation_id="show_factory", summary="Show a factory", response_model=FactoryView)
def show_factory(may: Viewing) -> Response:
    """Its name, and whether it is defined by files."""
    return shown(FactoryView.of(may.factory))
