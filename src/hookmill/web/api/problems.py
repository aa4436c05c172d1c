"""Errors as the API says them: `application/problem+json` (RFC 9457), with a stable code and the places at fault.

What was sent is never repeated: it may hold a secret.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from hookmill.domain.errors import (
    Changed,
    Conflict,
    Forbidden,
    HookmillError,
    Invalid,
    LimitReached,
    NotFound,
    StoreUnavailable,
)
from hookmill.management import KeyReused

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 5
_SHOWN_CHARACTERS: Final = 100


class ErrorAnswer(BaseModel):
    """One place at fault: in the body, a JSON pointer (RFC 6901); else the query parameter or header."""

    pointer: str | None = Field(default=None, examples=["/filter/payload/x"])
    parameter: str | None = Field(default=None, examples=["limit"])
    detail: str


class ProblemAnswer(BaseModel):
    """What went wrong. Programs go by `code`."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["The request can't be used as it is."])
    status: int = Field(examples=[422])
    code: str = Field(examples=["invalid"])
    detail: str = Field(examples=["The payload filter cannot be used."])
    errors: list[ErrorAnswer] = Field(default_factory=list, description="The places at fault, where there are some.")


class Kind(NamedTuple):
    status: int
    title: str


KINDS: Final[Mapping[str, Kind]] = {
    "malformed_json": Kind(400, "The body is not JSON."),
    "authentication_failed": Kind(401, "This takes an API key."),
    "forbidden": Kind(403, "Your role does not allow this."),
    "not_found": Kind(404, "There is nothing here."),
    "method_not_allowed": Kind(405, "This can't be done to this."),
    "body_too_slow": Kind(408, "The body took too long to arrive."),
    "conflict": Kind(409, "Its present state forbids this."),
    "limit_reached": Kind(409, "One more would be too many."),
    "idempotency_key_reused": Kind(409, "This Idempotency-Key belongs to another request."),
    "changed": Kind(412, "Somebody has changed it meanwhile."),
    "body_too_large": Kind(413, "The body is too large."),
    "unsupported_media_type": Kind(415, "The body's type is not application/json."),
    "invalid": Kind(422, "The request can't be used as it is."),
    "too_many_requests": Kind(429, "Too many requests for now."),
    "internal_error": Kind(500, "Something went wrong here."),
    "unavailable": Kind(503, "The store does not answer for now."),
}
"""Every code, with its status and title."""


class Refusal(Exception):
    """A request that ends here, for a reason of HTTP's own."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[ErrorAnswer] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})


def invalid_parameter(name: str, detail: str) -> Refusal:
    return Refusal("invalid", detail, errors=[ErrorAnswer(parameter=name[:_SHOWN_CHARACTERS], detail=detail)])


def nothing_here() -> Refusal:
    return Refusal("not_found", "There is nothing at this address.")


def answer(refusal: Refusal) -> Response:
    """The refusal as a response."""
    kind = KINDS[refusal.code]
    body = ProblemAnswer(
        type="about:blank",
        title=kind.title,
        status=kind.status,
        code=refusal.code,
        detail=refusal.detail,
        errors=list(refusal.errors),
    )
    text = body.model_dump_json(exclude_none=True)
    return Response(text, status_code=kind.status, media_type=MEDIA_TYPE, headers=refusal.headers)


def refusal_for(error: Exception) -> Refusal:
    """How an error is told. What nobody foresaw is told as nothing but that."""
    match error:
        case Refusal():
            return error
        case RequestValidationError():
            return _invalid_request(error.errors())
        case StoreUnavailable():
            # The driver's own words may name a file or a host.
            told = "The store did not answer. What was asked may or may not have been done: look before you repeat it."
            return Refusal("unavailable", told, headers={"Retry-After": str(RETRY_SECONDS)})
        case HookmillError():
            return Refusal(_code(error), str(error), errors=_places(error))
        case _:
            return Refusal("internal_error", "This was not foreseen. It is in the service's log.")


def _code(error: HookmillError) -> str:
    match error:
        case Changed():
            return "changed"
        case LimitReached():
            return "limit_reached"
        case KeyReused():
            return "idempotency_key_reused"
        case Conflict():
            return "conflict"
        case Forbidden():
            return "forbidden"
        case NotFound():
            return "not_found"
        case _:
            return "invalid"


def _places(error: HookmillError) -> list[ErrorAnswer]:
    if not isinstance(error, Invalid):
        return []
    return [ErrorAnswer(pointer=fault.pointer, detail=fault.message) for fault in error.faults]


def _invalid_request(problems: Iterable[Mapping[str, Any]]) -> Refusal:
    """Parameters and bodies that are not as the API's document says."""
    errors: list[ErrorAnswer] = []
    for problem in problems:
        where, *place = problem["loc"]
        if where == "path":
            # Nothing can have such a name, so nothing is there.
            return nothing_here()
        detail = str(problem["msg"]).removeprefix("Value error, ")
        if where == "body":
            errors.append(ErrorAnswer(pointer=pointer(place), detail=detail))
        else:
            errors.append(ErrorAnswer(parameter=str(place[0]) if place else where, detail=detail))
    count = "one place" if len(errors) == 1 else f"{len(errors)} places"
    return Refusal("invalid", f"The request is not as the API's document says, in {count}.", errors=errors)


def pointer(place: Iterable[object]) -> str:
    """A place in a body as a JSON pointer."""
    return "".join(f"/{_token(str(step))}" for step in place)


def _token(step: str) -> str:
    return step[:_SHOWN_CHARACTERS].replace("~", "~0").replace("/", "~1")
