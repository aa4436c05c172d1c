"""The API's OpenAPI 3.1 document: the parameters, bodies, responses, errors and required role of every operation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from msgspec.json import schema_components

from hookmill import __version__
from hookmill.domain.spec import object_schema
from hookmill.presentation.view import View
from hookmill.presentation.webhook import WebhookView, WebhookWithSecretView
from hookmill.web.api.access import (
    MINIMUM_ROLES,
    require_admin,
    require_attempt_token,
    require_factory_admin,
    require_manager,
    require_nothing,
    require_viewer,
    requirement_of,
)
from hookmill.web.api.expensive import is_expensive
from hookmill.web.api.fields import REF_TEMPLATE
from hookmill.web.api.problems import ERROR_CODES, MEDIA_TYPE, ErrorDetail, ProblemDetails
from hookmill.web.api.representation import precondition
from hookmill.web.api.route import Route

TITLE: Final = "Hookmill API"
DESCRIPTION: Final = """\
Manage factories, webhooks, automations and runs. The same rules apply as on the command line.

Send an API key with every request: `Authorization: Bearer hmk_…`. A key has the role viewer or manager in one factory,
or the role admin for the whole team. The resources of other factories do not exist for the key: the response is 404.
The names of secrets are unique in the team: creating one with a name that another factory uses leads to 409.

Send bodies as JSON with `Content-Type: application/json`. Errors are `application/problem+json` (RFC 9457) with a
stable `code`.
"""
_TAGS: Final = [
    {"name": "Factories", "description": "Factories own webhooks and automations."},
    {"name": "Webhooks", "description": "The URLs that senders post deliveries to."},
    {"name": "Team secrets", "description": "The secrets that webhooks verify deliveries with. Values are write-only."},
    {"name": "Automations", "description": "Prompts, and the deliveries and schedules that start them."},
    {"name": "Definition files", "description": "Webhooks and automations as files, planned and applied together."},
    {"name": "Delivery log", "description": "The recorded deliveries, and their results."},
    {"name": "Filters", "description": "Test payload filters on recorded deliveries."},
    {"name": "Runs", "description": "The runs of automations, and the queue."},
    {"name": "Alarms", "description": "What the service reports by itself, and snoozes."},
    {"name": "Alarm destinations", "description": "Where alarms are sent: e-mail, chats and signed webhooks."},
    {"name": "Audit log", "description": "Who changed what, when, and through which channel."},
    {"name": "Team", "description": "Members and API keys, and their roles."},
    {"name": "Reference", "description": "Public documents. No API key is required."},
]
_PROBLEM_SCHEMA: Final = {"$ref": REF_TEMPLATE.format(name="ProblemDetails")}
_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "RateLimit-Limit": {"description": "The key's requests per minute.", "schema": {"type": "integer"}},
    "RateLimit-Remaining": {
        "description": "The requests that remain in this minute.",
        "schema": {"type": "integer"},
    },
    "RateLimit-Reset": {"description": "Seconds until the limit resets.", "schema": {"type": "integer"}},
    "ETag": {"description": "The version of the resource, for `If-Match`.", "schema": {"type": "string"}},
    "Location": {"description": "The path of the new resource.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true` if this is the stored response of an earlier request.",
        "schema": {"type": "string"},
    },
    "Retry-After": {"description": "Seconds to wait before a retry.", "schema": {"type": "integer"}},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, with its requirement and other properties."""

    method: str
    path: str
    requirement: Callable[..., Any]
    """A key of `MINIMUM_ROLES`."""
    takes_body: bool
    response_view: type[View] | None
    is_expensive: bool
    has_precondition: bool
    """Whether it accepts `If-Match`."""


def operations(app: FastAPI) -> Iterator[Operation]:
    """Every operation of the API."""
    for route in iter_route_contexts(app.routes):
        api_route = route.original_route
        if not isinstance(api_route, Route):
            # Only `Route` checks requirements.
            raise TypeError(f"{route.path} is not a route of the class Route")
        for method in sorted(api_route.methods or ()):
            yield Operation(
                method=method,
                path=str(route.path_format),
                requirement=requirement_of(api_route.dependant),
                takes_body=api_route.body_field is not None,
                response_view=api_route.response_view,
                is_expensive=is_expensive(api_route.dependant.call),
                has_precondition=any(
                    dependency.call is precondition for dependency in api_route.dependant.dependencies
                ),
            )


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The API's OpenAPI document."""
    document = get_openapi(
        title=TITLE,
        version=__version__,
        description=DESCRIPTION,
        routes=app.routes,
        tags=_TAGS,
        openapi_version="3.1.0",
    )
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for model in (ErrorDetail, ProblemDetails):
        schema = model.model_json_schema(ref_template=REF_TEMPLATE.format(name="{model}"), mode="serialization")
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    # Views and the framework both define a schema for some enumerations. The framework's schemas have more details, so
    # they are the right operand, which wins.
    document["components"]["schemas"] = dict(sorted((_view_schemas(app) | schemas).items()))
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key, `hmk_…`."},
        "attempt": {"type": "http", "scheme": "bearer", "description": "The token of one attempt, `hat_…`."},
    }
    # The API is at the root of the host that serves the document.
    document["servers"] = [{"url": "/"}]
    for operation in operations(app):
        _add_details(document["paths"][operation.path][operation.method.lower()], operation)
    return document


def _view_schemas(app: FastAPI) -> dict[str, Any]:
    """The schemas of all response bodies and their parts, by name."""
    views = [operation.response_view for operation in operations(app) if operation.response_view is not None]
    _, schemas = schema_components(views, ref_template=REF_TEMPLATE, schema_hook=object_schema)
    for schema in schemas.values():
        if "enum" in schema:
            schema["type"] = "string"
    for name in (WebhookView.__name__, WebhookWithSecretView.__name__):
        # Responses have all fields, also those that a request can leave out.
        properties = schemas[name]["properties"]
        schemas[name]["required"] = list(properties)
        for field in properties.values():
            field.pop("default", None)
    return schemas


def _reference(model: type) -> dict[str, str]:
    return {"$ref": REF_TEMPLATE.format(name=model.__name__)}


def _add_details(item: dict[str, Any], operation: Operation) -> None:
    """Add the role, the response schema, headers and errors to `item`, the operation's object in the document."""
    role = MINIMUM_ROLES[operation.requirement]
    scheme = "attempt" if operation.requirement is require_attempt_token else "key"
    item["security"] = [{scheme: []}] if role is not None else []
    item["x-role"] = role or "none"
    if operation.response_view is not None:
        (success_response,) = (item["responses"][status] for status in item["responses"] if status.startswith("2"))
        success_response["content"]["application/json"]["schema"] = _reference(operation.response_view)
    item["x-costly"] = operation.is_expensive
    responses = item["responses"]
    success_statuses = [status for status in responses if status.startswith("2")]
    for status in success_statuses:
        responses[status]["headers"] = {name: _HEADERS[name] for name in _response_header_names(item, operation)}
    if operation.method == "GET" and "ETag" in _response_header_names(item, operation):
        responses["304"] = {"description": "The resource still has the ETag in `If-None-Match`."}
    for code in _error_codes(operation):
        status, title = ERROR_CODES[code]
        problem: dict[str, Any] = {"description": title, "content": {MEDIA_TYPE: {"schema": _PROBLEM_SCHEMA}}}
        if status in (429, 503):
            problem["headers"] = {"Retry-After": _HEADERS["Retry-After"]}
        if code == "invalid":
            # Replaces the response that the framework has added for 422.
            responses["422"] = problem
        responses.setdefault(str(status), problem)
    item["responses"] = dict(sorted(responses.items()))


def _response_header_names(item: dict[str, Any], operation: Operation) -> Iterator[str]:
    if operation.requirement not in (require_nothing, require_attempt_token):
        yield from ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
    if item["operationId"] in _OPERATION_IDS_WITH_ETAG:
        yield "ETag"
    if item["operationId"] in _OPERATION_IDS_WITH_LOCATION:
        yield "Location"
    if any(parameter["name"] == "Idempotency-Key" for parameter in item.get("parameters", ())):
        yield "Idempotency-Replayed"


_OPERATION_IDS_WITH_LOCATION: Final = {
    "create_factory",
    "create_webhook",
    "create_secret",
    "create_automation",
    "run_automation",
    "add_member",
}
_OPERATION_IDS_WITH_ETAG: Final = {
    f"{verb}_{noun}" for verb in ("show", "change", "sync") for noun in ("webhook", "automation", "member", "secret")
} | {"give_role", "take_role"}


def _error_codes(operation: Operation) -> Iterator[str]:
    """An error code for each error status that the operation may return. 409 may have other codes, too."""
    yield "internal_error"
    if operation.requirement is not require_nothing:
        yield from ("authentication_failed", "too_many_requests", "unavailable")
    if operation.requirement in (require_manager, require_admin, require_factory_admin):
        yield "forbidden"
    if "{" in operation.path:
        yield "not_found"
    # Every operation rejects unknown parameters.
    yield "invalid"
    if operation.takes_body:
        yield from ("malformed_json", "body_too_slow", "body_too_large", "unsupported_media_type")
        # A body may name a resource that does not exist.
        yield "not_found"
    if operation.method != "GET" and operation.requirement is not require_viewer:
        yield "conflict"
    if operation.has_precondition:
        yield "changed"
