"""The API's own description is true: what it says is accepted and answered, and nothing else happens."""

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
from tests.api.client import ENOUGH, Api, Stocked
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
"""Drawn for an operation, beside those that go through what the description says place by place."""

PLACES_TO_A_REQUEST = count(1, usually=12)
"""Of so many of these places one is asked about."""

HOLDING_A_FILTER = {"path_regex": "/automations", "method": ["POST", "PATCH"]}
"""To draw one body with a payload filter, which has no end, takes seconds and a gigabyte. Nothing is drawn for these:
`tests/domain/test_filters.py` draws filters."""

PLACES: dict[str, str] = {}
SERVED: list[Application] = []


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    await SERVED[-1](scope, receive, send)


DOCUMENT = openapi_document(application())

PATTERNS = {
    parameter["name"]: parameter["schema"]["pattern"]
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
    for parameter in operation.get("parameters", ())
    if parameter["in"] == "path" and "pattern" in parameter["schema"]
}


def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """About half of all addresses that could be some thing's are those of things that are there."""
    return {
        name: PLACES[name] if _could_be(name, unquote(str(value))) and len(str(value)) % 2 else value
        for name, value in (path_parameters or {}).items()
    }


def _could_be(name: str, value: str) -> bool:
    # To Python a `$` also stands before a last line break.
    return name in PATTERNS and re.search(PATTERNS[name].removesuffix("$") + r"\Z", value) is not None


@pytest.fixture(scope="module")
def description(shared_api: Api) -> Any:
    """What the description says, and what it is true of: a service with one of everything in it."""
    PLACES.update(Stocked(shared_api, shared_api.world.may).places)
    app = build(
        shared_api.management,
        trusted_proxies=(),
        now_us=shared_api.world.clock,
        report_failure=lambda where, error: shared_api.unforeseen.append((where, error)),
        requests_per_minute=ENOUGH,
        failures_per_minute=ENOUGH,
    )
    SERVED.append(app)
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.app = _application
    schema.hook(map_path_parameters)
    return schema


def those_of(description: Any, *phases: Phase) -> Iterator[tuple[Any, Callable[..., None]]]:
    """Each operation, and the test that it answers as described."""
    places = Counter[str]()

    @seed(20_261_121)
    @settings(max_examples=EXAMPLES, phases=phases, deadline=None, suppress_health_check=list(HealthCheck))
    def answers_as_described(admin: str, case: Any) -> None:
        if case.meta.phase.name is TestPhase.COVERAGE:
            places[case.operation.label] += 1
            # The first of an operation is always asked about.
            if (places[case.operation.label] - 1) % PLACES_TO_A_REQUEST:
                return
        case.call_and_validate(checks=CHECKS, headers={"Authorization": f"Bearer {admin}"})

    for found in get_all_tests(schema=description, test_func=answers_as_described, settings=None, given_kwargs=None):
        assert isinstance(found, Ok), found.err()
        yield found.ok()


@pytest.mark.timeout(900)
def test_every_operation_answers_as_described(shared_api: Api, description: Any):
    failures: list[Exception] = []
    # To go through the description while tests are collected would cost every process of a test run seconds.
    tests = [
        *those_of(description.exclude(**HOLDING_A_FILTER), Phase.explicit, Phase.generate),
        *those_of(description.include(**HOLDING_A_FILTER), Phase.explicit),
    ]
    for operation, test in tests:
        try:
            test(admin=shared_api.admin)
        except Exception as failure:
            failure.add_note(f"This was {operation.label}")
            failures.append(failure)

    assert len(tests) == sum(len(methods) for methods in DOCUMENT["paths"].values())
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(tests)} operations answer otherwise", failures)
    assert shared_api.unforeseen == []
