"""What is open to all: the API's description, its page for people, the schemas of definition files, the providers."""

import json
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Path, Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from hookmill.domain.signatures.catalogue import schemes
from hookmill.presentation.scheme import SchemeView
from hookmill.web.api.access import FAILURES_PER_MINUTE, REQUESTS_PER_MINUTE, Anybody
from hookmill.web.api.body import BYTES_MAX, LARGE_BYTES_MAX
from hookmill.web.api.costly import AT_A_TIME
from hookmill.web.api.document import document
from hookmill.web.api.fields import LIMIT, LIMIT_MAX, Cursor, Limit
from hookmill.web.api.paging import Page, page
from hookmill.web.api.problems import ERRORS_MAX, KINDS
from hookmill.web.api.representation import shown
from hookmill.web.api.route import Route

routes = APIRouter(route_class=Route, tags=["Reference"], dependencies=[Anybody])

_PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


class SchemePage(Page[SchemeView], frozen=True):
    """Signature schemes, by name."""


class DefinitionKind(StrEnum):
    WEBHOOK = "webhook"
    AUTOMATION = "automation"


@routes.get("/schemes", operation_id="list_schemes", summary="List signature schemes", response_model=SchemePage)
def list_schemes(limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """The providers whose signatures can be verified, and how to set each of them up."""
    items, further = page(schemes(), lambda scheme: (scheme.name,), limit=limit, cursor=cursor)
    return shown(SchemePage(items=[SchemeView.of(scheme) for scheme in items], next_cursor=further))


@routes.get(
    "/schemas/{kind}.schema.json",
    operation_id="show_definition_schema",
    summary="The JSON Schema of a definition file",
    response_class=Response,
    responses={200: {"content": {"application/schema+json": {"schema": {}}}, "description": "A JSON Schema."}},
)
def show_definition_schema(kind: Annotated[DefinitionKind, Path(description="Of which kind of file.")]) -> Response:
    """For editors that complete definition files while they are written."""
    from hookmill.definitions import schema

    return Response(schema(kind.value), media_type="application/schema+json")


@routes.get(
    "/openapi.json",
    operation_id="show_openapi",
    summary="This description",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {}}}, "description": "An OpenAPI 3.1 document."}},
)
def show_openapi(request: Request) -> Response:
    """The whole API as programs read it."""
    return Response(_document_text(request.app), media_type="application/json")


@routes.get(
    "/docs",
    operation_id="show_docs",
    summary="This description, for people",
    response_class=Response,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}, "description": "A page."}},
)
def show_docs(request: Request) -> Response:
    """The whole API on one page."""
    return Response(_docs_text(request.app), media_type="text/html", headers=_PAGE_HEADERS)


@routes.get(
    "/docs/style.css",
    operation_id="show_docs_style",
    summary="How the page looks",
    response_class=Response,
    responses={200: {"content": {"text/css": {"schema": {"type": "string"}}}, "description": "A style sheet."}},
)
def show_docs_style() -> Response:
    """The style sheet of the page."""
    return Response(_style(), media_type="text/css")


@cache
def _style() -> bytes:
    return resources.files(__package__).joinpath("docs.css").read_bytes()


@cache
def _document_text(app: FastAPI) -> bytes:
    return json.dumps(document(app)).encode()


@cache
def _docs_text(app: FastAPI) -> bytes:
    pages = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["words"] = _words
    pages.filters["json"] = _pretty
    described = document(app)
    schemas = described["components"]["schemas"]
    groups = [
        (tag, [each for each in _each_operation(described) if tag["name"] in each["tags"]]) for tag in described["tags"]
    ]
    text = pages.get_template("docs.html").render(
        info=described["info"],
        groups=groups,
        schemas=schemas,
        named=_named,
        choices=lambda schema: _choices(schema, schemas),
        kinds=KINDS,
        limits={
            "requests": REQUESTS_PER_MINUTE,
            "failures": FAILURES_PER_MINUTE,
            "costly": AT_A_TIME,
            "page": LIMIT,
            "page_max": LIMIT_MAX,
            "bytes": BYTES_MAX,
            "large_bytes": LARGE_BYTES_MAX,
            "errors": ERRORS_MAX,
        },
    )
    return text.encode()


def _each_operation(described: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**told, "method": method.upper(), "path": path}
        for path, methods in described["paths"].items()
        for method, told in methods.items()
    ]


def _words(text: str) -> list[str]:
    """Text in pieces, of which every second one was between backticks."""
    return text.split("`")


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _choices(schema: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """The values that a parameter takes, where they are counted."""
    found = [*schema.get("enum", ())]
    if reference := schema.get("$ref"):
        found += _choices(schemas[reference.rpartition("/")[2]], schemas)
    for choice in schema.get("anyOf", ()):
        found += _choices(choice, schemas)
    return found


def _named(schema: dict[str, Any]) -> str | None:
    """The name of the object that a schema stands for, if it stands for one by itself or as a list."""
    reference = schema.get("$ref") or schema.get("items", {}).get("$ref")
    for choice in schema.get("anyOf", ()):
        reference = reference or choice.get("$ref")
    return str(reference).rpartition("/")[2] if reference else None
