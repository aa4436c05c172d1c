"""The effective settings, read-only, and the storage. Only the operator can change settings."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.permission import MayAdminister
from hookmill.presentation.storage import storage_fields
from hookmill.web.dashboard.access import require_admin
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext


def show(context: PageContext, may: MayAdminister) -> Response:
    storage = context.service.management.storage
    data, forecast, usable_bytes = storage.forecast(may)
    return context.page(
        "settings.html",
        settings=context.service.settings.values(),
        storage=storage_fields(data, forecast, usable_bytes, on_postgres=storage.on_postgres),
    )


PAGES: Final = (Page("GET", "/settings", show, require_admin),)
