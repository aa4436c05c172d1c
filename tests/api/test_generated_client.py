"""Published programs generate clients from the OpenAPI document, and the document has what they need."""

import json
import re
import subprocess
from typing import Any, Final

import pytest

from hookmill.web.api import application
from hookmill.web.api.openapi import openapi_document
from tests.support.python_programs import python, python_package

GENERATOR: Final = "openapi-python-client==0.29.1"
DOCUMENT: Final = openapi_document(application())
AUTOMATION: Final = {
    "name": "triage",
    "prompt": "Look.",
    "triggers": [],
    "concurrency": {"key": ["/number"], "limit": 2, "when_busy": "skip"},
    "debounce": {"seconds": 5},
    "retry": {"attempts": 3, "exit_codes": [7]},
    "workspace": {"repository": "app", "ref": {"pointer": "/sha"}},
    "fields": {"pr": "/number", "title": {"pointer": "/title", "max_characters": 5}},
    "results": [{"kind": "github_comment", "destination": "github", "number": "/number"}],
}
USE_OF_THE_CLIENT: Final = """
import json, sys
from client.models import AutomationCreation, Concurrency

body = AutomationCreation.from_dict(json.loads(sys.argv[1]))
assert isinstance(body.concurrency, Concurrency), body.concurrency
assert body.concurrency.limit == 2
print(json.dumps(body.to_dict()))
"""


def enums(value: Any) -> list[list[str]]:
    if isinstance(value, dict):
        return ([value["enum"]] if "enum" in value else []) + [
            inner for child in value.values() for inner in enums(child)
        ]
    return [inner for child in value for inner in enums(child)] if isinstance(value, list) else []


def test_values_of_each_enum_differ_in_more_than_case_and_signs():
    for values in enums(DOCUMENT):
        assert len({re.sub(r"\W+", "_", str(value)).lower() for value in values}) == len(values)


def test_document_names_the_server_and_the_types_of_an_automation():
    assert DOCUMENT["servers"] == [{"url": "/"}]
    schemas = DOCUMENT["components"]["schemas"]
    for name in ("AutomationCreation", "AutomationChanges"):
        for part, spec in (("concurrency", "Concurrency"), ("retry", "Retry"), ("workspace", "Workspace")):
            assert schemas[name]["properties"][part]["anyOf"] == [
                {"$ref": f"#/components/schemas/{spec}"}, {"type": "null"}
            ]  # fmt: skip
    assert schemas["Retry"]["properties"]["attempts"] | {"description": ""} == {
        "type": "integer",
        "minimum": 1,
        "maximum": 20,
        "description": "",
    }


@pytest.mark.proof
def test_published_generator_makes_a_client_with_typed_bodies(tmp_path):
    environment = python_package(GENERATOR)
    (tmp_path / "openapi.json").write_text(json.dumps(DOCUMENT))
    interpreter = [python(), "-c"]
    variables = {"PYTHONPATH": f"{next((environment / 'lib').glob('python*'))}/site-packages:{tmp_path}"}
    generate = (
        "from openapi_python_client.cli import app; app(['generate', '--path', 'openapi.json', '--output-path', "
        "'client', '--meta', 'none'])"
    )

    generated = subprocess.run(
        [*interpreter, generate], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    assert generated.returncode == 0, generated.stdout + generated.stderr
    used = subprocess.run(
        [*interpreter, USE_OF_THE_CLIENT, json.dumps(AUTOMATION)],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert used.returncode == 0, used.stderr
    assert json.loads(used.stdout) == AUTOMATION
