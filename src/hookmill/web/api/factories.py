"""/me and /factories: who you are here, and what you can see."""

from fastapi import APIRouter, Response

from hookmill.web.api.access import Administering, Knowing, Operations, Viewing
from hookmill.web.api.answers import CallerAnswer, FactoryAnswer, FactoryPage
from hookmill.web.api.bodies import NewFactory
from hookmill.web.api.fields import LIMIT, Cursor, Limit
from hookmill.web.api.idempotency import OnlyOnce
from hookmill.web.api.paging import page
from hookmill.web.api.representation import shown
from hookmill.web.api.route import Route
from hookmill.web.api.where import at

routes = APIRouter(route_class=Route, tags=["Factories"])


@routes.get("/me", operation_id="show_me", summary="Who you are here", response_model=CallerAnswer)
def show_me(caller: Knowing, management: Operations) -> Response:
    """What your key is called, and the factories that it opens."""
    return shown(CallerAnswer.of(caller, management.access.factories(caller)))


@routes.get("/factories", operation_id="list_factories", summary="List factories", response_model=FactoryPage)
def list_factories(caller: Knowing, management: Operations, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """The factories that you can see."""
    found = management.access.factories(caller)
    items, further = page(found, lambda factory: (factory.name,), limit=limit, cursor=cursor)
    return shown(FactoryPage(items=[FactoryAnswer.of(factory) for factory in items], next_cursor=further))


@routes.post(
    "/factories",
    operation_id="create_factory",
    summary="Create a factory",
    response_model=FactoryAnswer,
    status_code=201,
)
def create_factory(may: Administering, management: Operations, given: NewFactory, once: OnlyOnce) -> Response:
    """A new factory, empty."""

    def make() -> Response:
        factory = management.factories.create(may, given.name)
        return shown(FactoryAnswer.of(factory), 201, location=at("factories", factory.name))

    return once.answer(may, make)


@routes.get("/factories/{factory}", operation_id="show_factory", summary="Show a factory", response_model=FactoryAnswer)
def show_factory(may: Viewing) -> Response:
    """Its name, and whether it is defined by files."""
    return shown(FactoryAnswer.of(may.factory))
