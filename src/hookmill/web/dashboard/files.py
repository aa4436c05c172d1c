"""The dashboard's static files: styles, scripts, icons.

Their URLs contain a digest of the content, so that caches never serve an old version. The digest is not verified.
"""

from typing import Final

from starlette.responses import Response

from hookmill.domain.errors import NotFound
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import require_nothing
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext

MEDIA_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def file(context: PageContext) -> Response:
    name = context.parameters["name"]
    names = {path.name for path in pages.STATIC.iterdir()}
    suffix = "." + name.rpartition(".")[2]
    if name not in names or suffix not in MEDIA_TYPES:
        raise NotFound("File not found.")
    cache_control = "public, max-age=31536000, immutable"
    return Response(
        pages.static_content(name), media_type=MEDIA_TYPES[suffix], headers={"Cache-Control": cache_control}
    )


PAGES: Final = (Page("GET", "/static/{digest}/{name}", file, require_nothing),)
