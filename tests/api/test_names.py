"""All names in the API are in snake_case: those of fields, parameters, codes and operations, and those in examples."""

from collections.abc import Iterator
from typing import Any

import pytest

from hookmill.definitions.keys import WEBHOOK_FIELDS
from hookmill.web.api import application
from hookmill.web.api.openapi import openapi_document
from hookmill.web.api.problems import ERROR_CODES
from tests.support.names import SNAKE_CASE, names_not_in_snake_case

WEBHOOKS = "/factories/default/webhooks"
DOCUMENT = openapi_document(application())
FILE_KEYS = sorted(key for key, field in WEBHOOK_FIELDS.items() if key != field)
"""The keys of definition files that have other names in the API."""


def schemas(value: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in the OpenAPI document with its path, except those in examples."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from schemas(each, f"{place}/{number}")
    elif isinstance(value, dict):
        yield place, value
        for name, each in value.items():
            if name not in {"example", "examples"}:
                yield from schemas(each, f"{place}/{name}")


def test_every_field_in_the_openapi_document_is_in_snake_case():
    fields = [
        (place, name)
        for place, schema in schemas(DOCUMENT)
        if isinstance(schema.get("properties"), dict)
        for name in schema["properties"]
    ]

    assert len(fields) > 150
    assert [field for field in fields if not SNAKE_CASE.match(field[1])] == []


def test_every_parameter_operation_and_code_is_in_snake_case():
    operations = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    parameters = [parameter for operation in operations for parameter in operation.get("parameters", ())]
    names = {parameter["name"] for parameter in parameters if parameter["in"] != "header"}
    names |= {operation["operationId"] for operation in operations} | set(ERROR_CODES)

    assert len(names) > 70
    assert [name for name in sorted(names) if not SNAKE_CASE.match(name)] == []


def test_every_example_in_the_openapi_document_is_in_snake_case():
    examples = [
        (place, example)
        for place, schema in schemas(DOCUMENT)
        for example in schema.get("examples", ())
        if isinstance(example, dict | list)
    ]

    assert len(examples) > 15
    # The keys of `files` are paths.
    names = [name for place, example in examples for name in names_not_in_snake_case(example, place)]
    assert [name for name in names if "/files/" not in name] == []


def test_openapi_document_and_page_contain_no_key_of_definition_files(shared_api):
    for path in ("/openapi.json", "/docs"):
        text = shared_api.get(path, key="").body.decode()

        assert [key for key in FILE_KEYS if key in text] == []


@pytest.mark.parametrize("key", FILE_KEYS)
def test_field_in_camel_case_is_refused_with_its_name(shared_api, key):
    answer = shared_api.post(WEBHOOKS, {"name": "x", key: "token"})

    assert answer.problem == (422, "invalid")
    assert answer.json["errors"] == [
        {
            "pointer": f"/{key}",
            "detail": f"Unknown field {key!r}. Did you mean {WEBHOOK_FIELDS[key]}?",
        }
    ]


def test_key_of_a_trigger_in_camel_case_is_refused_with_its_name(api, stocked):
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhookIds": [stocked.path_parameters["uid"]]}}

    answer = api.post("/factories/default/automations", {"name": "x", "prompt": "Look.", "triggers": [trigger]})

    assert answer.status == 422
    assert answer.json["errors"] == [
        {
            "pointer": "/triggers/0/filter/webhookIds",
            "detail": "Unknown field 'webhookIds'. Did you mean webhook_ids?",
        }
    ]


def test_unknown_field_is_refused_with_all_field_names(shared_api):
    answer = shared_api.post(WEBHOOKS, {"name": "x", "odd": "token"})

    assert answer.json["errors"][0]["detail"].startswith("Unknown field 'odd'. Known fields: name, ")
