"""Errors as the API says them: `application/problem+json` (RFC 9457), with a stable code and the places at fault.

Values that were sent are not repeated, for they may hold a secret. Names of fields and parameters are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
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
    Revoked,
    StoreUnavailable,
)
from hookmill.management import KeyReused

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 5
ERRORS_MAX: Final = 20
"""Places at fault that are told. Whoever mends so many finds the rest on the next try."""
DETAIL_CHARACTERS_MAX: Final = 2_000
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
    errors: list[ErrorAnswer] = Field(
        default_factory=list, description="The places at fault, where there are some: the first 20."
    )


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


def not_authentic(
    detail: str = "Send Authorization: Bearer and an API key that is neither revoked nor expired.",
) -> Refusal:
    return Refusal("authentication_failed", detail, headers={"WWW-Authenticate": "Bearer"})


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


def refusal_for(error: Exception, wording: Callable[[Mapping[str, Any]], str] | None = None) -> Refusal:
    """How an error is told. What nobody foresaw is told as nothing but that.

    `wording` says what is wrong with one field or parameter.
    """
    match error:
        case Refusal():
            return error
        case RequestValidationError():
            return _invalid_request(error.errors(), wording or _in_no_words)
        case StoreUnavailable():
            # The driver's own words may name a file or a host.
            told = "The store did not answer. What was asked may or may not have been done: look before you repeat it."
            return Refusal("unavailable", told, headers={"Retry-After": str(RETRY_SECONDS)})
        case Revoked():
            return not_authentic(str(error))
        case HookmillError():
            return Refusal(_code(error), _cut(str(error)), errors=_places(error))
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
    return [
        ErrorAnswer(pointer=fault.pointer, detail=_cut(fault.message)) for fault in islice(error.faults, ERRORS_MAX)
    ]


def _cut(text: str) -> str:
    return text if len(text) <= DETAIL_CHARACTERS_MAX else f"{text[: DETAIL_CHARACTERS_MAX - 1]}…"


def _in_no_words(_: Mapping[str, Any]) -> str:
    return "It is not as the API's document says."


def _invalid_request(problems: Sequence[Mapping[str, Any]], wording: Callable[[Mapping[str, Any]], str]) -> Refusal:
    """Parameters and bodies that are not as the API's document says."""
    errors: list[ErrorAnswer] = []
    for problem in islice(problems, ERRORS_MAX):
        where, *place = problem["loc"]
        if where == "path":
            # Nothing can have such a name, so nothing is there.
            return nothing_here()
        detail = wording(problem)
        if where == "body":
            errors.append(ErrorAnswer(pointer=pointer(place), detail=detail))
        else:
            errors.append(ErrorAnswer(parameter=str(place[0]) if place else where, detail=detail))
    count = "one place" if len(problems) == 1 else f"{len(problems)} places"
    return Refusal("invalid", f"The request is not as the API's document says, in {count}.", errors=errors)


def pointer(place: Iterable[object]) -> str:
    """A place in a body as a JSON pointer."""
    return "".join(f"/{_token(str(step))}" for step in place)


def _token(step: str) -> str:
    text = step[:_SHOWN_CHARACTERS].encode("utf-8", "backslashreplace").decode()
    return text.replace("~", "~0").replace("/", "~1")
