"""JSON responses and their entity tags. The responses for an unchanged resource are byte-identical,
so their ETags are equal.
"""

import re
from hashlib import sha256
from typing import Annotated, Final

from fastapi import Depends, Header, Request, Response
from starlette.datastructures import MutableHeaders

from hookmill.domain.errors import Changed
from hookmill.presentation.view import View
from hookmill.web.api.fields import ETAG_LIST_PATTERN

_ETAG: Final = re.compile(r"(?:W/)?\"[\x21\x23-\x7e]*\"")
_HEADERS_NOT_IN_304: Final = {"content-type", "content-length", "location"}


def json_response(view: View, status: int = 200, *, location: str | None = None) -> Response:
    """A response without an ETag: a list, or a value that is shown once."""
    response = Response(view.encoded(), status_code=status, media_type="application/json")
    if location is not None:
        response.headers["Location"] = location
    return response


def response_with_etag(view: View) -> Response:
    """A response with one resource and its ETag, for `If-Match` and `If-None-Match`."""
    response = json_response(view)
    response.headers["ETag"] = etag_of(response)
    return response


def etag_of(response: Response) -> str:
    return f'"{sha256(bytes(response.body)).hexdigest()[:32]}"'


class Precondition:
    """The `If-Match` header of a request to change a resource: the client must have read its current version."""

    def __init__(self, tags: str | None) -> None:
        """`tags`: the value of the header; None if the client did not send the header, so that every check passes."""
        self._tags = tags

    @property
    def is_set(self) -> bool:
        return self._tags is not None

    def check(self, current: View) -> None:
        """Raise `Changed` if the ETag of the current resource is not in `If-Match`.

        Call this method inside the transaction of the change, to avoid a race.
        """
        if self._tags is None or self._tags == "*":
            return
        if etag_of(json_response(current)) not in _ETAG.findall(self._tags):
            raise Changed(
                "The resource was changed since you read it. This request changed nothing. Read it again, then retry."
            )


def precondition(
    tags: Annotated[
        str | None,
        Header(
            alias="If-Match",
            pattern=ETAG_LIST_PATTERN,
            description="The `ETag` that you have read. If the resource has changed since, the response is 412.",
        ),
    ] = None,
) -> Precondition:
    return Precondition(tags)


IfMatch = Annotated[Precondition, Depends(precondition)]


def unless_not_modified(request: Request, response: Response) -> Response:
    """The response, or 304 without a body if its ETag is in `If-None-Match`."""
    tag = response.headers.get("etag")
    tags = ",".join(request.headers.getlist("if-none-match"))
    if tag is None or request.method != "GET" or response.status_code != 200:
        return response
    # RFC 9110 requires a weak comparison, because a proxy that compresses responses makes their ETags weak (`W/`).
    if tags.strip() != "*" and tag not in [sent.removeprefix("W/") for sent in _ETAG.findall(tags)]:
        return response
    not_modified = Response(status_code=304)
    headers = MutableHeaders(raw=[pair for pair in response.raw_headers if pair[0].decode() not in _HEADERS_NOT_IN_304])
    not_modified.raw_headers = headers.raw
    return not_modified
