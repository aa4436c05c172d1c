"""The route class of the API. A route checks the key, path, parameters and body, and then calls its operation."""

from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any, get_args
from urllib.parse import unquote_to_bytes

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hookmill.domain.errors import ObjectStoreUnavailable, StoreUnavailable
from hookmill.presentation.view import View
from hookmill.web.api import body, problems
from hookmill.web.api.access import (
    Authenticator,
    context_of,
    require_attempt_token,
    require_nothing,
    requirement_of,
)
from hookmill.web.api.bodies import SpecBody
from hookmill.web.api.messages import ErrorMessages
from hookmill.web.api.representation import unless_not_modified

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Route(APIRoute):
    """The route of one operation at one path. It converts every exception to an error response."""

    def __init__(self, path: str, endpoint: Callable[..., Any], *, response_model: Any = None, **options: Any) -> None:
        """`response_model` is the view in the response body. It only documents the operation: see `openapi.py`."""
        self.response_view: type[View] | None = response_model if isinstance(response_model, type) else None
        super().__init__(path, endpoint, response_model=None, **options)

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        requirement = requirement_of(self.dependant)
        needs_key = requirement not in (require_nothing, require_attempt_token)
        query_parameters = dict(_query_parameters(self.dependant))
        body_field = self.body_field
        body_fields = dict(_body_fields(body_field.field_info)) if body_field is not None else {}
        bytes_max = body.size_limit(body_fields)
        messages = ErrorMessages(body_fields, query_parameters)

        async def respond(request: Request) -> Response:
            authenticator: Authenticator = request.state.authenticator
            if needs_key:
                await authenticator.authenticate(request)
            _decode_path(request)
            if requirement is require_attempt_token:
                await authenticator.authenticate_platform(request, request.path_params["attempt"])
            _reject_invalid_query(request, query_parameters)
            if body_field is not None:
                request = await body.read(request, required=body_field.field_info.is_required(), bytes_max=bytes_max)
                context_of(request).body = await request.body()
                if needs_key:
                    # The key may have been revoked while the body arrived.
                    await authenticator.reauthenticate(request)
            return unless_not_modified(request, await handle(request))

        async def respond_or_report(request: Request) -> Response:
            try:
                return await respond(request)
            except Exception as error:
                api_error = problems.api_error_for(error, messages)
                if api_error.code == "internal_error" or isinstance(error, StoreUnavailable | ObjectStoreUnavailable):
                    request.state.report_failure("api", error)
                return problems.error_response(api_error)

        return respond_or_report


def _decode_path(request: Request) -> None:
    """Decode each segment separately, because an encoded slash in a name must not separate segments."""
    try:
        decoded = {name: unquote_to_bytes(value).decode() for name, value in request.scope["path_params"].items()}
    except UnicodeDecodeError:
        raise problems.not_found_error() from None
    request.scope["path_params"] = decoded


def _reject_invalid_query(request: Request, parameters: Collection[str]) -> None:
    """Raise `ApiError` for an unknown or repeated query parameter."""
    # If a misspelled filter were ignored, the response would contain unfiltered results.
    earlier_names: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in parameters:
            allowed = f"Allowed: {', '.join(sorted(parameters))}." if parameters else "It has no parameters."
            raise problems.invalid_parameter_error(name, f"This operation has no such parameter. {allowed}")
        if name in earlier_names:
            raise problems.invalid_parameter_error(name, "The parameter occurs more than once. Send it once.")
        earlier_names.add(name)


def _body_fields(body_field: FieldInfo) -> Iterator[tuple[str, FieldInfo]]:
    for model in (body_field.annotation, *get_args(body_field.annotation)):
        if isinstance(model, type) and issubclass(model, SpecBody):
            yield from ((name, FieldInfo()) for name in model.field_names)
        elif isinstance(model, type) and issubclass(model, BaseModel):
            yield from model.model_fields.items()


def _query_parameters(dependant: Dependant) -> Iterator[tuple[str, FieldInfo]]:
    yield from ((field.alias, field.field_info) for field in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from _query_parameters(dependency)
