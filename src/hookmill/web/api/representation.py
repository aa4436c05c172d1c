"""JSON responses and their entity tags. The responses for an unchanged resource are byte-identical."""

import re
from hashlib import sha256
from typing import Annotated, Final

from fastapi import Depends, Header, Request, Response
from starlette.datastructures import MutableHeaders

from hookmill.domain.errors import Changed
from hookmill.presentation.view import View
from hookmill.web.api.fields import TAGS

_TAG: Final = re.compile(r"(?:W/)?\"[\x21\x23-\x7e]*\"")
_CONTENT_HEADERS: Final = {"content-type", "content-length", "location"}


def json_response(view: View, status: int = 200, *, location: str | None = None) -> Response:
    """A response without an ETag: a list, or a value that is shown once."""
    response = Response(view.as_json(), status_code=status, media_type="application/json")
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
    """The `If-Match` of a change: the resource must still be the version that the client has read."""

    def __init__(self, tags: str | None) -> None:
        """`tags`: the value of the header; None if the client did not send it."""
        self._tags = tags

    @property
    def is_set(self) -> bool:
        return self._tags is not None

    def check(self, current: View) -> None:
        """Raise `Changed` if the resource has another tag. Call it inside the change's transaction, to avoid a race."""
        if self._tags is None or self._tags == "*":
            return
        if etag_of(json_response(current)) not in _TAG.findall(self._tags):
            raise Changed(
                "The resource was changed since you read it. This request changed nothing. Read it again, then retry."
            )


def precondition(
    tags: Annotated[
        str | None,
        Header(
            alias="If-Match",
            pattern=TAGS,
            description="The `ETag` that you have read. If the resource has changed since, the response is 412.",
        ),
    ] = None,
) -> Precondition:
    return Precondition(tags)


IfMatch = Annotated[Precondition, Depends(precondition)]


def or_not_modified(request: Request, response: Response) -> Response:
    """The response, or 304 without a body if its ETag is in `If-None-Match`."""
    tag = response.headers.get("etag")
    tags = ",".join(request.headers.getlist("if-none-match"))
    if tag is None or request.method != "GET" or response.status_code != 200:
        return response
    # Weak comparison, as RFC 9110 requires: a proxy that compresses makes strong tags weak.
    if tags.strip() != "*" and tag not in [each.removeprefix("W/") for each in _TAG.findall(tags)]:
        return response
    not_modified = Response(status_code=304)
    headers = MutableHeaders(raw=[pair for pair in response.raw_headers if pair[0].decode() not in _CONTENT_HEADERS])
    not_modified.raw_headers = headers.raw
    return not_modified
