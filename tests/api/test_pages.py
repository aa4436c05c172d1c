"""The reference page and what else is open to all: complete, inert, and the same for everybody."""

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
from tests.api.client import Api

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


class Elements(HTMLParser):
    """Every element of a page with its attributes, and what identifies one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def each(self, attribute: str) -> list[str]:
        return [attributes[attribute] or "" for _, attributes in self.found if attribute in attributes]


def test_the_page_needs_nothing_but_its_own_style_sheet(shared_api: Api):
    answer = shared_api.get("/docs", key="")
    elements = Elements(answer.body.decode())
    links = [link for link in elements.each("href") if not link.startswith("#")]

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
    )
    assert {tag for tag, _ in elements.found}.isdisjoint({"script", "style", "img", "iframe", "form", "object", "base"})
    assert elements.each("src") == elements.each("style") == []
    assert sorted(links) == ["/api/v1/docs/style.css", "/api/v1/openapi.json"]
    assert {shared_api.get(link.removeprefix("/api/v1"), key="").status for link in links} == {200}


def test_every_link_on_the_page_leads_somewhere(shared_api: Api):
    elements = Elements(shared_api.get("/docs", key="").body.decode())
    names = elements.each("id")

    assert len(names) == len(set(names)) > 60
    assert {link[1:] for link in elements.each("href") if link.startswith("#")} <= set(names)


def test_the_style_sheet_fetches_nothing(shared_api: Api):
    answer = shared_api.get("/docs/style.css", key="")

    assert answer.headers["content-type"].startswith("text/css")
    assert b"url(" not in answer.body
    assert b"@import" not in answer.body


def test_every_operation_is_on_the_page(shared_api: Api):
    told = openapi_document(application())
    names = Elements(shared_api.get("/docs", key="").body.decode()).each("id")

    ids = [operation["operationId"] for methods in told["paths"].values() for operation in methods.values()]

    assert len(ids) == len(set(ids)) > 45
    assert set(ids) <= set(names)


def test_the_page_says_every_code_with_its_meaning_and_how_to_begin(shared_api: Api):
    text = html.unescape(shared_api.get("/docs", key="").body.decode())

    assert "Authorization: Bearer hmk_" in text
    for code, kind in ERROR_CODES.items():
        assert f"<td>{kind.status}</td><td><code>{code}</code></td><td>{kind.title}</td>" in text
    assert f"{REQUESTS_PER_MINUTE} requests per minute" in text
    assert "<code>rejected_auth</code>" in text
    assert "<code>interrupted</code>" in text


def test_every_body_has_an_example_that_is_one_and_is_on_the_page(shared_api: Api):
    text = html.unescape(shared_api.get("/docs", key="").body.decode())
    models = {model.__name__: model for model in bodies.RequestBody.__subclasses__() + bodies.Changes.__subclasses__()}
    told = openapi_document(application())
    names = re.findall(r'"requestBody": .*?"#/components/schemas/(\w+)"', json.dumps(told))

    assert len(names) > 12
    for name in names:
        (example,) = told["components"]["schemas"][name]["examples"]
        models[name].model_validate(example)
        assert json.dumps(example, indent=2, ensure_ascii=False) in text


@pytest.mark.parametrize("path", ["", "/", "/docs/"])
def test_who_looks_for_the_page_is_led_to_it(shared_api: Api, path):
    answer = shared_api.get(path, key="", headers={"Host": "evil"})

    assert (answer.status, answer.headers["location"]) == (308, "/api/v1/docs")


def test_the_description_describes_every_operation_and_its_input():
    told = openapi_document(application())

    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            role = operation["x-role"]
            assert operation["summary"], path
            assert operation["description"], path
            assert operation["security"] == ([] if role == "none" else [{"key": []}]), (method, path)
            assert {"401", "429", "503"} <= set(operation["responses"]) or role == "none"
            assert "500" in operation["responses"]


def test_what_the_description_refers_to_is_in_it():
    told = openapi_document(application())
    text = json.dumps(told)

    assert set(re.findall(r'"#/components/schemas/(\w+)"', text)) <= set(told["components"]["schemas"])
    assert "HTTPValidationError" not in text
    assert told["openapi"].startswith("3.1")


def test_a_field_that_takes_a_secret_is_said_to_be_write_only():
    schemas = openapi_document(application())["components"]["schemas"]

    for name, field in (("WebhookCreation", "secret"), ("RotationRequest", "secret"), ("SecretCreation", "value")):
        assert '"writeOnly": true' in json.dumps(schemas[name]["properties"][field])


def test_what_is_open_to_all_says_nothing_of_this_installation(shared_api: Api):
    shared_api.factory("confidential")
    open_to_all = [
        each.path.removeprefix("/api/v1") for each in operations(application()) if each.requirement is require_nothing
    ]

    for path in open_to_all:
        answer = shared_api.get(path.format(kind="webhook"), key="")

        assert answer.status == 200
        assert b"confidential" not in answer.body
        assert b"hooks.test" not in answer.body


@pytest.mark.parametrize("kind", ["webhook", "automation"])
def test_the_schemas_of_definition_files_are_served(shared_api: Api, kind):
    answer = shared_api.get(f"/schemas/{kind}.schema.json", key="")

    assert answer.headers["content-type"] == "application/schema+json"
    assert "properties" in json.loads(answer.body)


def test_there_is_no_schema_of_anything_else(shared_api: Api):
    assert shared_api.get("/schemas/secret.schema.json", key="").status == 404


def test_the_guide_names_every_address_role_and_code():
    guide = PAGE.read_text()
    roles = {role for role in MINIMUM_ROLES.values() if role not in (None, "any")}

    def shown(path: str) -> str:
        return path.removeprefix("/api/v1")

    assert [each.path for each in operations(application()) if f"`{shown(each.path)}`" not in guide] == []
    assert [code for code in ERROR_CODES if f"`{code}`" not in guide] == []
    assert [role for role in roles if f"`{role}`" not in guide] == []


def test_the_guide_names_exactly_the_methods_that_exist():
    named: set[tuple[str, str]] = set()
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `/"):
            path, methods, *_ = [cell.strip() for cell in line.strip("|").split("|")]
            named |= {(method, f"/api/v1{path.strip('`')}") for method in re.findall(r"[A-Z]{3,}", methods)}

    assert named == {(each.method, each.path) for each in operations(application())}


def examples() -> list[Any]:
    """The bodies of the guide's curl lines."""
    return re.findall(r"-d '(.*?)'", PAGE.read_text(), re.DOTALL)


def test_every_body_in_the_guide_is_json():
    assert len(examples()) > 1
    for body in examples():
        json.loads(body)
