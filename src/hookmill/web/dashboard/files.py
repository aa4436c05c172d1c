"""The dashboard's static files: styles, scripts, icons.

Their URLs contain a digest of the content, so that caches never serve an old version. The digest is not verified.
"""

import gzip
from functools import cache
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
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    accepted = {encoding.strip() for encoding in context.request.headers.get("accept-encoding", "").split(",")}
    if "gzip" in accepted:
        return Response(
            _compressed(name), media_type=MEDIA_TYPES[suffix], headers=headers | {"Content-Encoding": "gzip"}
        )
    return Response((pages.STATIC / name).read_bytes(), media_type=MEDIA_TYPES[suffix], headers=headers)


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress((pages.STATIC / name).read_bytes(), mtime=0)


PAGES: Final = (Page("GET", "/static/{digest}/{name}", file, require_nothing),)
