"""The effective settings, read-only. Only the operator can change them."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.permission import MayAdminister
from hookmill.web.dashboard.access import require_admin
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext


def show(context: PageContext, _may: MayAdminister) -> Response:
    return context.page("settings.html", settings=context.service.settings.values())


PAGES: Final = (Page("GET", "/settings", show, require_admin),)
