"""The response with a file of a run, for the dashboard and the API."""

from collections.abc import Iterator
from urllib.parse import quote

from starlette.responses import StreamingResponse

from hookmill.domain import text


def file_response(name: str, chunks: Iterator[bytes]) -> StreamingResponse:
    """A download. The content is untrusted, so a browser must not render it under this service's origin."""
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(text.shown(name), safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return StreamingResponse(chunks, media_type="application/octet-stream", headers=headers)
