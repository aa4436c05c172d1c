"""The API behaves as its OpenAPI document describes: requests, answers and errors."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation.meta import TestPhase
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from hookmill.web.api import application, build
from hookmill.web.api.openapi import openapi_document
from hookmill.web.asgi import Receive, Scope, Send
from hookmill.web.routes import Application
from tests.api.client import UNREACHED_LIMIT, StockedFactory
from tests.support.counts import count

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
]
EXAMPLES = count(12, usually=1)
"""The number of random requests to each operation, in addition to those of the coverage phase."""

COVERAGE_STEP = count(1, usually=24)
"""Of so many requests of the coverage phase to an operation, only the first one is sent."""

OPERATION_STEP = count(1, usually=3)
"""Only the first of so many operations is tested."""

WITH_A_FILTER = {"path_regex": "/automations", "method": ["POST", "PATCH"]}
"""These operations get no random requests, because generating a payload filter, which is recursive, takes seconds and a
gigabyte of memory. `tests/domain/test_filters.py` generates filters."""

PATH_PARAMETERS: dict[str, str] = {}
"""The path parameters of existing resources."""
APPS: list[Application] = []


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    await APPS[-1](scope, receive, send)


DOCUMENT = openapi_document(application())

PATTERNS = {
    parameter["name"]: parameter["schema"]["pattern"]
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
    for parameter in operation.get("parameters", ())
    if parameter["in"] == "path" and "pattern" in parameter["schema"]
}


def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """In about half of the valid paths, use the id of an existing resource."""
    return {
        name: PATH_PARAMETERS[name] if _is_valid(name, unquote(str(value))) and len(str(value)) % 2 else value
        for name, value in (path_parameters or {}).items()
    }


def _is_valid(name: str, value: str) -> bool:
    # In Python, `$` also matches before a line break at the end.
    return name in PATTERNS and re.search(PATTERNS[name].removesuffix("$") + r"\Z", value) is not None


@pytest.fixture(scope="module")
def api_schema(shared_api):
    """The OpenAPI document, with an API that has one resource of each kind."""
    PATH_PARAMETERS.update(StockedFactory(shared_api, shared_api.world.may).path_parameters)
    app = build(
        shared_api.management,
        trusted_proxies=(),
        now_us=shared_api.world.clock,
        report_failure=lambda where, error: shared_api.unexpected_errors.append((where, error)),
        requests_per_minute=UNREACHED_LIMIT,
        failures_per_minute=UNREACHED_LIMIT,
    )
    APPS.append(app)
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.app = _application
    schema.hook(map_path_parameters)
    return schema


def operations_and_tests(api_schema: Any, *phases: Phase) -> Iterator[tuple[Any, Callable[..., None]]]:
    """Each operation, and a test of its answers."""
    coverage_requests = Counter[str]()

    @seed(20_261_121)
    @settings(max_examples=EXAMPLES, phases=phases, deadline=None, suppress_health_check=list(HealthCheck))
    def answers_as_described(admin: str, case: Any) -> None:
        if case.meta.phase.name is TestPhase.COVERAGE:
            coverage_requests[case.operation.label] += 1
            if (coverage_requests[case.operation.label] - 1) % COVERAGE_STEP:
                return
        case.call_and_validate(checks=CHECKS, headers={"Authorization": f"Bearer {admin}"})

    for result in get_all_tests(schema=api_schema, test_func=answers_as_described, settings=None, given_kwargs=None):
        assert isinstance(result, Ok), result.err()
        yield result.ok()


@pytest.mark.timeout(900)
def test_every_operation_answers_as_described(shared_api, api_schema):
    failures: list[Exception] = []
    # pytest.mark.parametrize would need the operations during collection, which would cost each test process seconds.
    tests = [
        *operations_and_tests(api_schema.exclude(**WITH_A_FILTER), Phase.explicit, Phase.generate),
        *operations_and_tests(api_schema.include(**WITH_A_FILTER), Phase.explicit),
    ]
    for operation, test in tests[::OPERATION_STEP]:
        try:
            test(admin=shared_api.admin)
        except Exception as failure:
            failure.add_note(f"The operation was {operation.label}.")
            failures.append(failure)

    assert len(tests) == sum(len(methods) for methods in DOCUMENT["paths"].values())
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(tests)} operations do not answer as described", failures)
    assert shared_api.unexpected_errors == []
