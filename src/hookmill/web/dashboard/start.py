"""Where everybody begins: their factories, or the only one of them."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.permission import Caller
from hookmill.web.dashboard.access import somebody
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext


def start(context: PageContext, caller: Caller) -> Response:
    factories = context.management.access.factories(caller)
    if len(factories) == 1:
        return context.go("f", factories[0].name)
    return context.page("start.html", factories=factories)


PAGES: Final = (Page("GET", "/", start, somebody),)
