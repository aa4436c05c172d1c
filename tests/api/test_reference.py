"""The public documents of the API: the reference page, the OpenAPI document and the schemas. Also docs/api.md."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hookmill.web.api import application, bodies, operations
from hookmill.web.api.access import MINIMUM_ROLES, REQUESTS_PER_MINUTE, require_nothing
from hookmill.web.api.openapi import openapi_document
from hookmill.web.api.problems import ERROR_CODES

GUIDE = Path(__file__).parents[2] / "docs" / "api.md"


class Elements(HTMLParser):
    """All elements of an HTML page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.start_tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.start_tags.append((tag, dict(attrs)))

    def values(self, attribute: str) -> list[str]:
        """The values of an attribute in all elements that have it."""
        return [attributes[attribute] or "" for _, attributes in self.start_tags if attribute in attributes]


def test_page_loads_only_its_own_style_sheet(shared_api):
    answer = shared_api.get("/docs", key="")
    elements = Elements(answer.body.decode())
    links = [link for link in elements.values("href") if not link.startswith("#")]

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
    )
    assert {tag for tag, _ in elements.start_tags}.isdisjoint(
        {"script", "style", "img", "iframe", "form", "object", "base"}
    )
    assert elements.values("src") == elements.values("style") == []
    assert sorted(links) == ["/api/v1/docs/style.css", "/api/v1/openapi.json"]
    assert {shared_api.get(link.removeprefix("/api/v1"), key="").status for link in links} == {200}


def test_every_link_on_the_page_has_a_target(shared_api):
    elements = Elements(shared_api.get("/docs", key="").body.decode())
    ids = elements.values("id")

    assert len(ids) == len(set(ids)) > 60
    assert {link[1:] for link in elements.values("href") if link.startswith("#")} <= set(ids)


def test_style_sheet_loads_no_other_file(shared_api):
    answer = shared_api.get("/docs/style.css", key="")

    assert answer.headers["content-type"].startswith("text/css")
    assert b"url(" not in answer.body
    assert b"@import" not in answer.body


def test_every_operation_is_on_the_page(shared_api):
    document = openapi_document(application())
    operation_ids = [
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    ]

    ids_on_page = Elements(shared_api.get("/docs", key="").body.decode()).values("id")

    assert len(operation_ids) == len(set(operation_ids)) > 45
    assert set(operation_ids) <= set(ids_on_page)


def test_page_explains_authentication_error_codes_and_rate_limit(shared_api):
    text = html.unescape(shared_api.get("/docs", key="").body.decode())

    assert "Authorization: Bearer hmk_" in text
    for code, kind in ERROR_CODES.items():
        assert f"<td>{kind.status}</td><td><code>{code}</code></td><td>{kind.title}</td>" in text
    assert f"{REQUESTS_PER_MINUTE} requests per minute" in text
    assert "<code>rejected_auth</code>" in text
    assert "<code>interrupted</code>" in text


def test_every_request_body_has_a_valid_example_on_the_page(shared_api):
    text = html.unescape(shared_api.get("/docs", key="").body.decode())
    document = openapi_document(application())
    names = re.findall(r'"requestBody": .*?"#/components/schemas/(\w+)"', json.dumps(document))

    assert len(names) > 12
    for name in names:
        (example,) = document["components"]["schemas"][name]["examples"]
        getattr(bodies, name).model_validate(example)
        assert json.dumps(example, indent=2, ensure_ascii=False) in text


@pytest.mark.parametrize("path", ["", "/", "/docs/"])
def test_similar_paths_redirect_to_the_page(shared_api, path):
    answer = shared_api.get(path, key="", headers={"Host": "evil"})

    assert (answer.status, answer.headers["location"]) == (308, "/api/v1/docs")


def test_openapi_document_describes_every_operation():
    document = openapi_document(application())

    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            role = operation["x-role"]
            assert operation["summary"], path
            assert operation["description"], path
            scheme = "attempt" if role == "attempt" else "key"
            assert operation["security"] == ([] if role == "none" else [{scheme: []}]), (method, path)
            assert {"401", "429", "503"} <= set(operation["responses"]) or role == "none"
            assert "500" in operation["responses"]


def test_openapi_document_contains_every_schema_that_it_references():
    document = openapi_document(application())
    text = json.dumps(document)

    assert set(re.findall(r'"#/components/schemas/(\w+)"', text)) <= set(document["components"]["schemas"])
    assert "HTTPValidationError" not in text
    assert document["openapi"].startswith("3.1")


def test_fields_for_secrets_are_write_only():
    schemas = openapi_document(application())["components"]["schemas"]

    for name, field in (("WebhookCreation", "secret"), ("RotationRequest", "secret"), ("SecretCreation", "value")):
        assert '"writeOnly": true' in json.dumps(schemas[name]["properties"][field])


def test_public_documents_contain_nothing_of_the_installation(shared_api):
    shared_api.factory("confidential")
    public_paths = [
        each.path.removeprefix("/api/v1") for each in operations(application()) if each.requirement is require_nothing
    ]

    for path in public_paths:
        answer = shared_api.get(path.format(kind="webhook"), key="")

        assert answer.status == 200
        assert b"confidential" not in answer.body
        assert b"hooks.test" not in answer.body


@pytest.mark.parametrize("kind", ["webhook", "automation"])
def test_schemas_of_definition_files_are_served(shared_api, kind):
    answer = shared_api.get(f"/schemas/{kind}.schema.json", key="")

    assert answer.headers["content-type"] == "application/schema+json"
    assert "properties" in json.loads(answer.body)


def test_unknown_schema_is_not_found(shared_api):
    assert shared_api.get("/schemas/secret.schema.json", key="").status == 404


def test_guide_contains_every_path_role_and_error_code():
    guide = GUIDE.read_text()
    roles = {role for role in MINIMUM_ROLES.values() if role not in (None, "any")}

    def short(path: str) -> str:
        return path.removeprefix("/api/v1")

    assert [each.path for each in operations(application()) if f"`{short(each.path)}`" not in guide] == []
    assert [code for code in ERROR_CODES if f"`{code}`" not in guide] == []
    assert [role for role in roles if f"`{role}`" not in guide] == []


def test_guide_lists_exactly_the_existing_operations():
    listed: set[tuple[str, str]] = set()
    for line in GUIDE.read_text().splitlines():
        if line.startswith("| `/"):
            path, methods, *_ = [cell.strip() for cell in line.strip("|").split("|")]
            listed |= {(method, f"/api/v1{path.strip('`')}") for method in re.findall(r"[A-Z]{3,}", methods)}

    assert listed == {(each.method, each.path) for each in operations(application())}


def example_bodies() -> list[Any]:
    """The bodies in the guide's curl commands."""
    return re.findall(r"-d '(.*?)'", GUIDE.read_text(), re.DOTALL)


def test_every_body_in_the_guide_is_json():
    assert len(example_bodies()) > 1
    for body in example_bodies():
        json.loads(body)
