"""Answers as bytes, and their entity tags: two looks at a thing that has not changed are equal to the byte."""

import re
from hashlib import sha256
from typing import Annotated, Final

from fastapi import Depends, Header, Request, Response
from starlette.datastructures import MutableHeaders

from hookmill.domain.errors import Changed
from hookmill.presentation.view import View
from hookmill.web.api.fields import TAGS

_TAG: Final = re.compile(r"(?:W/)?\"[\x21\x23-\x7e]*\"")
_OF_THE_CONTENT: Final = {"content-type", "content-length", "location"}


def shown(answer: View, status: int = 200, *, location: str | None = None) -> Response:
    """An answer that has no tag: a list, or what is shown once."""
    response = Response(answer.as_json(), status_code=status, media_type="application/json")
    if location is not None:
        response.headers["Location"] = location
    return response


def tagged(answer: View) -> Response:
    """One thing, with the tag by which a change can say what it was made of."""
    response = shown(answer)
    response.headers["ETag"] = tag_of(response)
    return response


def tag_of(response: Response) -> str:
    return f'"{sha256(bytes(response.body)).hexdigest()[:32]}"'


class Precondition:
    """What a change asks for: that the thing is still what its author has seen."""

    def __init__(self, tags: str | None) -> None:
        self._tags = tags

    @property
    def is_given(self) -> bool:
        return self._tags is not None

    def must_hold(self, now: View) -> None:
        """Raises `Changed`. Called inside the transaction of the change, or another one could come between."""
        if self._tags is None or self._tags == "*":
            return
        if tag_of(shown(now)) not in _TAG.findall(self._tags):
            raise Changed("Somebody has changed it since you looked. Nothing was changed now: look again, then repeat.")


def precondition(
    tags: Annotated[
        str | None,
        Header(
            alias="If-Match",
            pattern=TAGS,
            description="The `ETag` of what you have seen. When it has changed since, nothing is done: 412.",
        ),
    ] = None,
) -> Precondition:
    return Precondition(tags)


IfMatch = Annotated[Precondition, Depends(precondition)]


def unless_known(request: Request, response: Response) -> Response:
    """304 without a body for whoever has exactly this answer already."""
    tag = response.headers.get("etag")
    known = ",".join(request.headers.getlist("if-none-match"))
    if tag is None or request.method != "GET" or response.status_code != 200:
        return response
    # Compared weakly, as RFC 9110 says: a proxy that compresses makes strong tags weak.
    if known.strip() != "*" and tag not in [each.removeprefix("W/") for each in _TAG.findall(known)]:
        return response
    unchanged = Response(status_code=304)
    kept = MutableHeaders(raw=[pair for pair in response.raw_headers if pair[0].decode() not in _OF_THE_CONTENT])
    unchanged.raw_headers = kept.raw
    return unchanged
