"""What every request to the API goes through, in this order: who, address, parameters, body; then the operation."""

from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any, get_args
from urllib.parse import unquote_to_bytes

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hookmill.domain.errors import StoreUnavailable
from hookmill.presentation.view import View
from hookmill.web.api import body, problems
from hookmill.web.api.access import Gate, anybody, asking_of, requirement_of
from hookmill.web.api.representation import unless_known
from hookmill.web.api.wording import Wording

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Route(APIRoute):
    """One operation at one address. Its errors are answered here, whatever they are."""

    def __init__(self, path: str, endpoint: Callable[..., Any], *, response_model: Any = None, **options: Any) -> None:
        """`response_model` is the view that is answered, which the API's description is told of: see `document.py`."""
        self.answer: type[View] | None = response_model if isinstance(response_model, type) else None
        super().__init__(path, endpoint, response_model=None, **options)

    def get_route_handler(self) -> Handler:
        perform = super().get_route_handler()
        is_open = requirement_of(self.dependant) is anybody
        parameters = dict(_query_parameters(self.dependant))
        takes = self.body_field
        fields = dict(_body_fields(takes.field_info)) if takes is not None else {}
        bytes_max = body.bytes_max(fields)
        wording = Wording(fields, parameters)

        async def judged(request: Request) -> Response:
            gate: Gate = request.state.gate
            if not is_open:
                await gate.admit(request)
            _read_address(request)
            _refuse_unknown_parameters(request, parameters)
            if takes is not None:
                request = await body.read(request, required=takes.field_info.is_required(), bytes_max=bytes_max)
                asking_of(request).body = await request.body()
                await gate.admit_again(request)
            return unless_known(request, await perform(request))

        async def answered(request: Request) -> Response:
            try:
                return await judged(request)
            except Exception as error:
                refusal = problems.refusal_for(error, wording)
                if refusal.code == "internal_error" or isinstance(error, StoreUnavailable):
                    request.state.failed("api", error)
                return problems.answer(refusal)

        return answered


def _read_address(request: Request) -> None:
    """Each segment is decoded by itself: a name may hold a slash, and no slash in a name makes another address."""
    try:
        decoded = {name: unquote_to_bytes(value).decode() for name, value in request.scope["path_params"].items()}
    except UnicodeDecodeError:
        raise problems.nothing_here() from None
    request.scope["path_params"] = decoded


def _refuse_unknown_parameters(request: Request, known: Collection[str]) -> None:
    # A filter with a typing error in its name would silently be none.
    seen: set[str] = set()
    for name in (name for name, _ in request.query_params.multi_items()):
        if name not in known:
            said = f"The parameters here are: {', '.join(sorted(known))}." if known else "There are no parameters here."
            raise problems.invalid_parameter(name, said)
        if name in seen:
            raise problems.invalid_parameter(name, "It is given more than once.")
        seen.add(name)


def _body_fields(taken: FieldInfo) -> Iterator[tuple[str, FieldInfo]]:
    for model in (taken.annotation, *get_args(taken.annotation)):
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from model.model_fields.items()


def _query_parameters(dependant: Dependant) -> Iterator[tuple[str, FieldInfo]]:
    yield from ((field.alias, field.field_info) for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _query_parameters(inner)
