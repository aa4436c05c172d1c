"""The start page: the member's factories. If there is only one, the page redirects to that factory."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.permission import Caller
from hookmill.web.dashboard.access import require_member
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext


def start(context: PageContext, caller: Caller) -> Response:
    factories = context.management.access.visible_factories(caller)
    if len(factories) == 1:
        return context.redirect("f", factories[0].name)
    return context.page("start.html", factories=factories)


PAGES: Final = (Page("GET", "/", start, require_member),)
