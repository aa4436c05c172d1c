"""The API's own description (OpenAPI 3.1): what every operation takes, answers and asks for, every error included."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from msgspec.json import schema_components

from hookmill import __version__
from hookmill.presentation.automation import AutomationInListView, AutomationView, TriggerView
from hookmill.presentation.view import View
from hookmill.web.api.access import ROLES, administering, anybody, managing, requirement_of, viewing
from hookmill.web.api.costly import is_costly
from hookmill.web.api.problems import KINDS, MEDIA_TYPE, ErrorAnswer, ProblemAnswer
from hookmill.web.api.representation import precondition
from hookmill.web.api.route import Route

TITLE: Final = "Hookmill API"
DESCRIPTION: Final = """\
Everything that can be done with factories, webhooks, automations and runs, under the same rules as on the command line.

Send an API key with every request: `Authorization: Bearer hmk_…`. A key is good for one factory as viewer or manager,
or for the whole team as admin. What another factory has is not there for it: 404. Only the names of team secrets are
one list for the whole team: a name that is taken is 409, whoever has it.

Bodies are JSON and say so (`Content-Type: application/json`). Errors are `application/problem+json` (RFC 9457); go by
their `code`.
"""
_TAGS: Final = [
    {"name": "Factories", "description": "What owns webhooks and automations."},
    {"name": "Webhooks", "description": "The URLs that senders post to."},
    {"name": "Team secrets", "description": "Values go in and never come out."},
    {"name": "Automations", "description": "The prompts that deliveries start."},
    {"name": "Delivery log", "description": "What came, and what became of it."},
    {"name": "Filters", "description": "Would this payload filter trigger, and why?"},
    {"name": "Runs", "description": "What deliveries started, and how it went."},
    {"name": "Audit log", "description": "Who changed what, when and from where."},
    {"name": "Team", "description": "People and programs, and their roles."},
    {"name": "Reference", "description": "Open to all, without a key."},
]
_PLACE: Final = "#/components/schemas/{name}"
_PROBLEM: Final = {"$ref": _PLACE.format(name="ProblemAnswer")}
_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "RateLimit-Limit": {"description": "Requests that the key has in a minute.", "schema": {"type": "integer"}},
    "RateLimit-Remaining": {"description": "What is left of them.", "schema": {"type": "integer"}},
    "RateLimit-Reset": {"description": "Seconds until they are all there again.", "schema": {"type": "integer"}},
    "ETag": {"description": "For If-Match, when it is to be changed.", "schema": {"type": "string"}},
    "Location": {"description": "The address of what was created.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true` where this answer was given before and nothing was done now.",
        "schema": {"type": "string"},
    },
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address, and what it asks of whoever calls it."""

    method: str
    path: str
    requirement: Callable[..., Any]
    takes_body: bool
    answer: type[View] | None
    is_costly: bool
    has_precondition: bool


def operations(app: FastAPI) -> Iterator[Operation]:
    """Every operation that there is."""
    for route in iter_route_contexts(app.routes):
        original = route.original_route
        if not isinstance(original, Route):
            # Nothing may be here that makes no requirement.
            raise TypeError(f"{route.path} is no operation of this API")
        for method in sorted(original.methods or ()):
            yield Operation(
                method=method,
                path=str(route.path_format),
                requirement=requirement_of(original.dependant),
                takes_body=original.body_field is not None,
                answer=original.answer,
                is_costly=is_costly(original.dependant.call),
                has_precondition=any(each.call is precondition for each in original.dependant.dependencies),
            )


def document(app: FastAPI) -> dict[str, Any]:
    """The whole description."""
    described = get_openapi(
        title=TITLE,
        version=__version__,
        description=DESCRIPTION,
        routes=app.routes,
        tags=_TAGS,
        openapi_version="3.1.0",
    )
    schemas = described["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for model in (ErrorAnswer, ProblemAnswer):
        schema = model.model_json_schema(ref_template=_PLACE.format(name="{model}"), mode="serialization")
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    # Of an enumeration that stands in a body too, the framework's own schema says more.
    described["components"]["schemas"] = dict(sorted((_views(app) | schemas).items()))
    described["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key, `hmk_…`."}
    }
    for operation in operations(app):
        _complete(described["paths"][operation.path][operation.method.lower()], operation)
    return described


def _views(app: FastAPI) -> dict[str, Any]:
    """The schemas of all that is answered, by name, and of what stands in it."""
    views = [operation.answer for operation in operations(app) if operation.answer is not None]
    _, schemas = schema_components([*views, TriggerView], ref_template=_PLACE)
    for schema in schemas.values():
        if "enum" in schema:
            schema["type"] = "string"
    for view in (AutomationInListView, AutomationView):
        schemas[view.__name__]["properties"]["triggers"]["items"] = _reference(TriggerView)
    return schemas


def _reference(model: type) -> dict[str, str]:
    return {"$ref": _PLACE.format(name=model.__name__)}


def _complete(told: dict[str, Any], operation: Operation) -> None:
    role = ROLES[operation.requirement]
    told["security"] = [{"key": []}] if role is not None else []
    told["x-role"] = role or "none"
    if operation.answer is not None:
        (success,) = (told["responses"][status] for status in told["responses"] if status.startswith("2"))
        success["content"]["application/json"]["schema"] = _reference(operation.answer)
    told["x-costly"] = operation.is_costly
    responses = told["responses"]
    successes = [status for status in responses if status.startswith("2")]
    for status in successes:
        responses[status]["headers"] = {name: _HEADERS[name] for name in _headers_of(told, operation)}
    if operation.method == "GET" and "ETag" in _headers_of(told, operation):
        responses["304"] = {"description": "You have exactly this already (`If-None-Match`)."}
    for code in _codes(operation):
        status, title = KINDS[code]
        problem: dict[str, Any] = {"description": title, "content": {MEDIA_TYPE: {"schema": _PROBLEM}}}
        if status in (429, 503):
            problem["headers"] = {"Retry-After": _HEADERS["Retry-After"]}
        if code == "invalid":
            # In place of the framework's own words for it.
            responses["422"] = problem
        responses.setdefault(str(status), problem)
    told["responses"] = dict(sorted(responses.items()))


def _headers_of(told: dict[str, Any], operation: Operation) -> Iterator[str]:
    if operation.requirement is not anybody:
        yield from ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
    if told["operationId"] in _TAGGED:
        yield "ETag"
    if told["operationId"] in _LOCATED:
        yield "Location"
    if any(parameter["name"] == "Idempotency-Key" for parameter in told.get("parameters", ())):
        yield "Idempotency-Replayed"


_LOCATED: Final = {"create_factory", "create_webhook", "create_secret", "create_automation", "add_member"}
_TAGGED: Final = {
    f"{verb}_{noun}" for verb in ("show", "change", "sync") for noun in ("webhook", "automation", "member", "secret")
} | {"give_role", "take_role"}


def _codes(operation: Operation) -> Iterator[str]:
    """Every code that the operation may answer with."""
    yield "internal_error"
    if operation.requirement is not anybody:
        yield from ("authentication_failed", "too_many_requests", "unavailable")
    if operation.requirement in (managing, administering):
        yield "forbidden"
    if "{" in operation.path:
        yield "not_found"
    # A parameter that is not known is refused everywhere.
    yield "invalid"
    if operation.takes_body:
        yield from ("malformed_json", "body_too_slow", "body_too_large", "unsupported_media_type")
        # A body may name what isn't there.
        yield "not_found"
    if operation.requirement is viewing:
        yield "not_found"
    if operation.method != "GET" and operation.requirement is not viewing:
        yield "conflict"
    if operation.has_precondition:
        yield "changed"
