"""The API's own description is true: what it says is accepted and answered, and nothing else happens."""

import re
from typing import Any
from urllib.parse import unquote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from hookmill.web.api import application, build
from hookmill.web.api.document import document
from hookmill.web.ingress import Receive, Scope, Send
from hookmill.web.routes import Application
from tests.api.client import ENOUGH, Api, Stocked

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
]
EXAMPLES = 12
"""Drawn for each operation, beside those that go through what the description says place by place."""

PLACES: dict[str, str] = {}
SERVED: list[Application] = []


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    await SERVED[-1](scope, receive, send)


DOCUMENT = document(application())
schema = schemathesis.openapi.from_dict(DOCUMENT)
schema.app = _application

PATTERNS = {
    parameter["name"]: parameter["schema"]["pattern"]
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
    for parameter in operation.get("parameters", ())
    if parameter["in"] == "path" and "pattern" in parameter["schema"]
}


@schema.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """About half of all addresses that could be some thing's are those of things that are there."""
    return {
        name: PLACES[name] if _could_be(name, unquote(str(value))) and len(str(value)) % 2 else value
        for name, value in (path_parameters or {}).items()
    }


def _could_be(name: str, value: str) -> bool:
    # To Python a `$` also stands before a last line break.
    return name in PATTERNS and re.search(PATTERNS[name].removesuffix("$") + r"\Z", value) is not None


@pytest.fixture(scope="module", autouse=True)
def served(shared_api: Api) -> None:
    """What the description is true of: a service with one of everything in it."""
    PLACES.update(Stocked(shared_api, shared_api.world.may).places)
    app = build(
        shared_api.management,
        trusted_proxies=(),
        now_us=shared_api.world.clock,
        failed=lambda where, error: shared_api.unforeseen.append((where, error)),
        requests_per_minute=ENOUGH,
        failures_per_minute=ENOUGH,
    )
    SERVED.append(app)


@schema.parametrize()
@seed(20_261_121)
@settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.generate),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_answers_as_described(shared_api: Api, case):
    case.call_and_validate(checks=CHECKS, headers={"Authorization": f"Bearer {shared_api.admin}"})
    assert shared_api.unforeseen == []
