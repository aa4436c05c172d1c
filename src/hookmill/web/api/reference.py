"""The public documents: OpenAPI document, reference page, JSON Schemas of definition files, signature schemes."""

import json
from functools import cache
from importlib import resources
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Path, Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from hookmill.domain.definition_run import DefinitionKind
from hookmill.domain.signatures.catalogue import schemes
from hookmill.presentation.scheme import SchemeView
from hookmill.web.api.access import FAILURES_PER_MINUTE, REQUESTS_PER_MINUTE, Public
from hookmill.web.api.body import BYTES_MAX, LARGE_BYTES_MAX, TREE_BYTES_MAX
from hookmill.web.api.expensive import CONCURRENT_MAX
from hookmill.web.api.fields import PAGE_SIZE, PAGE_SIZE_MAX, Cursor, Limit
from hookmill.web.api.openapi import openapi_document
from hookmill.web.api.paging import ResultPage, paginate
from hookmill.web.api.problems import ERROR_CODES, ERRORS_MAX
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(route_class=Route, tags=["Reference"], dependencies=[Public])

_PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


class SchemePage(ResultPage[SchemeView], frozen=True):
    """Signature schemes, by name."""


@routes.get("/schemes", operation_id="list_schemes", summary="List signature schemes", response_model=SchemePage)
def list_schemes(limit: Limit = PAGE_SIZE, cursor: Cursor = None) -> Response:
    """Lists the providers whose signatures can be verified, with set-up instructions."""
    items, next_cursor = paginate(schemes(), lambda scheme: (scheme.name,), limit=limit, cursor=cursor)
    return json_response(SchemePage(items=[SchemeView.of(scheme) for scheme in items], next_cursor=next_cursor))


@routes.get(
    "/schemas/{kind}.schema.json",
    operation_id="show_definition_schema",
    summary="Get the JSON Schema of definition files",
    response_class=Response,
    responses={200: {"content": {"application/schema+json": {"schema": {}}}, "description": "A JSON Schema."}},
)
def show_definition_schema(kind: Annotated[DefinitionKind, Path(description="The kind of file.")]) -> Response:
    """Returns the JSON Schema of a kind of definition files. Editors use it for completion and checks."""
    from hookmill.definitions import schema

    return Response(schema(kind), media_type="application/schema+json")


@routes.get(
    "/openapi.json",
    operation_id="show_openapi",
    summary="Get the OpenAPI document",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {}}}, "description": "An OpenAPI 3.1 document."}},
)
def show_openapi(request: Request) -> Response:
    """Returns the OpenAPI document of the API."""
    return Response(_document_json(request.app), media_type="application/json")


@routes.get(
    "/docs",
    operation_id="show_docs",
    summary="Get the reference page",
    response_class=Response,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}, "description": "A page."}},
)
def show_docs(request: Request) -> Response:
    """Returns this page: the whole API, for people."""
    return Response(_docs_html(request.app), media_type="text/html", headers=_PAGE_HEADERS)


@routes.get(
    "/docs/style.css",
    operation_id="show_docs_style",
    summary="Get the style sheet of the reference page",
    response_class=Response,
    responses={200: {"content": {"text/css": {"schema": {"type": "string"}}}, "description": "A style sheet."}},
)
def show_docs_style() -> Response:
    """Returns the style sheet of the reference page."""
    return Response(_style_sheet(), media_type="text/css")


@cache
def _style_sheet() -> bytes:
    return resources.files(__package__).joinpath("docs.css").read_bytes()


@cache
def _document_json(app: FastAPI) -> bytes:
    return json.dumps(openapi_document(app)).encode()


@cache
def _docs_html(app: FastAPI) -> bytes:
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code_spans"] = _split_at_backticks
    environment.filters["json"] = _indented_json
    document = openapi_document(app)
    schemas = document["components"]["schemas"]
    groups = [
        (tag, [operation for operation in _operations(document) if tag["name"] in operation["tags"]])
        for tag in document["tags"]
    ]
    text = environment.get_template("docs.html").render(
        info=document["info"],
        groups=groups,
        schemas=schemas,
        model_of=_schema_name,
        choices=lambda schema: _enum_values(schema, schemas),
        error_codes=ERROR_CODES,
        limits={
            "requests": REQUESTS_PER_MINUTE,
            "failures": FAILURES_PER_MINUTE,
            "expensive": CONCURRENT_MAX,
            "page": PAGE_SIZE,
            "page_max": PAGE_SIZE_MAX,
            "bytes": BYTES_MAX,
            "large_bytes": LARGE_BYTES_MAX,
            "tree_bytes": TREE_BYTES_MAX,
            "errors": ERRORS_MAX,
        },
    )
    return text.encode()


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The operation objects of the OpenAPI document, each with its method and path."""
    return [
        {**item, "method": method.upper(), "path": path}
        for path, methods in document["paths"].items()
        for method, item in methods.items()
    ]


def _split_at_backticks(text: str) -> list[str]:
    """The text split at backticks: every second part is code."""
    return text.split("`")


def _indented_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _enum_values(schema: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """The values that a schema enumerates, itself, in its alternatives, or in the schema that it refers to."""
    values = [*schema.get("enum", ())]
    if reference := schema.get("$ref"):
        values += _enum_values(schemas[reference.rpartition("/")[2]], schemas)
    for alternative in schema.get("anyOf", ()):
        values += _enum_values(alternative, schemas)
    return values


def _schema_name(schema: dict[str, Any]) -> str | None:
    """The name of the schema that a schema refers to: directly, as the items of a list, or in `anyOf`."""
    reference = schema.get("$ref") or schema.get("items", {}).get("$ref")
    for alternative in schema.get("anyOf", ()):
        reference = reference or alternative.get("$ref")
    return str(reference).rpartition("/")[2] if reference else None
