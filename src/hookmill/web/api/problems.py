"""The API's error responses: `application/problem+json` (RFC 9457) with a stable code and the invalid fields.

An error of the validation framework contains names of fields and parameters, but never their values, which may be
secrets. The text of a `HookmillError` may quote a name or an id, but never a secret.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from hookmill.definitions import ConsentNeeded, UnusableDefinitions
from hookmill.domain.errors import (
    Changed,
    Conflict,
    DiskFull,
    Forbidden,
    HookmillError,
    Invalid,
    LimitReached,
    NotFound,
    ObjectStoreUnavailable,
    Revoked,
    StoreUnavailable,
)
from hookmill.domain.json_pointer import pointer_to
from hookmill.management import IdempotencyKeyReused

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 5
ERRORS_MAX: Final = 20
"""The maximum number of invalid values (`errors`) in one response."""
FILE_PROBLEMS_MAX: Final = 1_000
DETAIL_CHARACTERS_MAX: Final = 2_000
_NAME_CHARACTERS_MAX: Final = 100
"""Longer names of fields and parameters, which the client chose, are cut."""


class ErrorDetail(BaseModel):
    """One invalid value: a field of the body, a query parameter, a header, or a value in a definition file."""

    pointer: str | None = Field(
        default=None, description="The field, as a JSON pointer (RFC 6901).", examples=["/filter/payload/x"]
    )
    parameter: str | None = Field(default=None, description="The query parameter or header.", examples=["limit"])
    file: str | None = Field(default=None, description="The definition file.", examples=["webhooks/github.yaml"])
    line: int | None = Field(default=None, description="The line of the definition file, from 1.")
    column: int | None = Field(default=None, description="The column in this line, from 1.")
    detail: str


class ProblemDetails(BaseModel):
    """An error. Programs should use `code`, which is stable."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["The request is invalid."])
    status: int = Field(examples=[422])
    code: str = Field(examples=["invalid"])
    detail: str = Field(examples=["The filter cannot be used."])
    errors: list[ErrorDetail] = Field(
        default_factory=list,
        description="The invalid values whose place is known, at most 20, or 1,000 in definition files. May be empty.",
    )


class StatusAndTitle(NamedTuple):
    status: int
    title: str


ERROR_CODES: Final[Mapping[str, StatusAndTitle]] = {
    "malformed_json": StatusAndTitle(400, "The body is not JSON."),
    "authentication_failed": StatusAndTitle(401, "A valid API key is required."),
    "forbidden": StatusAndTitle(403, "The key's role does not allow this."),
    "not_found": StatusAndTitle(404, "The resource does not exist."),
    "method_not_allowed": StatusAndTitle(405, "The path does not support this method."),
    "body_too_slow": StatusAndTitle(408, "The body took too long to arrive."),
    "consent_required": StatusAndTitle(409, "The change would delete what can't be restored."),
    "conflict": StatusAndTitle(409, "The state of the resource does not allow this."),
    "limit_reached": StatusAndTitle(409, "The number of these resources is limited."),
    "idempotency_key_reused": StatusAndTitle(409, "Another request has used this Idempotency-Key."),
    "changed": StatusAndTitle(412, "The resource has changed since you read it."),
    "body_too_large": StatusAndTitle(413, "The body is too large."),
    "unsupported_media_type": StatusAndTitle(415, "The body's type is not application/json."),
    "invalid": StatusAndTitle(422, "The request is invalid."),
    "too_many_requests": StatusAndTitle(429, "Too many requests."),
    "internal_error": StatusAndTitle(500, "An unexpected error occurred."),
    "unavailable": StatusAndTitle(503, "The database is unavailable."),
}
"""The HTTP status and the title of every error code."""


class ApiError(Exception):
    """An error response. `code` is a key of `ERROR_CODES`."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[ErrorDetail] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})


def invalid_parameter_error(name: str, detail: str) -> ApiError:
    return ApiError("invalid", detail, errors=[ErrorDetail(parameter=name[:_NAME_CHARACTERS_MAX], detail=detail)])


def not_found_error() -> ApiError:
    return ApiError("not_found", "No resource has this path.")


def unauthenticated_error(
    detail: str = "Send an API key that is neither revoked nor expired, as Authorization: Bearer hmk_….",
) -> ApiError:
    return ApiError("authentication_failed", detail, headers={"WWW-Authenticate": "Bearer"})


def error_response(error: ApiError) -> Response:
    status, title = ERROR_CODES[error.code]
    body = ProblemDetails(
        type="about:blank",
        title=title,
        status=status,
        code=error.code,
        detail=error.detail,
        errors=list(error.errors),
    )
    text = body.model_dump_json(exclude_none=True)
    return Response(text, status_code=status, media_type=MEDIA_TYPE, headers=error.headers)


def api_error_for(error: Exception, messages: Callable[[Mapping[str, Any]], str] | None = None) -> ApiError:
    """The API error for any exception. For an unexpected exception, the error reveals nothing about it.

    `messages` returns the text for one error of the validation framework.
    """
    match error:
        case ApiError():
            return error
        case RequestValidationError():
            return _invalid_request(error.errors(), messages or _default_message)
        case DiskFull() | ObjectStoreUnavailable():
            return ApiError("unavailable", str(error), headers={"Retry-After": str(RETRY_SECONDS)})
        case StoreUnavailable():
            # The driver's error text may name a file or a host.
            detail = "The database did not respond. The change may or may not be done: check before you retry."
            return ApiError("unavailable", detail, headers={"Retry-After": str(RETRY_SECONDS)})
        case Revoked():
            return unauthenticated_error(str(error))
        case HookmillError():
            return ApiError(_code_for(error), _shorten(str(error)), errors=_error_details(error))
        case _:
            return ApiError("internal_error", "The error is in the service's log.")


def _code_for(error: HookmillError) -> str:
    match error:
        case Changed():
            return "changed"
        case LimitReached():
            return "limit_reached"
        case IdempotencyKeyReused():
            return "idempotency_key_reused"
        case ConsentNeeded():
            return "consent_required"
        case Conflict():
            return "conflict"
        case Forbidden():
            return "forbidden"
        case NotFound():
            return "not_found"
        case _:  # `Invalid`; the operations of the API raise no other class.
            return "invalid"


def _error_details(error: HookmillError) -> list[ErrorDetail]:
    if isinstance(error, UnusableDefinitions):
        return [
            ErrorDetail(
                **{name: value for name, value in problem.as_json().items() if name != "message"},
                detail=_shorten(problem.message),
            )
            for problem in error.problems[:FILE_PROBLEMS_MAX]
        ]
    if not isinstance(error, Invalid):
        return []
    return [
        ErrorDetail(pointer=fault.pointer, detail=_shorten(fault.message)) for fault in islice(error.faults, ERRORS_MAX)
    ]


def _shorten(text: str) -> str:
    return text if len(text) <= DETAIL_CHARACTERS_MAX else f"{text[: DETAIL_CHARACTERS_MAX - 1]}…"


def _default_message(_: Mapping[str, Any]) -> str:
    return "The value does not match the OpenAPI document."


def _invalid_request(
    validation_errors: Sequence[Mapping[str, Any]], messages: Callable[[Mapping[str, Any]], str]
) -> ApiError:
    errors: list[ErrorDetail] = []
    for validation_error in islice(validation_errors, ERRORS_MAX):
        location, *steps = validation_error["loc"]
        if location == "path":
            # The name or id in the path has an invalid form, so no resource has it.
            return not_found_error()
        detail = messages(validation_error)
        if location == "body":
            errors.append(ErrorDetail(pointer=body_pointer(steps), detail=detail))
        else:
            errors.append(ErrorDetail(parameter=str(steps[0]) if steps else location, detail=detail))
    count = "one invalid value" if len(validation_errors) == 1 else f"{len(validation_errors)} invalid values"
    return ApiError("invalid", f"The request has {count}.", errors=errors)


def body_pointer(steps: Iterable[object]) -> str:
    """The JSON pointer to a value in a body. Each step is cut to 100 characters and made valid UTF-8."""
    return pointer_to(str(step)[:_NAME_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode() for step in steps)
